/* A mapped file may lose pages: access to a page that the host cannot read, or that was truncated, raises SIGBUS. When
 * data is copied out of the mapping, it becomes an error code. In a chip's tables, which are accessed everywhere, a
 * private page of zeros replaces the lost page, and `lost` makes the chip refuse further changes. Any other SIGBUS ends
 * the process as usual. */
#ifndef NANDIMG_GUARD_H
#define NANDIMG_GUARD_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32c.h"

static __thread sigjmp_buf guard_back;
static __thread volatile sig_atomic_t guard_on;

/* The tables of one open chip: a shared mapping from the start of a file. A free entry has no base. Entries are never
 * freed, because a handler may be reading them; a process has as many as it had chips open at once. */
struct guarded_tables {
    uint8_t *volatile base;
    size_t bytes;
    int fd, prot;
    volatile sig_atomic_t lost; /* a page was replaced by zeros: the tables are not the image's any more */
    struct guarded_tables *next;
};
static struct guarded_tables *volatile guard_tables;

/* NULL if there is no memory. Called with the GIL, as is guard_release. */
static struct guarded_tables *guard_watch(void *base, size_t bytes, int fd, int writable)
{
    struct guarded_tables *at = guard_tables;
    while (at && at->base) at = at->next;
    if (!at) {
        at = calloc(1, sizeof *at);
        if (!at) return NULL;
        at->next = guard_tables;
        guard_tables = at;
    }
    at->bytes = bytes;
    at->fd = fd;
    at->prot = PROT_READ | (writable ? PROT_WRITE : 0);
    at->lost = 0;
    at->base = base;
    return at;
}

static void guard_release(struct guarded_tables *at)
{
    if (at) at->base = NULL;
}

/* Put zeros in place of the page at the address, and of all pages after it if the file ends before it. 0 if the address
 * is not in any tables, or if that fails. Safe in a signal handler: mmap(2) and fstat(2) are single system calls. */
static int guard_replace(uint8_t *address)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE), from, bytes;
    struct stat file;
    struct guarded_tables *at = guard_tables;
    while (at && !(at->base && address >= at->base && address < at->base + at->bytes)) at = at->next;
    if (!at) return 0;
    from = (size_t) (address - at->base) / page * page;
    bytes = page;
    if (fstat(at->fd, &file) == 0 && (size_t) file.st_size <= from) bytes = at->bytes - from;
    at->lost = 1;
    return mmap(at->base + from, bytes, at->prot, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        != MAP_FAILED;
}

static void guard_caught(int signal_number, siginfo_t *what, void *context)
{
    int saved = errno;
    (void) context;
    if (guard_on) {
        guard_on = 0;
        siglongjmp(guard_back, 1);
    }
    if (guard_replace(what->si_addr)) {
        errno = saved;
        return;
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void guard_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = guard_caught;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* the jump leaves the handler without returning from it */
    sigaction(SIGBUS, &action, NULL);
}

/* 0, or EIO if the source cannot be read. */
static int guarded_copy(void *into, const void *from, size_t n)
{
    if (sigsetjmp(guard_back, 0)) return EIO;
    guard_on = 1;
    memcpy(into, from, n);
    guard_on = 0;
    return 0;
}

/* Whether the checksums of n mapped pages match their records (at byte 8 of each; a page programmed without data has 0
 * there and never matches). A page that cannot be read does not match. `ahead`: the page that is read next, or NULL. */
static int guarded_holds(const uint8_t *pages, size_t page_bytes, uint32_t n, const uint8_t *records, size_t stride,
                         const uint8_t *ahead)
{
    volatile int holds = 1;
    uint32_t i, sum;
    if (sigsetjmp(guard_back, 0)) return 0;
    guard_on = 1;
    for (i = 0; i < n && holds; i++) {
        memcpy(&sum, records + i * stride + 8, 4);
        holds = sum != 0 && crc32c_page_before(pages + i * page_bytes, page_bytes,
                                               i + 1 < n ? pages + (i + 1) * page_bytes : ahead) == sum;
    }
    guard_on = 0;
    return holds;
}

#endif
