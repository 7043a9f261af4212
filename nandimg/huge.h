/* Large tables that are gone through at random: with pages of 4 KiB, the processor spends as long on finding out where
 * a byte is as on fetching it. Best effort: a kernel without large pages says no, and nothing else changes. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE_WORTH ((size_t)4 << 20)

static inline void want_huge_pages(void *at, size_t bytes) {
    const uintptr_t page = 4096;
    uintptr_t first = ((uintptr_t)at + page - 1) & ~(page - 1), end = ((uintptr_t)at + bytes) & ~(page - 1);
    if (at && bytes >= HUGE_WORTH && end > first)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}
