/* What libfuse 3.18 and newer has and Debian's has not: shared mappings, and requests that come over io_uring if it was
 * built for that.
 *
 * With io_uring, libfuse starts one thread per processor, pinned to it, which does the requests from there; /dev/fuse
 * still carries what concerns no request. These threads are libfuse's: they have no buffer and no thread state of the
 * interpreter, and libfuse ends them by pthread_cancel(3). That must not happen within a request, whose locks would
 * stay locked. So a thread that has seen a request disables cancellation: it ends by the event that comes with it. */
#ifndef FLASHFS_RINGS_H
#define FLASHFS_RINGS_H

#define FUSE_USE_VERSION 35
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "foreign_thread.h"

#define REPLY_BUFFER_BYTES (1 << 20)

/* The buffer that a thread copies through, one request at a time. */
static __thread unsigned char *my_buffer;
static __thread bool i_serve_a_ring;
static pthread_key_t buffers;
static pthread_once_t buffers_once = PTHREAD_ONCE_INIT;

static void set_buffer(unsigned char *buffer) { my_buffer = buffer; }
static void make_buffers(void) { pthread_key_create(&buffers, free); }

/* NULL if there is no memory for one. */
static unsigned char *get_buffer(void) {
    if (!my_buffer && i_serve_a_ring) {
        pthread_once(&buffers_once, make_buffers);
        my_buffer = malloc(REPLY_BUFFER_BYTES);
        pthread_setspecific(buffers, my_buffer);
    }
    return my_buffer;
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)

/* Not in the shared library's list of names, so it is weak: without it the threads end when the mount does. */
extern int fuse_uring_stop(struct fuse_session *session) __attribute__((weak));

static bool rings_offered(struct fuse_conn_info *conn) {
    return fuse_get_feature_flag(conn, FUSE_CAP_OVER_IO_URING);
}
static bool is_from_ring(fuse_req_t req) { return fuse_req_is_uring(req); }
static bool rings_known(void) { return true; }
static void unset_features(struct fuse_conn_info *conn, unsigned features) { fuse_unset_feature_flag(conn, features); }
/* Whether the kernel lets a file that is open for direct I/O be mapped and shared. */
static bool maps_allowed(struct fuse_conn_info *conn) {
    return fuse_set_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
}
static bool rings_stop(struct fuse_session *session) {
    if (!fuse_uring_stop)
        return false;
    fuse_uring_stop(session);
    return true;
}
/* Where the data of a reply must be put; NULL for a request that did not come over a ring, or has too little room. */
static unsigned char *payload_of(fuse_req_t req) {
    char *at = NULL;
    size_t size = 0;
    if (!fuse_req_is_uring(req) || fuse_req_get_payload(req, &at, &size, NULL) || size < REPLY_BUFFER_BYTES)
        return NULL;
    return (unsigned char *)at;
}

#else

static bool rings_offered(struct fuse_conn_info *conn) { (void)conn; return false; }
static bool is_from_ring(fuse_req_t req) { (void)req; return false; }
static bool rings_known(void) { return false; }
static void unset_features(struct fuse_conn_info *conn, unsigned features) { conn->want &= ~features; }
static bool maps_allowed(struct fuse_conn_info *conn) { (void)conn; return false; }
static bool rings_stop(struct fuse_session *session) { (void)session; return true; }
static unsigned char *payload_of(fuse_req_t req) { (void)req; return NULL; }

#endif

/* A lock that is held for some microseconds: a thread that finds it taken spins a little before it sleeps. */
static int init_short_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t kind;
    int failed;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    failed = pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
    return failed;
}

/* The session of a request. Each handler calls this first. */
static void *session_of(fuse_req_t req) {
    if (is_from_ring(req) && !i_serve_a_ring) {
        int before;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        i_serve_a_ring = true;
        keep_state();
    }
    return fuse_req_userdata(req);
}

#endif
