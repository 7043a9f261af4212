/* Stores to NVRAM: in words of 8 bytes, in ascending order of addresses, each atomic. A process that is killed in the
 * middle has stored a prefix of them. memcpy guarantees neither, and does store the end of a copy early; the string
 * instructions of the processor (rep movsq) may store long copies in any order too. */
#ifndef NANDIMG_NVRAM_H
#define NANDIMG_NVRAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define NVRAM_LINE 64     /* bytes; the unit in which accesses are charged */

static inline void nvram_copy(void *into, const void *from, size_t words)
{
    uint8_t *at = into;
    const uint8_t *source = from;
    uint64_t word;
#if defined(__SSE2__)
    __m128i pair; /* two words in one instruction: a kill comes between instructions, so a prefix is still stored */
    for (; words >= 2; words -= 2, at += 16, source += 16) {
        pair = _mm_loadu_si128((const __m128i *) source);
        __asm__ volatile("movups %1, %0" : "=m"(*(__m128i_u *) at) : "x"(pair));
    }
#endif
    for (; words; words--, at += 8, source += 8) {
        memcpy(&word, source, 8);
        *(volatile uint64_t *) at = word;
    }
}

/* The number of lines that n bytes at an offset touch; n must not be 0. */
static inline uint64_t nvram_lines(uint64_t offset, uint64_t n)
{
    return (offset + n - 1) / NVRAM_LINE - offset / NVRAM_LINE + 1;
}

#endif
