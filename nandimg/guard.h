/* Copying out of a mapped file that may fail: a page that the host cannot read, or that somebody cut off the file,
 * arrives as SIGBUS. Here it becomes an error code; a SIGBUS from anywhere else ends the process as ever. */
#ifndef NANDIMG_GUARD_H
#define NANDIMG_GUARD_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "crc32c.h"

static __thread sigjmp_buf guard_back;
static __thread volatile sig_atomic_t guard_on;

static void guard_caught(int signal_number)
{
    if (guard_on) {
        guard_on = 0;
        siglongjmp(guard_back, 1);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void guard_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = guard_caught;
    action.sa_flags = SA_NODEFER; /* the jump leaves the handler without returning from it */
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
 * mapped nowhere). A page that cannot be read has no sum. */
static int guarded_holds(const uint8_t *pages, size_t page_bytes, uint32_t n, const uint8_t *records, size_t stride)
{
    volatile int holds = 1;
    uint32_t i, sum;
    if (sigsetjmp(guard_back, 0)) return 0;
    guard_on = 1;
    for (i = 0; i < n && holds; i++) {
        memcpy(&sum, records + i * stride + 8, 4);
        holds = sum != 0 && crc32c_page(pages + i * page_bytes, page_bytes) == sum;
    }
    guard_on = 0;
    return holds;
}

#endif
