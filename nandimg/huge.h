/* Large tables that are gone through at random: with pages of 4 KiB, the processor spends as long on finding out where
 * a byte is as on fetching it. Best effort: a kernel without large pages says no, and nothing else changes. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_WORTH ((size_t)4 << 20)

static inline void want_huge_pages(void *at, size_t bytes) {
    const uintptr_t page = 4096;
    uintptr_t first = ((uintptr_t)at + page - 1) & ~(page - 1), end = ((uintptr_t)at + bytes) & ~(page - 1);
    if (at && bytes >= HUGE_WORTH && end > first)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

/* Zeros from `at` on, in memory of this process alone (malloc's, say, and no file's). Of much of it whole pages are given
 * back: they read as zeros, and take no memory until they are written to. */
static inline void zero_memory(void *at, size_t bytes) {
    const uintptr_t page = 4096;
    uintptr_t first = ((uintptr_t)at + page - 1) & ~(page - 1), end = ((uintptr_t)at + bytes) & ~(page - 1);
    if (bytes < HUGE_WORTH || madvise((void *)first, end - first, MADV_DONTNEED) != 0) {
        memset(at, 0, bytes);
        return;
    }
    memset(at, 0, first - (uintptr_t)at);
    memset((void *)end, 0, (uintptr_t)at + bytes - end);
}

/* A copy into memory that holds zeros: what is zeros in the source too is not written to, and so takes no memory. */
static inline void copy_into_zeros(void *into, const void *of, size_t bytes) {
    static const uint8_t zeros[4096];
    size_t at, n;
    for (at = 0; at < bytes; at += n) {
        n = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;
        if (memcmp((const uint8_t *)of + at, zeros, n) != 0)
            memcpy((uint8_t *)into + at, (const uint8_t *)of + at, n);
    }
}
