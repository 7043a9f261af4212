/* The content hash of recorded writes: XXH3, 64 bits, seed 0, with AVX2 if this processor has it. */
#ifndef FLASHFS_CONTENT_HASH_H
#define FLASHFS_CONTENT_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__) && defined(__GNUC__)
uint64_t flashfs_xxh3_avx2(const void *data, size_t n);
static int xxh3_wide = 0;

static void xxh3_setup(void)
{
    __builtin_cpu_init();
    xxh3_wide = __builtin_cpu_supports("avx2") ? 1 : 0;
}

static inline uint64_t xxh3(const void *data, size_t n)
{
    return xxh3_wide ? flashfs_xxh3_avx2(data, n) : XXH3_64bits(data, n);
}
#else
static void xxh3_setup(void) {}

static inline uint64_t xxh3(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}
#endif

#endif
