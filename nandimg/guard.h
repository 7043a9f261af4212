/* A mapped file may lose pages: one that the host cannot read, or that somebody cut off the file, arrives as SIGBUS.
 * Where this process copies out of the data it becomes an error code. Under a chip's tables, which are loaded and stored
 * everywhere, a private page of zeros takes its place, and the chip, which is told, believes nothing and changes nothing
 * any more. A SIGBUS from anywhere else ends the process as ever. */
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

/* The tables of one open chip: a shared mapping from the start of a file. One that is free has no base. They are never
 * given back, because a handler may be looking at them; a process has as many as it had chips open at once. */
struct guarded_tables {
    uint8_t *volatile base;
    size_t bytes;
    int fd, prot;
    volatile sig_atomic_t lost; /* a page of it: what the tables say is not what the image says */
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

/* Whether the address is in tables, and zeros were put there: from the page on to the end, if the file ends before it.
 * For a signal handler: mmap(2) and fstat(2) are single system calls. */
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

/* Whether the sums of n mapped pages are those of their records (at byte 8 of each; 0: programmed without data, and
 * mapped nowhere). A page that cannot be read has no sum. `ahead`: the page that will be asked for next, or NULL. */
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
