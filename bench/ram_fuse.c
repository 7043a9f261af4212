/* An empty file system in C: one file `disk` in memory under libfuse's low-level interface. What it does in a second is
 * the most that any server of one file can do on this machine, and what a mount's speed is compared to.
 *
 *     ram_fuse MOUNTPOINT MEBIBYTES      serves until it is unmounted; prints `ready`
 *
 *     cc -O2 -o ram_fuse ram_fuse.c $(pkg-config --cflags --libs fuse3)
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DISK = 2, REQUEST_BYTES = 1 << 20, UNDER_WAY = 64 };

static char *memory;
static size_t size;

static int describe(fuse_ino_t ino, struct stat *out) {
    memset(out, 0, sizeof *out);
    out->st_ino = ino;
    out->st_mode = ino == DISK ? S_IFREG | 0600 : S_IFDIR | 0700;
    out->st_nlink = 1;
    out->st_size = ino == DISK ? (off_t) size : 0;
    out->st_blksize = 4096;
    out->st_blocks = out->st_size / 512;
    return ino == DISK || ino == FUSE_ROOT_ID ? 0 : ENOENT;
}

static void on_init(void *data, struct fuse_conn_info *conn) {
    (void) data;
    conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
    conn->max_write = REQUEST_BYTES;
    conn->max_background = UNDER_WAY;
    conn->congestion_threshold = UNDER_WAY * 3 / 4;
    puts("ready");
    fflush(stdout);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {.ino = DISK, .attr_timeout = 1e6, .entry_timeout = 1e6};
    if (parent != FUSE_ROOT_ID || strcmp(name, "disk") != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    describe(DISK, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info) {
    struct stat out;
    (void) info;
    if (describe(ino, &out))
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_attr(req, &out, 1e6);
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what, struct fuse_file_info *info) {
    (void) attr;
    (void) what;
    on_getattr(req, ino, info);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info) {
    if (ino != DISK) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    info->direct_io = 1;
    fuse_reply_open(req, info);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t n, off_t at, struct fuse_file_info *info) {
    (void) ino;
    (void) info;
    if ((size_t) at >= size)
        n = 0;
    else if (n > size - (size_t) at)
        n = size - (size_t) at;
    fuse_reply_buf(req, memory + at, n);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t n, off_t at, struct fuse_file_info *info) {
    (void) ino;
    (void) info;
    if ((size_t) at >= size || n > size - (size_t) at) {
        fuse_reply_err(req, ENOSPC);
        return;
    }
    memcpy(memory + at, data, n);
    fuse_reply_write(req, n);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info) {
    (void) ino;
    (void) datasync;
    (void) info;
    fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init, .lookup = on_lookup, .getattr = on_getattr, .setattr = on_setattr,
    .open = on_open, .read = on_read, .write = on_write, .fsync = on_fsync,
};

/* From libfuse 3.18 on, if the kernel has it. */
static int over_io_uring(struct fuse_args *arguments) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
    return fuse_opt_add_arg(arguments, "-o") || fuse_opt_add_arg(arguments, "io_uring,io_uring_q_depth=32");
#else
    (void) arguments;
    return 0;
#endif
}

int main(int argc, char **argv) {
    struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *session;
    int failed = 1;

    if (argc != 3 || (size = strtoull(argv[2], NULL, 10) << 20) == 0) {
        fprintf(stderr, "usage: ram_fuse MOUNTPOINT MEBIBYTES\n");
        return 2;
    }
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || fuse_opt_add_arg(&arguments, "ram_fuse") || over_io_uring(&arguments)) {
        perror("ram_fuse");
        return 1;
    }
    session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (session != NULL && fuse_set_signal_handlers(session) == 0 && fuse_session_mount(session, argv[1]) == 0) {
        failed = fuse_session_loop(session) < 0;
        fuse_session_unmount(session);
        fuse_remove_signal_handlers(session);
    }
    if (session != NULL)
        fuse_session_destroy(session);
    fuse_opt_free_args(&arguments);
    return failed;
}
