"""The engine's default for each of the four parts: page table, page bitmap, append streams, greedy cleaning."""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity, list_bits
from flashfs.engine.blocks.pool cimport (
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
)
from flashfs.engine.blocks.victims cimport UNLISTED, gained, lost_one

import numpy


cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)
    void zero_memory(void* at, size_t bytes)
    void copy_into_zeros(void* into, const void* of, size_t bytes)

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    PASSED = 4096            # entries that a pass over the table takes before it looks for the next one that is mapped
    ENTRIES_AT_ONCE = 32     # tested together by a pass over the table, so that the compiler can use SIMD
    AHEAD = 12               # entries prefetched ahead: a table of gigabytes misses the cache at every random page


TABLE = "table"     #: the section of the page table: as in DRAM
OLDER_TABLE = "map"  #: of an image without flashfs.checkpoint-fills: the PPAs themselves


cdef class PageTable(Mapping):
    """One 4-byte PPA per LPA, in DRAM. Lookup O(1).

    An entry has the bits of its PPA inverted, so that zero says that nothing is mapped: of a large device, what nobody
    wrote to takes no memory of the host, and no page of a checkpoint."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.ssd = ssd
        self.table = <uint32_t*> calloc(ssd.lpas, sizeof(uint32_t))
        if self.table == NULL:
            raise MemoryError
        want_huge_pages(self.table, ssd.lpas * sizeof(uint32_t))

    def __dealloc__(self):
        free(self.table)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            ppas[i] = self.at(lpas[i])
        return 0

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        prefetch(self.table + lpa, 1)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(min(n, <uint32_t> AHEAD)):
            prefetch(self.table + lpas[i], 1)
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            olds[i] = self.at(lpas[i])
            self.put(lpas[i], ppa + i)
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            self.put(lpas[i], news[i])
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n and lpas[i + AHEAD] < self.ssd.lpas:
                prefetch(self.table + lpas[i + AHEAD], 1)
            answers[i] = LIVE if lpas[i] < self.ssd.lpas and self.at(lpas[i]) == ppas[i] else FOREIGN
            if answers[i] == FOREIGN and self.ssd.validity.late and lpas[i] < self.ssd.lpas:
                answers[i] = SUPERSEDED
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            olds[i] = self.at(lpa + i)
        memset(self.table + lpa, 0, n * sizeof(uint32_t))
        return 0

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        self.put(lpa, ppa)
        return 0

    def save(self):
        if self.ssd.meta.fill_least == 0:
            return {OLDER_TABLE: (~array_u32(self.table, self.ssd.lpas)).tobytes()}
        return {TABLE: <const uint8_t[:self.ssd.lpas * 4]> <uint8_t*> self.table}

    def places(self):
        """The table itself, so that no second copy is needed: at 2 TiB it has 2.1 GB."""
        return dict.fromkeys((TABLE, OLDER_TABLE), memoryview(<uint8_t[:self.ssd.lpas * 4]> <uint8_t*> self.table))

    def load(self, sections):
        name = TABLE if TABLE in sections else OLDER_TABLE
        cdef const uint8_t[::1] saved = sections[name]
        cdef uint64_t size = <uint64_t> self.ssd.lpas * 4
        if <uint64_t> saved.shape[0] != size:
            raise ValueError(f"{name} section of {saved.shape[0]} bytes: {size} are needed")
        if &saved[0] != <uint8_t*> self.table:
            zero_memory(self.table, size)
            copy_into_zeros(self.table, &saved[0], size)
        if name == OLDER_TABLE:
            entries = array_u32(self.table, self.ssd.lpas)
            numpy.invert(entries, out=entries)
        self.require_range()

    cdef int require_range(self) except -1:
        cdef uint32_t lpa = self.next_mapped(0), pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        while lpa < self.ssd.lpas:
            if self.at(lpa) >= pages:
                raise ValueError(f"LPA {lpa} is at PPA {self.at(lpa)}: the chip has {pages} pages")
            lpa = self.next_mapped(lpa + 1)
        return 0

    @cython.final
    cdef uint32_t next_mapped(self, uint32_t lpa) noexcept nogil:
        """The first LPA from ``lpa`` on that is mapped, or the number of LPAs."""
        return PageTable.next_named(self, lpa, self.ssd.lpas)

    def verify(self, bint whole=True):
        """Each mapped page is live, no two LPAs share one, and no other page is live. One pass over the table, and one
        over validity; only if they disagree, validity is asked about each LPA, and ValueError names the first that does
        not fit. If validity is in flash, only counts are compared unless ``whole``."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa = self.next_mapped(0), n
        cdef bint apart = True
        if self.ssd.validity.in_flash and not whole:
            wrong = agreement.fault_of_counts(self.table, self.ssd.lpas, NONE)
            if wrong is not None:
                raise ValueError(wrong)
            return
        while lpa < self.ssd.lpas and apart:
            n = min(<uint32_t> PASSED, self.ssd.lpas - lpa)
            apart = agreement.enter_all(self.table + lpa, n, NONE)
            lpa = self.next_mapped(lpa + n)
        if apart and agreement.is_whole():
            return
        agreement.clear()
        lpa = self.next_mapped(0)
        while lpa < self.ssd.lpas:
            agreement.require(lpa, self.at(lpa))
            lpa = self.next_mapped(lpa + 1)
        wrong = agreement.fault_of_all(0)
        if wrong is not None:
            raise ValueError(wrong)

    cdef int64_t pages_named(self) except -2 nogil:
        cdef uint32_t lpa = self.next_mapped(0), n = 0, end
        while lpa < self.ssd.lpas:
            end = lpa + min(<uint32_t> PASSED, self.ssd.lpas - lpa)
            for lpa in range(lpa, end):
                n += self.table[lpa] != 0
            lpa = self.next_mapped(end)
        return n

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        cdef uint32_t i, some = 0
        while lpa < end and end - lpa >= <uint32_t> ENTRIES_AT_ONCE and self.table[lpa] == 0:
            for i in range(ENTRIES_AT_ONCE):
                some |= self.table[lpa + i]
            if some:
                break
            lpa += ENTRIES_AT_ONCE
        while lpa < end and self.table[lpa] == 0:
            lpa += 1
        return lpa

    def named(self):
        """How many LPAs hold something."""
        return PageTable.pages_named(self)  # a subclass whose LPAs share pages counts those in pages_named

    def reset(self):
        zero_memory(self.table, <uint64_t> self.ssd.lpas * 4)

    def tables(self):
        return {"page_table": (self.ssd.lpas * 4, self.ssd.lpas * sizeof(uint32_t))}


cdef class PageBitmap(Validity):
    """PVB: a bit per page, in DRAM."""

    def __cinit__(self, Engine ssd):
        cdef uint32_t n = ssd.nand.blocks
        self.by_map = True
        self.pages_per_block = ssd.nand.pages_per_block
        self.shift = 0 if self.pages_per_block & (self.pages_per_block - 1) else lowest_bit(self.pages_per_block)
        self.words_a_block = (self.pages_per_block + 63) // 64  # a block begins a word, whatever its size
        self.n_words = <uint64_t> self.words_a_block * n
        self.bits = <uint64_t*> calloc(self.n_words, 8)
        want_huge_pages(self.bits, self.n_words * 8)
        if self.bits == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.bits)

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        """A shift if the pages per block are a power of two, as on nearly all chips: a division costs ten times that.
        """
        return ppa >> self.shift if self.shift else ppa // self.pages_per_block

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block
        cdef uint64_t* word = self.bits + <uint64_t> block * self.words_a_block
        cdef uint64_t some
        cdef uint32_t end = page + n, part
        while page < end:
            part = min(end - page, 64 - (page & 63))
            some = (~<uint64_t> 0 >> (64 - part)) << (page & 63)
            n -= popcount64(word[page >> 6] & some)  # the count must match the bits, even on a damaged image
            word[page >> 6] |= some
            page += part
        return gained(self.victims, block, n)

    @cython.final
    cdef int come(self, uint32_t ppa) noexcept nogil:
        """Prefetches what ``dead`` needs for the page."""
        cdef uint32_t block = self.block_of(ppa)
        if ppa != NONE:
            prefetch(self.victims.valid + block, 1)
            prefetch(self.victims.next_of + block, 1)
            prefetch(self.victims.prev_of + block, 1)
            prefetch(self.bits + (<uint64_t> block * self.words_a_block
                                  + ((ppa - block * self.pages_per_block) >> 6)), 1)
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i, block, page
        cdef uint64_t* word
        for i in range(min(n, <uint32_t> AHEAD)):
            self.come(ppas[i])
        for i in range(n):
            if i + AHEAD < n:
                self.come(ppas[i + AHEAD])
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            page = ppas[i] - block * self.pages_per_block
            word = self.bits + <uint64_t> block * self.words_a_block + (page >> 6)
            if not word[0] >> (page & 63) & 1:
                continue
            word[0] &= ~(<uint64_t> 1 << (page & 63))
            lost_one(self.victims, block)
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block
        return (self.bits[<uint64_t> block * self.words_a_block + (page >> 6)] >> (page & 63)) & 1

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        memcpy(words, self.bits + <uint64_t> block * self.words_a_block, self.words_a_block * 8)
        return 0

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        return list_bits(self.bits + <uint64_t> block * self.words_a_block, self.words_a_block, out)

    @staticmethod
    def section_bytes(geometry):
        """{section: bytes} of a checkpoint."""
        return {"pvb": geometry.blocks * 8 * -(-geometry.pages_per_block // 64)}

    def save(self):
        return {"pvb": <const uint8_t[:self.n_words * 8]> <uint8_t*> self.bits}

    def counts_from_pages(self, sections, ends):
        pages = numpy.arange(64 * self.words_a_block) < numpy.asarray(ends)[:, None]
        return {"pvb": numpy.packbits(pages, axis=1, bitorder="little").tobytes()}

    def take_named(self, bits):
        self.load({"pvb": bits.view(numpy.uint8)})
        return ""

    cdef int forget(self, uint32_t block) except -1 nogil:
        memset(self.bits + <uint64_t> block * self.words_a_block, 0, self.words_a_block * 8)
        return self.victims.set_count(block, 0)

    def reset(self):
        """Nothing is live, nothing is a candidate."""
        memset(self.bits, 0, self.n_words * 8)
        self.victims.clear()

    def load(self, sections):
        cdef const uint8_t[::1] saved = sections["pvb"]
        cdef uint32_t block, odd = self.pages_per_block & 63
        self.reset()
        if <uint64_t> saved.shape[0] != self.n_words * 8:
            raise ValueError(f"pvb section of {saved.shape[0]} bytes: {self.n_words * 8} are needed")
        memcpy(self.bits, &saved[0], self.n_words * 8)
        for block in range(self.ssd.nand.blocks):
            self.victims.set_count(block, self.bits_of(block))
            if odd and self.bits[<uint64_t> (block + 1) * self.words_a_block - 1] >> odd:
                raise ValueError(f"block {block}: live pages beyond its {self.pages_per_block}")

    @cython.final
    cdef uint32_t bits_of(self, uint32_t block) noexcept nogil:
        cdef uint32_t w, n = 0
        for w in range(self.words_a_block):
            n += popcount64(self.bits[<uint64_t> block * self.words_a_block + w])
        return n

    def tables(self):
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.pages_per_block
        return {"pvb": ((pages + 7) // 8, self.n_words * 8)}

    def check(self):
        """The count of a block is the number of its bits."""
        cdef uint32_t block
        return [f"block {block}: BVC {self.victims.valid[block]} but {self.bits_of(block)} bits in the PVB"
                for block in range(self.ssd.nand.blocks) if self.bits_of(block) != self.victims.valid[block]]


cdef enum:
    MAP_STRIPE = 4           # translation pages on one die, at most, where they are spread over dies


cdef class Streams(Placement):
    """Append: each stream keeps up to ``width`` open blocks, each on a die of its own, and hands out ``stripe`` pages
    of one before it turns to the next. A stream of width 1 fills a block at a time, and the next one is on the next
    die. The wear stream has one block, the most worn there is; that of translation pages has one too, or more
    (``spread_map``); a stream that a part registered has as many as the part asked for."""

    def __cinit__(self, Engine ssd, uint32_t width_host, uint32_t width_gc, uint32_t stripe, bint pads=False):
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
        self.learn_streams()

    cdef int learn_streams(self) except -1:
        """Allocates room for the open blocks of all streams registered so far: a part may register one after placement
        is built."""
        cdef uint32_t i, n = self.ssd.pool.streams_n
        cdef uint32_t* room
        self.most = max(self.width_host, self.width_gc, self.width[STREAM_MAP])
        for i in range(STREAMS, n):
            self.width[i] = self.ssd.pool.stream_width[i]
            self.most = max(self.most, self.width[i])
        room = <uint32_t*> realloc(self.open_of, n * self.most * sizeof(uint32_t))
        if room == NULL:
            raise MemoryError
        self.open_of = room
        self.streams_n = n
        for i in range(n * self.most):
            self.open_of[i] = NONE
        for i in range(n):
            self.turn[i] = 0
            self.left[i] = self.stripe_of(i)
        return 0

    def __dealloc__(self):
        free(self.open_of)

    def spread_map(self, uint32_t width):
        """Gives translation pages ``width`` open blocks, filled in turn, so that pages read at once are spread over the
        dies."""
        self.width[STREAM_MAP] = width
        self.learn_streams()

    cdef uint32_t stripe_of(self, int stream) noexcept nogil:
        """Pages on one die before the turn goes on. Translation pages are few: a large stripe would put them on few
        dies."""
        return min(self.stripe, <uint32_t> MAP_STRIPE) if stream == STREAM_MAP else self.stripe

    cdef int make_ready(self, int stream) except -1 nogil:
        """Makes room for the host's next block. Other streams open theirs out of the reserve for cleaning."""
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        if stream != STREAM_HOST:
            return 0
        if slot[0] != NONE and not self.takes_more(slot[0], stream):
            self.shut(slot)
        return self.ssd.make_room() if slot[0] == NONE else 0

    cdef bint takes_more(self, uint32_t block, int stream) except -1 nogil:
        """Whether the open block takes more: its next page is proved blank."""
        return self.ssd.pool.takes_more(block, self.ssd.pool.stream_cause[stream], self.ssd.now_ns)

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        cdef uint32_t block, room
        if slot[0] != NONE and not self.takes_more(slot[0], stream):
            self.shut(slot)
        if slot[0] == NONE:
            if stream != STREAM_HOST and self.width[stream] > 1 and not self.ssd.affords_more():
                slot = self.open_slot(stream)
                if slot[0] != NONE and not self.takes_more(slot[0], stream):
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
        """Opens a block for the slot whose turn it is. Blocks of translation pages are few, so their dies are as far
        apart as possible."""
        cdef int die = -1
        if self.width[stream] == self.ssd.pool.dies or (stream == STREAM_MAP and self.width[stream] > 1):
            die = <int> (self.turn[stream] * self.ssd.pool.dies // self.width[stream])
        return <uint32_t> self.ssd.open_block(die, stream, stream == STREAM_WEAR, self.ssd.pool.stream_cause[stream])

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        cdef uint32_t block = self.open_of[stream * self.most + self.turn[stream]]
        cdef uint32_t pages = self.ssd.pool.pages_per_block
        if block != NONE:
            pages -= self.ssd.pool.next_page[block]
        return min(pages, self.left[stream]) if self.width[stream] > 1 else pages

    cdef uint32_t* open_slot(self, int stream) noexcept nogil:
        """Moves the stream's turn to an open block; if there is none, the turn stays."""
        cdef uint32_t i, turn = self.turn[stream]
        for i in range(self.width[stream]):
            if self.open_of[stream * self.most + (turn + i) % self.width[stream]] != NONE:
                self.turn[stream] = (turn + i) % self.width[stream]
                self.left[stream] = self.stripe_of(stream)
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
            self.left[stream] = self.stripe_of(stream)
            self.turn[stream] = (self.turn[stream] + 1) % self.width[stream]
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        cdef uint32_t i
        for i in range(self.streams_n * self.most):
            if self.open_of[i] == block:
                self.shut(self.open_of + i)
        return 0

    cdef int shut(self, uint32_t* slot) noexcept nogil:
        cdef uint32_t block = slot[0]
        slot[0] = NONE
        return self.ssd.close(block)

    cdef int finish(self, int stream) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most
        if slot[0] != NONE:
            self.shut(slot)
        return 0

    def attach(self):
        """Open blocks go back to their streams' free slots; one too many is closed."""
        cdef uint32_t block, i, stream
        cdef BlockPool pool = self.ssd.pool
        if self.streams_n != pool.streams_n:
            self.learn_streams()
        for i in range(self.streams_n * self.most):
            self.open_of[i] = NONE
        for block in range(pool.blocks):
            if pool.state[block] != STATE_OPEN:
                if pool.state[block] == STATE_CLOSED:
                    self.ssd.close(block)
                continue
            stream = pool.stream[block]
            for i in range(self.width[stream]):
                if self.open_of[stream * self.most + i] == NONE and pool.next_page[block] < pool.pages_per_block:
                    self.open_of[stream * self.most + i] = block
                    break
            else:
                self.ssd.close(block)


cdef class Greedy(Cleaning):
    """Cleans the closed block with the fewest live pages; its pages go to the GC stream (cold ones to the most worn
    block). Blocks of the streams ``spares`` are erased once nothing in them lives. They are cleaned only if nothing
    else can be: each may hold one page that is never written again."""

    def __cinit__(self, Engine ssd, *_, spares=()):
        self.ssd = ssd
        for stream in spares:
            self.spared |= <uint64_t> 1 << <int> stream

    cdef bint cleans(self, int stream) noexcept nogil:
        return not self.spared >> stream & 1

    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil:
        """The block that cleaning takes next; NONE if it may take none."""
        return self.ssd.victims.fewest()

    cdef int clean(self) except -1 nogil:
        cdef uint32_t victim = self.victim(), waiting = NONE
        if self.spared and victim != NONE and self.ssd.pool.free_n <= 1:
            waiting = self.ssd.victims.fewest_waiting()
        if waiting != NONE and self.ssd.victims.valid[waiting] < self.ssd.victims.valid[victim]:
            victim = waiting                # no free block is left, so waiting is no option
        if victim == NONE or self.ssd.victims.valid[victim] >= self.ssd.nand.pages_per_block:
            if not self.ssd.validity.late and self.ssd.mapping.release_superseded():
                return 0
            if self.ssd.validity.late:
                victim = self.oldest()
            else:
                victim = self.ssd.victims.fewest_waiting() if self.spared else NONE
        if victim == NONE or (self.ssd.victims.valid[victim] >= self.ssd.nand.pages_per_block
                              and not self.ssd.validity.late):
            with gil:
                raise self.ssd.full("no block has a dead page")
        self.ssd.relocate(victim, STREAM_GC, CAUSE_GC)
        return 0

    cdef uint32_t oldest(self) noexcept nogil:
        """The candidate that was opened first. A late store may count every candidate as full."""
        cdef uint32_t block, best = NONE
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.pool.state[block] == STATE_CLOSED and self.ssd.victims.listed[block] != UNLISTED
                    and (best == NONE or self.ssd.pool.order[block] < self.ssd.pool.order[best])):
                best = block
        return best

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        if self.ssd.pool.state[block] == STATE_OPEN:
            self.ssd.placement.failed(block)  # filled no further
        self.ssd.relocate(block, STREAM_WEAR if cause == CAUSE_WEAR else STREAM_GC, cause)
        if cause == CAUSE_WEAR:
            self.ssd.placement.finish(STREAM_WEAR)
        return 0
