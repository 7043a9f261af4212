/*
 * A bare page map with greedy cleaning: what the engine is measured against. Nothing but the arrays that the textbook
 * needs (L2P, P2L, live pages per block), one open block for the host and one for cleaning, no rules, no OOB, no time,
 * no counters but two. The victim is found by a scan of 16-bit counts, which the compiler turns into vector code: on
 * chips of this size that is faster than lists by count, which cost three cache misses an overwrite.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define NOT_CLOSED UINT16_MAX
#define CHUNK 256

struct pagemap {
    uint32_t blocks, pages_per_block, gc_free, free_n;
    uint32_t host_block, host_page, gc_block, gc_page;
    uint64_t programs, erases;
    uint32_t *l2p, *p2l, *free_blocks;
    uint16_t *live;   /* of each block */
    uint16_t *closed; /* the same, or NOT_CLOSED for a block that is free or open */
};

void pagemap_free(struct pagemap *map)
{
    free(map->l2p);
    free(map->p2l);
    free(map->free_blocks);
    free(map->live);
    free(map->closed);
    free(map);
}

/* Cleans when no more than gc_free blocks are free. NULL if memory is short. */
struct pagemap *pagemap_new(uint32_t lpas, uint32_t blocks, uint32_t pages_per_block, uint32_t gc_free)
{
    struct pagemap *map = calloc(1, sizeof *map);

    map->blocks = blocks;
    map->pages_per_block = pages_per_block;
    map->gc_free = gc_free;
    map->l2p = malloc(lpas * sizeof *map->l2p);
    map->p2l = malloc((size_t)blocks * pages_per_block * sizeof *map->p2l);
    map->free_blocks = malloc(blocks * sizeof *map->free_blocks);
    map->live = calloc(blocks, sizeof *map->live);
    map->closed = malloc(blocks * sizeof *map->closed);
    if (!map->l2p || !map->p2l || !map->free_blocks || !map->live || !map->closed) {
        pagemap_free(map);
        return NULL;
    }
    memset(map->l2p, 0xFF, lpas * sizeof *map->l2p);
    memset(map->p2l, 0xFF, (size_t)blocks * pages_per_block * sizeof *map->p2l);
    memset(map->closed, 0xFF, blocks * sizeof *map->closed);
    while (map->free_n < blocks) {
        map->free_blocks[map->free_n] = blocks - 1 - map->free_n;
        map->free_n++;
    }
    map->host_block = map->free_blocks[--map->free_n];
    map->gc_block = map->free_blocks[--map->free_n];
    return map;
}

static inline void program(struct pagemap *map, uint32_t *block, uint32_t *page, uint32_t lpa)
{
    uint32_t ppa;

    if (*page == map->pages_per_block) {
        map->closed[*block] = map->live[*block];
        *block = map->free_blocks[--map->free_n];
        *page = 0;
    }
    ppa = *block * map->pages_per_block + (*page)++;
    map->p2l[ppa] = lpa;
    map->l2p[lpa] = ppa;
    map->live[*block]++;
    map->programs++;
}

/* The least count of each CHUNK blocks by vector code, then one chunk block by block. */
static uint32_t fewest_live(const struct pagemap *map)
{
    uint16_t least = NOT_CLOSED, here;
    uint32_t start, block, end, best = 0;

    for (start = 0; start < map->blocks; start += CHUNK) {
        end = start + CHUNK < map->blocks ? start + CHUNK : map->blocks;
        here = NOT_CLOSED;
        for (block = start; block < end; block++)
            here = map->closed[block] < here ? map->closed[block] : here;
        if (here < least) {
            least = here;
            best = start;
        }
    }
    while (map->closed[best] != least)
        best++;
    return best;
}

static void clean(struct pagemap *map)
{
    uint32_t block = fewest_live(map), first = block * map->pages_per_block, page, lpa;

    for (page = 0; page < map->pages_per_block; page++) {
        lpa = map->p2l[first + page];
        if (map->l2p[lpa] == first + page)
            program(map, &map->gc_block, &map->gc_page, lpa);
    }
    map->live[block] = 0;
    map->closed[block] = NOT_CLOSED;
    map->free_blocks[map->free_n++] = block;
    map->erases++;
}

/* Overwrite each of n pages, in order. */
void pagemap_write(struct pagemap *map, const uint32_t *lpas, uint32_t n)
{
    uint32_t i, old, block;

    for (i = 0; i < n; i++) {
        while (map->free_n <= map->gc_free)
            clean(map);
        old = map->l2p[lpas[i]];
        if (old != NONE) {
            block = old / map->pages_per_block;
            map->live[block]--;
            if (map->closed[block] != NOT_CLOSED)
                map->closed[block]--;
        }
        program(map, &map->host_block, &map->host_page, lpas[i]);
    }
}

uint64_t pagemap_programs(const struct pagemap *map) { return map->programs; }
uint64_t pagemap_erases(const struct pagemap *map) { return map->erases; }
