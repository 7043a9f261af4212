/* For large tables with random access: with pages of 4 KiB, address translation takes as long as the memory access.
 * Best effort: a kernel without large pages refuses, and nothing else changes. */
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

/* Zero the memory from `at` on, which must be private and anonymous (such as malloc's). Whole pages of a large area are
 * given back to the kernel: they read as zeros, and take no memory until they are written to. */
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

/* How many bytes from `at` on are zeros, `bytes` at most. */
static inline size_t zeros_from(const void *at, size_t bytes) {
    const uint8_t *from = (const uint8_t *)at;
    uint64_t words[32], word, some;
    size_t n = 0, i;
    for (; bytes - n >= sizeof words; n += sizeof words) {
        memcpy(words, from + n, sizeof words);
        for (i = 0, some = 0; i < 32; i++)
            some |= words[i];
        if (some)
            break;
    }
    for (; bytes - n >= sizeof word; n += sizeof word) {
        memcpy(&word, from + n, sizeof word);
        if (word)
            break;
    }
    while (n < bytes && from[n] == 0)
        n++;
    return n;
}

/* Copy into memory that holds zeros: pieces of zeros are not written, and so take no memory. */
static inline void copy_into_zeros(void *into, const void *of, size_t bytes) {
    size_t at, n;
    for (at = 0; at < bytes; at += n) {
        n = bytes - at < 4096 ? bytes - at : 4096;
        if (zeros_from((const uint8_t *)of + at, n) < n)
            memcpy((uint8_t *)into + at, (const uint8_t *)of + at, n);
    }
}
