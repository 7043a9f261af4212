"""The engine's default for each of the four parts: page table, page bitmap, append streams, greedy cleaning."""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.parts cimport FOREIGN, LIVE, Cleaning, Engine, Extent, Mapping, Placement, Validity
from flashfs.engine.pool cimport (
    CAUSE_GC,
    CAUSE_WEAR,
    NONE,
    STATE_CLOSED,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_MAP,
    STREAM_META,
    STREAM_WEAR,
    STREAMS,
    BlockPool,
    cause_of,
)

from flashfs.errors import DeviceFullError

cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    AHEAD = 12               # entries looked ahead: a table of gigabytes misses the cache at every random page


cdef class PageTable(Mapping):
    """One 4-byte PPA an LPA, in DRAM. Lookup O(1)."""

    def __cinit__(self, Engine ssd):
        self.ssd = ssd
        self.table = <uint32_t*> malloc(ssd.lpas * sizeof(uint32_t))
        want_huge_pages(self.table, ssd.lpas * sizeof(uint32_t))
        if self.table == NULL:
            raise MemoryError
        memset(self.table, 0xFF, ssd.lpas * sizeof(uint32_t))

    def __dealloc__(self):
        free(self.table)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            ppas[i] = self.table[lpas[i]]
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(min(n, <uint32_t> AHEAD)):
            prefetch(self.table + lpas[i], 1)
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            olds[i] = self.table[lpas[i]]
            self.table[lpas[i]] = ppa + i
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            self.table[lpas[i]] = news[i]
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n and lpas[i + AHEAD] < self.ssd.lpas:
                prefetch(self.table + lpas[i + AHEAD], 1)
            answers[i] = LIVE if lpas[i] < self.ssd.lpas and self.table[lpas[i]] == ppas[i] else FOREIGN
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        memcpy(olds, self.table + lpa, n * sizeof(uint32_t))
        memset(self.table + lpa, 0xFF, n * sizeof(uint32_t))
        return 0

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        self.table[lpa] = ppa
        return 0

    def save(self):
        return {"map": <const uint8_t[:self.ssd.lpas * 4]> <uint8_t*> self.table}

    def load(self, sections):
        cdef const uint8_t[::1] saved = sections["map"]
        if <uint64_t> saved.shape[0] != <uint64_t> self.ssd.lpas * 4:
            raise ValueError(f"map section of {saved.shape[0]} bytes: {self.ssd.lpas * 4} are needed")
        memcpy(self.table, &saved[0], self.ssd.lpas * sizeof(uint32_t))
        self.require_range()

    cdef int require_range(self) except -1:
        cdef uint32_t lpa, pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        for lpa in range(self.ssd.lpas):
            if self.table[lpa] != NONE and self.table[lpa] >= pages:
                raise ValueError(f"LPA {lpa} is at PPA {self.table[lpa]}: the chip has {pages} pages")
        return 0

    def verify(self, bint whole=True):
        """Each mapped page is live, no two LPAs share one, and no other page is live: cleaning would carry it along,
        and a recovery then take it for the newest."""
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        cdef uint64_t* seen = <uint64_t*> calloc(pages // 64 + 1, 8)
        cdef uint32_t* of_block = <uint32_t*> malloc(self.ssd.nand.pages_per_block * sizeof(uint32_t))
        want_huge_pages(seen, pages // 8)
        try:
            if seen == NULL or of_block == NULL:
                raise MemoryError
            if self.names_what_lives(seen, of_block):
                return
            memset(seen, 0, (pages // 64 + 1) * 8)
            self.require_agreement(seen)
        finally:
            free(seen)
            free(of_block)

    cdef bint names_what_lives(self, uint64_t* seen, uint32_t* of_block) noexcept nogil:
        """Whether the table names each live page once, and nothing else. It is gone through once, and so is validity:
        a look at validity for each LPA would wait for memory each time. ``seen`` is a bit a page, all 0."""
        cdef uint32_t lpa, ppa, block, i, n, first
        cdef uint64_t mapped = 0, live = 0
        for lpa in range(self.ssd.lpas):
            if lpa + AHEAD < self.ssd.lpas and self.table[lpa + AHEAD] != NONE:
                prefetch(seen + (self.table[lpa + AHEAD] >> 6), 1)
            ppa = self.table[lpa]
            if ppa == NONE:
                continue
            if seen[ppa >> 6] >> (ppa & 63) & 1:
                return False
            seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
            mapped += 1
        for block in range(self.ssd.nand.blocks):
            n = self.ssd.validity.pages(block, of_block)
            first = block * self.ssd.nand.pages_per_block
            live += n
            for i in range(n):
                ppa = first + of_block[i]
                if not seen[ppa >> 6] >> (ppa & 63) & 1:
                    return False
        return live == mapped

    cdef int require_agreement(self, uint64_t* seen) except -1:
        """As ``verify``; ValueError names the first LPA that is not where it could be."""
        cdef uint32_t lpa, ppa, block
        cdef uint64_t mapped = 0, live = 0
        for lpa in range(self.ssd.lpas):
            ppa = self.table[lpa]
            if ppa == NONE:
                continue
            if seen[ppa >> 6] >> (ppa & 63) & 1 and self.shares_pages:
                continue
            if seen[ppa >> 6] >> (ppa & 63) & 1 or not self.ssd.validity.is_live(ppa):
                raise ValueError(f"LPA {lpa} is at PPA {ppa}, which is not live or another LPA's")
            seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
            mapped += 1
        for block in range(self.ssd.nand.blocks):
            live += self.ssd.validity.count(block)
        if live != mapped:
            what = "pages" if self.shares_pages else "LPAs"
            raise ValueError(f"{live} pages are live, and {mapped} {what} are mapped")
        return 0

    cdef int64_t pages_named(self) except -2 nogil:
        cdef uint32_t lpa, n = 0
        for lpa in range(self.ssd.lpas):
            n += self.table[lpa] != NONE
        return n

    def reset(self):
        memset(self.table, 0xFF, self.ssd.lpas * sizeof(uint32_t))

    def tables(self):
        return {"page_table": (self.ssd.lpas * 4, self.ssd.lpas * sizeof(uint32_t))}


cdef class PageBitmap(Validity):
    """PVB: a bit a page; BVC: a count a block; candidates in a list a count, so the greedy victim is found at once."""

    def __cinit__(self, Engine ssd):
        cdef uint32_t n = ssd.nand.blocks, i
        self.ssd = ssd
        self.pages_per_block = ssd.nand.pages_per_block
        self.shift = 0 if self.pages_per_block & (self.pages_per_block - 1) else lowest_bit(self.pages_per_block)
        self.words = (self.pages_per_block + 63) // 64  # a block begins a word, whatever its size
        self.n_words = <uint64_t> self.words * n
        self.bits = <uint64_t*> calloc(self.n_words, 8)
        want_huge_pages(self.bits, self.n_words * 8)
        self.bvc = <uint32_t*> calloc(n, 4)
        self.next_of = <uint32_t*> calloc(n, 4)
        self.prev_of = <uint32_t*> calloc(n, 4)
        self.listed = <uint8_t*> calloc(n, 1)
        self.first = <uint32_t*> malloc((self.pages_per_block + 1) * 4)
        if not (self.bits and self.bvc and self.next_of and self.prev_of and self.listed and self.first):
            raise MemoryError
        for i in range(self.pages_per_block + 1):
            self.first[i] = NONE

    def __dealloc__(self):
        free(self.bits)
        free(self.bvc)
        free(self.next_of)
        free(self.prev_of)
        free(self.listed)
        free(self.first)

    @cython.final
    cdef int link(self, uint32_t block, uint32_t count) noexcept nogil:
        cdef uint32_t head = self.first[count]
        self.next_of[block] = head
        self.prev_of[block] = NONE
        if head != NONE:
            self.prev_of[head] = block
        self.first[count] = block
        if count < self.lowest:
            self.lowest = count
        return 0

    @cython.final
    cdef int unlink(self, uint32_t block, uint32_t count) noexcept nogil:
        cdef uint32_t after = self.next_of[block], before = self.prev_of[block]
        if before == NONE:
            self.first[count] = after
        else:
            self.next_of[before] = after
        if after != NONE:
            self.prev_of[after] = before
        return 0

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        """A shift where the block is a power of two of pages, as nearly all are: a division costs ten times that."""
        return ppa >> self.shift if self.shift else ppa // self.pages_per_block

    cdef int live_run(self, uint32_t ppa, uint32_t n) noexcept nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block, i
        cdef uint64_t* word = self.bits + <uint64_t> block * self.words
        cdef uint64_t bit
        for i in range(page, page + n):
            bit = <uint64_t> 1 << (i & 63)
            n -= (word[i >> 6] & bit) != 0      # the count must stay that of the bits, whatever a damaged image says
            word[i >> 6] |= bit
        if self.listed[block]:
            self.unlink(block, self.bvc[block])
            self.link(block, self.bvc[block] + n)
        self.bvc[block] += n
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) noexcept nogil:
        cdef uint32_t i, block, page, count
        cdef uint64_t* word
        for i in range(n):
            if i + AHEAD < n and ppas[i + AHEAD] != NONE:
                block = self.block_of(ppas[i + AHEAD])
                prefetch(self.bvc + block, 1)
                prefetch(self.bits + <uint64_t> block * self.words, 1)
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            page = ppas[i] - block * self.pages_per_block
            word = self.bits + <uint64_t> block * self.words + (page >> 6)
            if not word[0] >> (page & 63) & 1:
                continue
            word[0] &= ~(<uint64_t> 1 << (page & 63))
            count = self.bvc[block]
            self.bvc[block] = count - 1
            if self.listed[block]:
                self.unlink(block, count)
                self.link(block, count - 1)
        return 0

    cdef bint is_live(self, uint32_t ppa) noexcept nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block
        return (self.bits[<uint64_t> block * self.words + (page >> 6)] >> (page & 63)) & 1

    cdef uint32_t count(self, uint32_t block) noexcept nogil:
        return self.bvc[block]

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) noexcept nogil:
        cdef uint32_t w, n = 0
        cdef uint64_t word
        for w in range(self.words):
            word = self.bits[<uint64_t> block * self.words + w]
            while word:
                out[n] = w * 64 + lowest_bit(word)
                word &= word - 1
                n += 1
        return n

    cdef int candidate(self, uint32_t block) noexcept nogil:
        if not self.listed[block]:
            self.listed[block] = 1
            self.link(block, self.bvc[block])
        return 0

    cdef int not_candidate(self, uint32_t block) noexcept nogil:
        if self.listed[block]:
            self.listed[block] = 0
            self.unlink(block, self.bvc[block])
        return 0

    cdef uint32_t fewest(self) noexcept nogil:
        while self.lowest <= self.pages_per_block:
            if self.first[self.lowest] != NONE:
                return self.first[self.lowest]
            self.lowest += 1
        self.lowest = self.pages_per_block
        return NONE

    @staticmethod
    def section_bytes(geometry):
        """{section: bytes} of a checkpoint."""
        return {"pvb": geometry.blocks * 8 * -(-geometry.pages_per_block // 64)}

    def save(self):
        return {"pvb": <const uint8_t[:self.n_words * 8]> <uint8_t*> self.bits}

    cdef int forget(self, uint32_t block) noexcept nogil:
        memset(self.bits + <uint64_t> block * self.words, 0, self.words * 8)
        self.bvc[block] = 0
        return 0

    def reset(self):
        """Nothing is live, nothing is a candidate."""
        cdef uint32_t i
        memset(self.bits, 0, self.n_words * 8)
        memset(self.bvc, 0, self.ssd.nand.blocks * 4)
        memset(self.listed, 0, self.ssd.nand.blocks)
        for i in range(self.pages_per_block + 1):
            self.first[i] = NONE

    def load(self, sections):
        cdef const uint8_t[::1] saved = sections["pvb"]
        cdef uint32_t block, w, count, odd = self.pages_per_block & 63
        self.reset()
        if <uint64_t> saved.shape[0] != self.n_words * 8:
            raise ValueError(f"pvb section of {saved.shape[0]} bytes: {self.n_words * 8} are needed")
        memcpy(self.bits, &saved[0], self.n_words * 8)
        for block in range(self.ssd.nand.blocks):
            count = 0
            for w in range(self.words):
                count += popcount64(self.bits[<uint64_t> block * self.words + w])
            self.bvc[block] = count
            if odd and self.bits[<uint64_t> (block + 1) * self.words - 1] >> odd:
                raise ValueError(f"block {block}: live pages beyond its {self.pages_per_block}")

    def tables(self):
        n = self.ssd.nand.blocks
        return {
            "pvb": (-(-n * self.pages_per_block // 8), self.n_words * 8),
            "bvc": (n * 2, n * 4),
            "victim_lists": (n * 8, n * 9 + (self.pages_per_block + 1) * 4),
        }

    def check(self):
        """The count of a block is the number of its bits; each candidate is in the list of its count, once."""
        problems = []
        cdef uint32_t block, w, count, at
        seen = {}
        for count in range(self.pages_per_block + 1):
            at = self.first[count]
            while at != NONE:
                if at in seen:
                    problems.append(f"block {at}: twice in the victim lists")
                    break
                seen[at] = count
                at = self.next_of[at]
        for block in range(self.ssd.nand.blocks):
            count = 0
            for w in range(self.words):
                count += popcount64(self.bits[<uint64_t> block * self.words + w])
            if count != self.bvc[block]:
                problems.append(f"block {block}: BVC {self.bvc[block]} but {count} bits in the PVB")
            if bool(self.listed[block]) != (block in seen):
                problems.append(f"block {block}: its place in the victim lists is wrong")
            elif block in seen and seen[block] != count:
                problems.append(f"block {block}: listed under {seen[block]} valid pages, has {count}")
        return problems


cdef class Streams(Placement):
    """Append: each stream keeps up to ``width`` open blocks, each on a die of its own, and hands out ``stripe`` pages
    of one before it turns to the next. A stream of width 1 fills a block at a time, and the next one is on the next
    die. The wear stream has one block, the most worn there is; that of translation pages has one too."""

    def __cinit__(self, Engine ssd, uint32_t width_host, uint32_t width_gc, uint32_t stripe, bint pads=False):
        cdef uint32_t i
        self.ssd = ssd
        self.width_host = width_host
        self.width_gc = width_gc
        self.stripe = stripe
        self.pads = pads
        self.width[STREAM_HOST] = width_host
        self.width[STREAM_GC] = width_gc
        self.width[STREAM_WEAR] = 1
        self.width[STREAM_META] = 0
        self.width[STREAM_MAP] = 1
        self.most = max(width_host, width_gc, 1)
        self.open_of = <uint32_t*> malloc(STREAMS * self.most * sizeof(uint32_t))
        if self.open_of == NULL:
            raise MemoryError
        for i in range(STREAMS * self.most):
            self.open_of[i] = NONE
        for i in range(STREAMS):
            self.turn[i] = 0
            self.left[i] = stripe

    def __dealloc__(self):
        free(self.open_of)

    cdef int make_ready(self, int stream) except -1 nogil:
        """The host's next block may be opened. Other streams open theirs out of the reserve that is cleaning's."""
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        if stream != STREAM_HOST:
            return 0
        if slot[0] != NONE and not self.ssd.pool.takes_more(slot[0], cause_of(stream), self.ssd.now_ns):
            self.shut(slot)
        return self.ssd.make_room() if slot[0] == NONE else 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        cdef uint32_t block, room
        if slot[0] != NONE and not self.ssd.pool.takes_more(slot[0], cause_of(stream), self.ssd.now_ns):
            self.shut(slot)
        if slot[0] == NONE:
            if stream != STREAM_HOST and self.width[stream] > 1 and not self.ssd.affords_more():
                slot = self.open_slot(stream)
                if slot[0] != NONE and not self.ssd.pool.takes_more(slot[0], cause_of(stream), self.ssd.now_ns):
                    self.shut(slot)
        if slot[0] == NONE:
            block = self.fresh(stream)
            slot = self.open_of + stream * self.most + self.turn[stream]
            slot[0] = block
        block = slot[0]
        room = self.ssd.pool.pages_per_block - self.ssd.pool.next_page[block]
        out.block = block
        out.page = self.ssd.pool.next_page[block]
        out.n = min(n, room)
        if self.width[stream] > 1:
            out.n = min(out.n, self.left[stream])
        return 0

    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil:
        """A block for the slot whose turn it is."""
        return <uint32_t> self.ssd.open_block(
            -1 if self.width[stream] < self.ssd.pool.dies else <int> self.turn[stream], stream, stream == STREAM_WEAR,
            cause_of(stream))

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        cdef uint32_t block = self.open_of[stream * self.most + self.turn[stream]]
        cdef uint32_t pages = self.ssd.pool.pages_per_block
        if block != NONE:
            pages -= self.ssd.pool.next_page[block]
        return min(pages, self.left[stream]) if self.width[stream] > 1 else pages

    cdef uint32_t* open_slot(self, int stream) noexcept nogil:
        """The stream's turn goes to a block that it has open; if there is none, it stays where it is."""
        cdef uint32_t i, turn = self.turn[stream]
        for i in range(self.width[stream]):
            if self.open_of[stream * self.most + (turn + i) % self.width[stream]] != NONE:
                self.turn[stream] = (turn + i) % self.width[stream]
                self.left[stream] = self.stripe
                break
        return self.open_of + stream * self.most + self.turn[stream]

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        cdef int stream = self.ssd.pool.stream[block]
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        if slot[0] == block and self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            self.shut(slot)
        if self.left[stream] > n:
            self.left[stream] -= n
        else:
            self.left[stream] = self.stripe
            self.turn[stream] = (self.turn[stream] + 1) % self.width[stream]
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        cdef uint32_t i
        for i in range(STREAMS * self.most):
            if self.open_of[i] == block:
                self.shut(self.open_of + i)
        return 0

    cdef int shut(self, uint32_t* slot) noexcept nogil:
        cdef uint32_t block = slot[0]
        slot[0] = NONE
        self.ssd.pool.close(block)
        self.ssd.validity.candidate(block)
        return 0

    cdef int finish(self, int stream) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most
        if slot[0] != NONE:
            self.shut(slot)
        return 0

    def attach(self):
        """Open blocks go back to their streams' free slots; one too many is closed."""
        cdef uint32_t block, i, stream
        cdef BlockPool pool = self.ssd.pool
        for i in range(STREAMS * self.most):
            self.open_of[i] = NONE
        for block in range(pool.blocks):
            if pool.state[block] != STATE_OPEN:
                if pool.state[block] == STATE_CLOSED:
                    self.ssd.validity.candidate(block)
                continue
            stream = pool.stream[block]
            for i in range(self.width[stream]):
                if self.open_of[stream * self.most + i] == NONE and pool.next_page[block] < pool.pages_per_block:
                    self.open_of[stream * self.most + i] = block
                    break
            else:
                pool.close(block)
                self.ssd.validity.candidate(block)


cdef class Greedy(Cleaning):
    """The closed block with the fewest live pages; its pages go to the GC stream (cold ones to the most worn block)."""

    def __cinit__(self, Engine ssd):
        self.ssd = ssd

    cdef int clean(self) except -1 nogil:
        cdef uint32_t victim = self.ssd.validity.fewest()
        if victim == NONE or self.ssd.validity.count(victim) >= self.ssd.nand.pages_per_block:
            with gil:
                raise DeviceFullError("no block has a dead page: the healthy blocks cannot hold what the host wrote")
        self.ssd.relocate(victim, STREAM_GC, CAUSE_GC)
        return 0

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        self.ssd.relocate(block, STREAM_WEAR if cause == CAUSE_WEAR else STREAM_GC, cause)
        if cause == CAUSE_WEAR:
            self.ssd.placement.finish(STREAM_WEAR)
        return 0
