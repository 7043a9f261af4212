/*
 * The page map of pagemap.c with what a replay owes besides, and no more: a lower bound for anything that keeps the
 * same promises. Each page has a record in the chip (epoch of its block, then an OOB of 20 bytes: sequence number, LPA,
 * when its block was opened) that is written when it is programmed, read back and judged when it is moved. A block is
 * programmed in order, and only if it is erased. Channels and dies have clocks, a write is acknowledged when its slot of
 * a write buffer is free, DEPTH requests are under way at a time, and each latency is counted in a histogram. Host and
 * cleaning write to one block a die in turn, STRIPE pages at a time. A bitmap says which pages live.
 *
 * It recovers nothing, wears evenly or not, logs no trims, makes no checkpoints, and knows neither faults nor idle
 * stretches of its dies: what it takes is what the rules, the OOB and the time of a page cost in C.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define NOT_CLOSED UINT16_MAX
#define CHUNK 256
#define DEPTH 16
#define STRIPE 4
#define BUFFER 64
#define PAGES_MOST 4096 /* of a block */
#define RECORD 24
#define FINE 7
#define BUCKETS ((64 - FINE) << FINE)

struct oob {
    uint64_t seq;
    uint32_t lpa, order, rest;
};

struct stream {
    uint32_t turn, left;
    uint32_t *block; /* the open one of each die, or NONE */
};

struct ssd {
    uint32_t blocks, pages_per_block, dies, channels, gc_free, free_n, order;
    int64_t read_ns, program_ns, erase_ns, transfer_ns;
    uint64_t programs, seq;
    uint32_t *l2p, *epoch, *opened, *free_blocks; /* free blocks: a stack a die */
    uint32_t *free_of;
    uint16_t *live, *closed, *next_page;
    uint64_t *bits;
    uint8_t *records, *buffered;
    int64_t *die_ns, *channel_ns;
    struct stream host, gc;
    uint32_t lpa_of[BUFFER], slot_at[2 * BUFFER], used;
    int64_t ready_ns[BUFFER], ends[DEPTH];
    uint64_t *histogram, seq_of[BUFFER];
};

void rules_free(struct ssd *ssd)
{
    free(ssd->l2p), free(ssd->epoch), free(ssd->opened), free(ssd->free_blocks), free(ssd->free_of);
    free(ssd->live), free(ssd->closed), free(ssd->next_page), free(ssd->bits), free(ssd->records);
    free(ssd->die_ns), free(ssd->channel_ns), free(ssd->host.block), free(ssd->gc.block), free(ssd->histogram);
    free(ssd);
}

/* `ns`: of a read, a program, an erase and a page's way over the channel. NULL if memory is short. */
struct ssd *rules_new(uint32_t lpas, uint32_t blocks, uint32_t pages_per_block, uint32_t dies, uint32_t channels,
                      uint32_t gc_free, const int64_t *ns)
{
    struct ssd *ssd = calloc(1, sizeof *ssd);
    uint32_t block, die, a_die = blocks / dies;

    ssd->blocks = a_die * dies, ssd->pages_per_block = pages_per_block, ssd->dies = dies, ssd->channels = channels;
    ssd->gc_free = gc_free, ssd->free_n = ssd->blocks;
    ssd->read_ns = ns[0], ssd->program_ns = ns[1], ssd->erase_ns = ns[2], ssd->transfer_ns = ns[3];
    ssd->l2p = malloc(lpas * sizeof *ssd->l2p);
    ssd->epoch = calloc(blocks, 4), ssd->opened = calloc(blocks, 4), ssd->free_blocks = malloc(blocks * 4);
    ssd->free_of = calloc(dies, 4);
    ssd->live = calloc(blocks, 2), ssd->closed = malloc(blocks * 2), ssd->next_page = calloc(blocks, 2);
    ssd->bits = calloc((size_t)blocks * ((pages_per_block + 63) / 64), 8);
    ssd->records = calloc((size_t)blocks * pages_per_block, RECORD);
    ssd->die_ns = calloc(dies, 8), ssd->channel_ns = calloc(channels, 8);
    ssd->host.block = malloc(dies * 4), ssd->gc.block = malloc(dies * 4), ssd->histogram = calloc(BUCKETS, 8);
    if (!ssd->l2p || !ssd->epoch || !ssd->opened || !ssd->free_blocks || !ssd->free_of || !ssd->live || !ssd->closed ||
        !ssd->next_page || !ssd->bits || !ssd->records || !ssd->die_ns || !ssd->channel_ns || !ssd->host.block ||
        !ssd->gc.block || !ssd->histogram) {
        rules_free(ssd);
        return NULL;
    }
    memset(ssd->l2p, 0xFF, lpas * sizeof *ssd->l2p);
    memset(ssd->closed, 0xFF, blocks * 2);
    memset(ssd->host.block, 0xFF, dies * 4);
    memset(ssd->gc.block, 0xFF, dies * 4);
    ssd->host.left = ssd->gc.left = STRIPE;
    for (block = 0; block < ssd->blocks; block++) {
        die = block % dies;
        ssd->free_blocks[die * a_die + ssd->free_of[die]++] = block;
    }
    return ssd;
}

static inline uint8_t *record_of(const struct ssd *ssd, uint32_t ppa) { return ssd->records + (size_t)ppa * RECORD; }

static inline uint64_t *word_of(const struct ssd *ssd, uint32_t block, uint32_t page)
{
    return ssd->bits + (size_t)block * ((ssd->pages_per_block + 63) / 64) + page / 64;
}

/* A free block for the die whose turn it is, or for the next that has one. */
static uint32_t open_block(struct ssd *ssd, struct stream *stream)
{
    uint32_t a_die = ssd->blocks / ssd->dies, die = stream->turn, block;

    while (!ssd->free_of[die])
        die = (die + 1) % ssd->dies;
    block = ssd->free_blocks[die * a_die + --ssd->free_of[die]];
    ssd->free_n--;
    ssd->epoch[block]++; /* it is erased when it is opened */
    ssd->next_page[block] = 0;
    ssd->opened[block] = ++ssd->order;
    ssd->die_ns[die] += ssd->erase_ns;
    return stream->block[stream->turn] = block;
}

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static inline void dies(struct ssd *ssd, uint32_t ppa)
{
    uint32_t block = ppa / ssd->pages_per_block, page = ppa % ssd->pages_per_block;

    *word_of(ssd, block, page) &= ~((uint64_t)1 << page % 64);
    ssd->live[block]--;
    if (ssd->closed[block] != NOT_CLOSED)
        ssd->closed[block]--;
}

/* Program and bind up to n pages where the stream's turn is; returns how many. `supersedes`: the old places die, one by
 * one. `end` gets the virtual time of the last. */
static uint32_t program(struct ssd *ssd, struct stream *stream, const struct oob *oobs, uint32_t n, int supersedes,
                        int64_t t_ns, int64_t *end)
{
    uint32_t block = stream->block[stream->turn], first, i, die, channel, ppa, old;
    uint8_t *record;
    int64_t start;

    if (block == NONE)
        block = open_block(ssd, stream);
    first = ssd->next_page[block];
    n = n < stream->left ? n : stream->left;
    n = n < ssd->pages_per_block - first ? n : ssd->pages_per_block - first;
    ppa = block * ssd->pages_per_block + first;
    record = record_of(ssd, ppa);
    for (i = 0; i < n; i++, record += RECORD) {
        if (!memcmp(record, &ssd->epoch[block], 4))
            abort(); /* not erased */
        memcpy(record, &ssd->epoch[block], 4);
        memcpy(record + 4, &oobs[i], 20);
        memcpy(record + 16, &ssd->opened[block], 4);
        *word_of(ssd, block, first + i) |= (uint64_t)1 << (first + i) % 64;
        old = ssd->l2p[oobs[i].lpa];
        if (supersedes && old != NONE)
            dies(ssd, old);
        ssd->l2p[oobs[i].lpa] = ppa + i;
    }
    ssd->live[block] += n;
    ssd->next_page[block] += n;
    ssd->programs += n;
    die = block % ssd->dies, channel = die % ssd->channels;
    start = later(t_ns, ssd->channel_ns[channel]);
    ssd->channel_ns[channel] = start + n * ssd->transfer_ns;
    start = later(start + ssd->transfer_ns, ssd->die_ns[die]);
    *end = ssd->die_ns[die] = start + n * ssd->program_ns;
    stream->left -= n;
    if (ssd->next_page[block] == ssd->pages_per_block) {
        ssd->closed[block] = ssd->live[block];
        stream->block[stream->turn] = NONE;
    }
    if (!stream->left || stream->block[stream->turn] == NONE) {
        stream->left = STRIPE;
        stream->turn = stream->turn + 1 == ssd->dies ? 0 : stream->turn + 1;
    }
    return n;
}

/* As in pagemap.c. */
static uint32_t fewest_live(const struct ssd *ssd)
{
    uint16_t least = NOT_CLOSED, here;
    uint32_t start, block, end, best = 0;

    for (start = 0; start < ssd->blocks; start += CHUNK) {
        end = start + CHUNK < ssd->blocks ? start + CHUNK : ssd->blocks;
        here = NOT_CLOSED;
        for (block = start; block < end; block++)
            here = ssd->closed[block] < here ? ssd->closed[block] : here;
        if (here < least) {
            least = here;
            best = start;
        }
    }
    while (ssd->closed[best] != least)
        best++;
    return best;
}

static void clean(struct ssd *ssd, int64_t t_ns)
{
    static struct oob oobs[PAGES_MOST];
    uint32_t victim = fewest_live(ssd), die = victim % ssd->dies, page, n = 0, done = 0, ppa;
    int64_t *channel = &ssd->channel_ns[die % ssd->channels], end;
    const uint8_t *record;
    uint64_t word;

    for (page = 0; page < ssd->pages_per_block; page += 64)
        for (word = *word_of(ssd, victim, page); word; word &= word - 1) {
            ppa = victim * ssd->pages_per_block + page + __builtin_ctzll(word);
            record = record_of(ssd, ppa);
            memcpy(&oobs[n], record + 4, 20);
            if (memcmp(record, &ssd->epoch[victim], 4) || ssd->l2p[oobs[n++].lpa] != ppa)
                abort(); /* not what was programmed */
        }
    end = ssd->die_ns[die] = later(t_ns, ssd->die_ns[die]) + n * ssd->read_ns;
    end = *channel = later(*channel, end) + ssd->transfer_ns;
    while (done < n)
        done += program(ssd, &ssd->gc, oobs + done, n - done, 0, end, &t_ns);
    memset(word_of(ssd, victim, 0), 0, (ssd->pages_per_block + 63) / 64 * 8);
    ssd->live[victim] = 0;
    ssd->closed[victim] = NOT_CLOSED;
    ssd->free_blocks[die * (ssd->blocks / ssd->dies) + ssd->free_of[die]++] = victim;
    ssd->free_n++;
}

static void drain(struct ssd *ssd, int64_t t_ns)
{
    struct oob oobs[BUFFER];
    uint32_t i, done = 0, ok;
    int64_t end;

    for (i = 0; i < ssd->used; i++)
        oobs[i] = (struct oob){.seq = ssd->seq_of[i], .lpa = ssd->lpa_of[i]};
    while (done < ssd->used) {
        while (ssd->free_n <= ssd->gc_free)
            clean(ssd, t_ns);
        ok = program(ssd, &ssd->host, oobs + done, ssd->used - done, 1, t_ns, &end);
        for (i = 0; i < ok; i++)
            ssd->ready_ns[done + i] = end;
        done += ok;
    }
    memset(ssd->slot_at, 0, sizeof ssd->slot_at);
    ssd->used = 0;
}

/* One page into the buffer; returns when it is acknowledged. */
static int64_t write_one(struct ssd *ssd, uint32_t lpa, int64_t t_ns)
{
    uint32_t at = lpa * 2654435761u >> 7 & (2 * BUFFER - 1);

    if (ssd->used == BUFFER)
        drain(ssd, t_ns);
    for (; ssd->slot_at[at]; at = (at + 1) & (2 * BUFFER - 1))
        if (ssd->lpa_of[ssd->slot_at[at] - 1] == lpa) {
            ssd->seq_of[ssd->slot_at[at] - 1] = ++ssd->seq;
            return later(t_ns, ssd->ready_ns[ssd->slot_at[at] - 1]);
        }
    ssd->lpa_of[ssd->used] = lpa;
    ssd->seq_of[ssd->used] = ++ssd->seq;
    ssd->slot_at[at] = ++ssd->used;
    return later(t_ns, ssd->ready_ns[ssd->used - 1]);
}

/* The latency's bucket: 1 / 128 of a power of two wide. */
static inline uint32_t bucket_of(uint64_t ns)
{
    int shift = ns >> FINE ? 63 - __builtin_clzll(ns) - FINE : 0;

    return ns >> FINE ? (uint32_t)(((shift + 1) << FINE) + ((ns >> shift) & ((1 << FINE) - 1))) : (uint32_t)ns;
}

/* Overwrite each of n pages, in order, DEPTH at a time. */
void rules_write(struct ssd *ssd, const uint32_t *lpas, uint32_t n)
{
    uint32_t i, at, below;
    int64_t t_ns, end;

    for (i = 0; i < n; i++) {
        t_ns = ssd->ends[0];
        end = write_one(ssd, lpas[i], t_ns);
        ssd->histogram[bucket_of(end - t_ns)]++;
        for (at = 0; (below = 2 * at + 1) < DEPTH; at = below) {
            below += below + 1 < DEPTH && ssd->ends[below + 1] < ssd->ends[below];
            if (ssd->ends[below] >= end)
                break;
            ssd->ends[at] = ssd->ends[below];
        }
        ssd->ends[at] = end;
    }
}

uint64_t rules_programs(const struct ssd *ssd) { return ssd->programs; }
