/* XXH3 a second time, for processors with AVX2. The library picks its vectors when it is compiled; with these a page
 * takes 150 ns instead of 280, and packages are built for processors that may lack them. So this file is compiled for
 * AVX2, and who calls it has asked the processor (content_hash.h). */
#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t flashfs_xxh3_avx2(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}
#endif
