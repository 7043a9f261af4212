/* CRC-32C (Castagnoli, reflected, init and final xor 0xFFFFFFFF), with the CPU's instruction if it has one.
 *
 * A page's data is summed in four lanes (SPEC.md, "checksums"): each quarter on its own, then the four sums as
 * sixteen little-endian bytes. The instruction takes three cycles but one can start each cycle, so four
 * independent chains run about three times as fast as one.
 */
#ifndef NANDIMG_CRC32C_H
#define NANDIMG_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "huge.h"

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_LONG ((size_t)1 << 20)     /* from so many bytes on, runs of zeros are looked for, */
#define CRC32C_ZEROS ((size_t)1 << 16)    /* and runs of so many are not read twice */

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_power[64]; /* x to the power of 8 * 2^k, modulo the polynomial: 2^k bytes of zeros */
static int crc32c_hw = 0;

/* The product of two polynomials modulo that of the sum; the highest bit is the coefficient of x^0. */
static uint32_t crc32c_product(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b >> 1) ^ (CRC32C_POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

static void crc32c_setup(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (CRC32C_POLYNOMIAL & (0u - (c & 1)));
        crc32c_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc32c_table[k][i] = (crc32c_table[k - 1][i] >> 8) ^ crc32c_table[0][crc32c_table[k - 1][i] & 0xFF];
    crc32c_power[0] = 1u << 23;
    for (int k = 1; k < 64; k++) crc32c_power[k] = crc32c_product(crc32c_power[k - 1], crc32c_power[k - 1]);
#if defined(__x86_64__)
    __builtin_cpu_init();
    crc32c_hw = __builtin_cpu_supports("sse4.2") ? 1 : 0;
#endif
}

static uint32_t crc32c_soft(uint32_t c, const uint8_t *p, size_t n)
{
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, p, 8); /* for little-endian hosts only */
        w ^= c;
        c = crc32c_table[7][w & 0xFF] ^ crc32c_table[6][(w >> 8) & 0xFF] ^ crc32c_table[5][(w >> 16) & 0xFF] ^
            crc32c_table[4][(w >> 24) & 0xFF] ^ crc32c_table[3][(w >> 32) & 0xFF] ^
            crc32c_table[2][(w >> 40) & 0xFF] ^ crc32c_table[1][(w >> 48) & 0xFF] ^ crc32c_table[0][w >> 56];
        p += 8;
        n -= 8;
    }
    while (n--) c = (c >> 8) ^ crc32c_table[0][(c ^ *p++) & 0xFF];
    return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t a = c, w;
    while (n >= 8) {
        memcpy(&w, p, 8);
        a = __builtin_ia32_crc32di(a, w);
        p += 8;
        n -= 8;
    }
    c = (uint32_t)a;
    if (n >= 4) {
        uint32_t v;
        memcpy(&v, p, 4);
        c = __builtin_ia32_crc32si(c, v);
        p += 4;
        n -= 4;
    }
    while (n--) c = __builtin_ia32_crc32qi(c, *p++);
    return c;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse_after(uint64_t head, const uint8_t *p, size_t n)
{
    return crc32c_sse((uint32_t)__builtin_ia32_crc32di(0xFFFFFFFFu, head), p, n);
}

/* `ahead`: what will be summed next, prefetched a line at a time: the four short streams of a page end before the
 * processor's own prefetcher detects them. NULL: nothing. */
__attribute__((target("sse4.2"))) static void crc32c_sse4(uint32_t out[4], const uint8_t *p, size_t quarter,
                                                          const uint8_t *ahead)
{
    uint64_t a = 0xFFFFFFFFu, b = a, c = a, d = a, w;
    const uint8_t *q = p + quarter, *r = q + quarter, *s = r + quarter;
    for (size_t i = 0; i < quarter; i += 8) {
        if (i % 64 == 0 && ahead)
            for (int k = 0; k < 4; k++) __builtin_prefetch(ahead + k * quarter + i);
        memcpy(&w, p + i, 8);
        a = __builtin_ia32_crc32di(a, w);
        memcpy(&w, q + i, 8);
        b = __builtin_ia32_crc32di(b, w);
        memcpy(&w, r + i, 8);
        c = __builtin_ia32_crc32di(c, w);
        memcpy(&w, s + i, 8);
        d = __builtin_ia32_crc32di(d, w);
    }
    out[0] = (uint32_t)a ^ 0xFFFFFFFFu;
    out[1] = (uint32_t)b ^ 0xFFFFFFFFu;
    out[2] = (uint32_t)c ^ 0xFFFFFFFFu;
    out[3] = (uint32_t)d ^ 0xFFFFFFFFu;
}
#endif

static inline uint32_t crc32c_run(uint32_t c, const uint8_t *p, size_t n)
{
#if defined(__x86_64__)
    if (crc32c_hw) return crc32c_sse(c, p, n);
#endif
    return crc32c_soft(c, p, n);
}

/* What n bytes of zeros make of the register c. */
static uint32_t crc32c_after_zeros(uint32_t c, size_t n)
{
    for (int k = 0; n; n >>= 1, k++)
        if (n & 1) c = crc32c_product(crc32c_power[k], c);
    return c;
}

/* As crc32c_run, of a table that may be mostly zeros: to look for those takes a third of the time. */
static uint32_t crc32c_long(uint32_t c, const uint8_t *p, size_t n)
{
    while (n) {
        size_t zeros = zeros_from(p, n), some = n < CRC32C_ZEROS ? n : CRC32C_ZEROS;
        if (zeros >= CRC32C_ZEROS) {
            c = crc32c_after_zeros(c, zeros);
            some = zeros;
        } else {
            c = crc32c_run(c, p, some);
        }
        p += some;
        n -= some;
    }
    return c;
}

/* The plain sum of n bytes, continued from `seed` (0 to begin). */
static inline uint32_t crc32c(uint32_t seed, const void *data, size_t n)
{
    uint32_t c = seed ^ 0xFFFFFFFFu;
    c = n < CRC32C_LONG ? crc32c_run(c, (const uint8_t *)data, n) : crc32c_long(c, (const uint8_t *)data, n);
    return c ^ 0xFFFFFFFFu;
}

/* The plain sum of eight bytes (as a little-endian number) and n more: a page record in one call. */
static inline uint32_t crc32c_after(uint64_t head, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (crc32c_hw) return crc32c_sse_after(head, (const uint8_t *)data, n) ^ 0xFFFFFFFFu;
#endif
    return crc32c(crc32c(0, &head, 8), data, n);
}

/* The four-lane sum of a page's data; n is a multiple of 32. 0 marks a page without data, so 0xFFFFFFFF stands for it.
 * `ahead`: the page that comes next, or NULL. */
static inline uint32_t crc32c_page_before(const void *data, size_t n, const void *ahead)
{
    uint32_t lanes[4], sum;
    size_t quarter = n / 4;
#if defined(__x86_64__)
    if (crc32c_hw) {
        crc32c_sse4(lanes, (const uint8_t *)data, quarter, (const uint8_t *)ahead);
    } else
#endif
        for (int k = 0; k < 4; k++) lanes[k] = crc32c(0, (const uint8_t *)data + k * quarter, quarter);
    sum = crc32c(0, lanes, 16);
    return sum ? sum : 0xFFFFFFFFu;
}

static inline uint32_t crc32c_page(const void *data, size_t n) { return crc32c_page_before(data, n, NULL); }

#endif
