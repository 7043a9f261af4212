/* The fingerprint of a page's content: XXH3, 128 bits, seed 0. */
#ifndef FLASHFS_FINGERPRINT_H
#define FLASHFS_FINGERPRINT_H

#define XXH_INLINE_ALL
#include <xxhash.h>

static inline void flashfs_fingerprint(const void *data, size_t n, uint64_t *out)
{
    XXH128_hash_t hash = XXH3_128bits(data, n);
    out[0] = hash.low64;
    out[1] = hash.high64;
}
#endif
