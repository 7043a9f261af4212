/* Stores to NVRAM: in words of 8 bytes, in rising order of addresses, each whole. A process that is killed in the middle
 * has stored a prefix of them; memcpy promises neither, and in fact stores the end of a copy early. */
#ifndef NANDIMG_NVRAM_H
#define NANDIMG_NVRAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NVRAM_LINE 64     /* bytes that the clock charges for at a time */
#define NVRAM_REPEAT 32   /* words from which on the string instruction, which takes a while to begin, is faster */

static inline void nvram_copy(void *into, const void *from, size_t words)
{
    volatile uint64_t *at = into;
    const uint8_t *source = from;
    uint64_t word;
    size_t i;
#if defined(__x86_64__)
    if (words >= NVRAM_REPEAT) {
        __asm__ volatile("rep movsq" : "+D"(into), "+S"(from), "+c"(words) : : "memory");
        return;
    }
#endif
    for (i = 0; i < words; i++) {
        memcpy(&word, source + 8 * i, 8);
        at[i] = word;
    }
}

/* Lines that n bytes at an offset touch; n is not 0. */
static inline uint64_t nvram_lines(uint64_t offset, uint64_t n)
{
    return (offset + n - 1) / NVRAM_LINE - offset / NVRAM_LINE + 1;
}

#endif
