/* The hash functions of the page maps by hashing.
 *
 * MD5 of one short message (RFC 1321), as two 64-bit halves of the digest read as a little-endian 128-bit number.
 * One block, no state: the hasher needs the digest of eight bytes and nothing else. */
#ifndef FLASHFS_HASHES_H
#define FLASHFS_HASHES_H

#include <stdint.h>
#include <string.h>

static const uint32_t md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8,
    0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87,
    0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039,
    0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
    0xeb86d391};
static const uint8_t md5_turns[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

static void md5_of_u64(uint64_t message, uint64_t out[2])
{
    uint32_t m[16] = {0}, a = 0x67452301, b = 0xefcdab89, c = 0x98badcfe, d = 0x10325476;
    m[0] = (uint32_t)message;
    m[1] = (uint32_t)(message >> 32);
    m[2] = 0x80;
    m[14] = 64; /* bits */
    for (int i = 0; i < 64; i++) {
        uint32_t f, g, turn = md5_turns[(i / 16) * 4 + i % 4], t;
        if (i < 16) {
            f = (b & c) | (~b & d);
            g = i;
        } else if (i < 32) {
            f = (d & b) | (~d & c);
            g = (5 * i + 1) % 16;
        } else if (i < 48) {
            f = b ^ c ^ d;
            g = (3 * i + 5) % 16;
        } else {
            f = c ^ (b | ~d);
            g = (7 * i) % 16;
        }
        t = a + f + md5_sines[i] + m[g];
        a = d;
        d = c;
        c = b;
        b += (t << turn) | (t >> (32 - turn));
    }
    a += 0x67452301;
    b += 0xefcdab89;
    c += 0x98badcfe;
    d += 0x10325476;
    out[0] = a | (uint64_t)b << 32;
    out[1] = c | (uint64_t)d << 32;
}

/* A 128-bit mix for uses that do not need MD5: two rounds of a 64-bit finaliser over different seeds. */
static uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void mix_of_u64(uint64_t message, uint64_t out[2])
{
    out[0] = mix64(message + 0x9e3779b97f4a7c15ull);
    out[1] = mix64(out[0] + 0x9e3779b97f4a7c15ull * 2);
}

/* (digest >> hid) mod n, over all 128 bits */
static uint32_t shifted_mod(const uint64_t digest[2], int hid, uint32_t n)
{
    unsigned __int128 x = ((unsigned __int128)digest[1] << 64 | digest[0]) >> hid;
    uint64_t low = (uint64_t)x, rest = (uint64_t)(x >> 64) % n;
    rest = (rest << 32 | low >> 32) % n; /* long division by 32-bit digits: a 128-bit one takes three times as long */
    return (uint32_t)((rest << 32 | (uint32_t)low) % n);
}

/* The same for hid 1 to `most` (63 at most) into out[hid], each from the next: one shift less adds one bit. */
static void shifted_mods(const uint64_t digest[2], int most, uint32_t n, uint32_t *out)
{
    uint64_t rest = out[most] = shifted_mod(digest, most, n);
    for (int hid = most - 1; hid > 0; hid--) {
        rest = 2 * rest + (digest[0] >> hid & 1);
        rest = rest >= n ? rest - n : rest;
        out[hid] = (uint32_t)rest;
    }
}

/* x mod n by a product, exact while x n is below 2^64; inverse is 2^64 / n, rounded up, or 0 to divide. */
static uint32_t short_mod(uint64_t x, uint32_t n, uint64_t inverse)
{
    if (!inverse) return (uint32_t)(x % n);
    return (uint32_t)(x - (uint64_t)((unsigned __int128)x * inverse >> 64) * n);
}

/* The first of n places for a digest, and the step to the next: the high half of a product scales a number to n without
 * a division. A step without a common factor with n visits all n places before it repeats one. */
static void first_and_step(const uint64_t digest[2], uint32_t n, const uint32_t *primes, uint32_t *first, uint32_t *step)
{
    *first = (uint32_t)((unsigned __int128)digest[0] * n >> 64);
    *step = n > 1 ? 1 + (uint32_t)((unsigned __int128)digest[1] * (n - 1) >> 64) : 0;
    for (const uint32_t *prime = primes; *prime;)
        if (*step % *prime == 0) {
            *step = *step + 1 == n ? 1 : *step + 1;
            prime = primes;
        } else
            prime++;
}

#endif
