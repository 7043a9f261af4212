"""Superblocks, the blocks of equal offset on all dies, as the unit of allocation and of cleaning.

A superblock is opened with those of its blocks that are free, and without the others: a bad block, one of the metadata
log, one that wear levelling filled. So no block is stranded: a free block alone among blocks in use is a superblock of
one die, and the last to be taken. Blocks are erased one by one, each just before its first page, so the reserve for
cleaning is still counted in blocks.

Pages go to the dies in turn, ``stripe`` at a time. With a stripe of one page consecutive pages of a stream have
consecutive VPPNs (``Geometry.vppn``): they stripe over channels, then dies, then pages.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    NONE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_MAP,
    STREAMS_MOST,
    BlockPool,
)
from flashfs.engine.blocks.victims cimport EMPTIED, LISTED


cdef enum:
    LAG = 2                  # a block may be taken if it has at most so many erases more than the least worn one


cdef class Superblocks(Streams):
    """The streams of the host and of cleaning fill a superblock each, and so does one that a part registered with one
    block per die; the others work as in ``Streams``. ValueError if a width is not the number of dies."""

    def __cinit__(self, Engine ssd, uint32_t width_host, uint32_t width_gc, uint32_t stripe, bint pads=False):
        cdef int i
        if width_host != ssd.nand.dies or width_gc != ssd.nand.dies:
            raise ValueError(f"{width_host} and {width_gc} blocks of a superblock: it has one per die, {ssd.nand.dies}")
        self.map_together = True            # else they lie in many superblocks, and leave none whole
        self.dies = ssd.nand.dies
        self.superblocks = ssd.nand.blocks // ssd.nand.dies
        self.to_open = <uint8_t*> calloc(STREAMS_MOST * self.dies, 1)
        if self.to_open == NULL:
            raise MemoryError
        for i in range(STREAMS_MOST):
            self.offset[i] = NONE

    def __dealloc__(self):
        free(self.to_open)

    cdef int make_ready(self, int stream) except -1 nogil:
        """As Streams.make_ready, for the die whose turn it is; if no die has a turn, the superblock is full."""
        if stream == STREAM_HOST and self.is_striped(stream) and not self.turn_to(stream):
            return self.ssd.make_room()
        return Streams.make_ready(self, stream)

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        if self.is_striped(stream):
            self.turn_to(stream)
        return Streams.take(self, stream, lpas, n, out)

    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil:
        """The next block of the stream's superblock, or the first of another one."""
        cdef uint32_t die, block
        cdef int64_t opened
        if not self.is_striped(stream):
            return self.fresh_apart(stream)
        while self.turn_to(stream) or self.choose(stream):
            if not self.turn_to(stream):
                break
            die = self.turn[stream]
            if self.open_of[stream * self.most + die] != NONE:
                return self.open_of[stream * self.most + die]
            self.to_open[stream * self.dies + die] = 0
            opened = self.ssd.open_this(self.offset[stream] * self.dies + die, stream,
                                        self.ssd.pool.stream_cause[stream])
            if opened >= 0:
                return <uint32_t> opened
        # no block is free before the next sync: open_block brings one by a sync, or raises
        block = <uint32_t> self.ssd.open_block(-1, stream, False, self.ssd.pool.stream_cause[stream])
        self.offset[stream] = block // self.dies
        memset(self.to_open + stream * self.dies, 0, self.dies)
        self.turn[stream] = block % self.dies
        self.left[stream] = self.stripe
        return block

    cdef uint32_t fresh_apart(self, int stream) except? 0xFFFFFFFE nogil:
        """Opens a block for a stream of single blocks. Translation pages take free blocks of superblocks that are in
        use, unless these are worn more than others: blocks taken anywhere would leave no superblock whole."""
        cdef uint32_t offset, die, first, end, n, block, best = NONE, fewest = NONE, one
        cdef uint64_t wear, least = <uint64_t> -1, wear_best = 0
        cdef int64_t opened
        if stream == STREAM_MAP and self.dies > 1:
            first, end = 0, self.dies
            if self.map_die >= 0:
                first = <uint32_t> self.map_die
                end = first + 1
            for offset in range(self.superblocks):
                n = 0
                one = NONE
                for die in range(self.dies):
                    block = offset * self.dies + die
                    if self.ssd.pool.state[block] != STATE_FREE:
                        continue
                    n += 1
                    least = min(least, self.ssd.pool.nand.erases(block))
                    if one == NONE and first <= die < end:
                        one = block
                if one == NONE or n > fewest or self.is_filled(offset):
                    continue
                wear = self.ssd.pool.nand.erases(one)
                if n < fewest or wear < wear_best:
                    best, fewest, wear_best = one, n, wear
            if best != NONE and wear_best <= least + LAG:
                opened = self.ssd.open_this(best, stream, self.ssd.pool.stream_cause[stream])
                if opened >= 0:
                    return <uint32_t> opened
        return Streams.fresh(self, stream)

    cdef bint is_striped(self, int stream) noexcept nogil:
        """Whether the stream fills superblocks. Translation pages do not, on however many dies they are."""
        return self.dies > 1 and self.width[stream] == self.dies and stream != STREAM_MAP

    cdef bint turn_to(self, int stream) noexcept nogil:
        """Moves the turn to the next die on which the stream's superblock has a block, open or still to be opened;
        False if there is none."""
        cdef uint32_t i, die
        cdef uint8_t* wanted = self.to_open + stream * self.dies
        for i in range(self.dies):
            die = (self.turn[stream] + i) % self.dies
            if (self.open_of[stream * self.most + die] == NONE
                    and not (wanted[die] and self.ssd.pool.state[self.offset[stream] * self.dies + die] == STATE_FREE)):
                continue
            if i:
                self.turn[stream] = die
                self.left[stream] = self.stripe
            return True
        return False

    cdef bint is_filled(self, uint32_t offset) noexcept nogil:
        """Whether a stream is filling that superblock."""
        cdef int i
        for i in range(<int> self.streams_n):
            if self.offset[i] == offset and self.turn_to(i):
                return True
        return False

    cdef bint choose(self, int stream) noexcept nogil:
        """Sets the stream's superblock to the one with the most free blocks, the least worn of several. One that
        another stream is filling is taken only if there is no other. False if no block is free."""
        cdef uint32_t offset, die, block, free_n, best = NONE, most = 0, bad
        cdef uint64_t wear, least = 0
        cdef int others
        for others in range(2):
            for offset in range(self.superblocks):
                free_n = 0
                wear = 0
                for die in range(self.dies):
                    block = offset * self.dies + die
                    if self.ssd.pool.state[block] == STATE_FREE:
                        free_n += 1
                        wear += self.ssd.pool.nand.erases(block)
                if free_n == 0 or free_n < most:
                    continue
                if best != NONE and free_n == most and wear >= least:
                    continue
                if others == 0 and self.is_filled(offset):
                    continue
                best, most, least = offset, free_n, wear
            if best != NONE:
                break
        if best == NONE:
            return False
        self.offset[stream] = best
        bad = 0
        for die in range(self.dies):
            block = best * self.dies + die
            self.to_open[stream * self.dies + die] = self.ssd.pool.state[block] == STATE_FREE
            bad += self.ssd.pool.state[block] == STATE_BAD
        self.turn[stream] = 0
        self.left[stream] = self.stripe
        self.opened_n += 1
        self.whole_n += most + bad == self.dies
        return True

    def attach(self):
        """Continues a superblock that was open at an unmount with its open blocks, and with those still to be opened if
        no die had its second turn yet. If a stream has several, the one with the most open blocks is continued; blocks
        of the others are closed."""
        cdef BlockPool pool = self.ssd.pool
        cdef uint32_t block
        cdef int stream
        if self.streams_n != pool.streams_n:
            self.learn_streams()
        for block in range(self.streams_n * self.most):
            self.open_of[block] = NONE
        memset(self.to_open, 0, STREAMS_MOST * self.dies)
        for stream in range(<int> self.streams_n):
            self.offset[stream] = self.most_open(stream) if self.is_striped(stream) else NONE
            self.turn[stream] = 0
            self.left[stream] = self.stripe
        for block in range(pool.blocks):
            if pool.state[block] == STATE_CLOSED:
                self.ssd.close(block)
            elif pool.state[block] == STATE_OPEN and not self.goes_on(block):
                self.ssd.close(block)
        for stream in range(<int> self.streams_n):
            if self.offset[stream] != NONE:
                self.find_turn(stream)

    def goes_on(self, uint32_t block):
        """Whether an open block is filled further; if so, it is entered as open for its stream."""
        cdef int stream = self.ssd.pool.stream[block]
        cdef uint32_t at = stream * self.most
        if self.width[stream] == 0 or self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            return False
        if self.is_striped(stream):
            if self.offset[stream] != block // self.dies:
                return False
            at += block % self.dies
        if self.open_of[at] != NONE:
            return False
        self.open_of[at] = block
        return True

    def find_turn(self, int stream):
        """Sets the turn to the die with an unfinished stripe, else to the first die with the fewest stripes; also marks
        the blocks still to be opened."""
        cdef uint32_t die, page, fewest = NONE
        cdef uint32_t first = self.offset[stream] * self.dies
        open_pages = [self.ssd.pool.next_page[first + die] for die in range(self.dies)
                      if self.open_of[stream * self.most + die] != NONE]
        for die in range(self.dies):
            page = 0
            if self.open_of[stream * self.most + die] != NONE:
                page = self.ssd.pool.next_page[first + die]
            elif max(open_pages, default=0) <= self.stripe and self.ssd.pool.state[first + die] == STATE_FREE:
                self.to_open[stream * self.dies + die] = 1
            else:
                continue
            if page % self.stripe or fewest == NONE or page // self.stripe < fewest:
                self.turn[stream] = die
                self.left[stream] = self.stripe - page % self.stripe
                fewest = page // self.stripe
            if page % self.stripe:
                break

    def most_open(self, int stream):
        """The superblock with the most blocks open for the stream, or NONE."""
        cdef uint32_t offset, die, block, n, most = 0, best = NONE
        for offset in range(self.superblocks):
            n = 0
            for die in range(self.dies):
                block = offset * self.dies + die
                n += self.ssd.pool.state[block] == STATE_OPEN and self.ssd.pool.stream[block] == stream
            if n > most:
                best, most = offset, n
        return best


cdef class SuperblockGreedy(Greedy):
    """Cleans the superblock whose cleanable blocks have the smallest share of live pages; these move together, sorted
    by LPA. Its other blocks (open, of the metadata log, or of a spared stream) are left alone."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.victims = <uint32_t*> malloc(ssd.nand.dies * sizeof(uint32_t))
        if self.victims == NULL:
            raise MemoryError
        ssd.carry(ssd.nand.dies * ssd.nand.pages_per_block)

    def __dealloc__(self):
        free(self.victims)

    cdef int clean(self) except -1 nogil:
        cdef uint32_t offset, block
        cdef uint64_t live = 0, pages
        block = self.ssd.victims.fewest()
        if block != NONE and self.ssd.victims.listed[block] == EMPTIED:
            return self.ssd.relocate(block, STREAM_GC, CAUSE_GC)  # no live pages: no need to clean its superblock
        offset = self.fewest()
        if offset == NONE:
            return Greedy.clean(self)  # no superblock has a dead page: Greedy has the fallbacks, and the error
        pages = self.count(offset, &live)
        if self.goes_alone(block, live, pages - live):
            return self.ssd.relocate(block, STREAM_GC, CAUSE_GC)
        return self.empty(offset)

    cdef bint goes_alone(self, uint32_t block, uint64_t moves, uint64_t gain) noexcept nogil:
        """Whether to clean this block rather than a superblock that gains so many pages for so many moves: a block of
        translation pages, which was opened alone, and in which few live. It would wait for its superblock's others."""
        cdef uint64_t live
        if block == NONE or self.ssd.pool.stream[block] != STREAM_MAP or not self.may_go(block):
            return False
        live = self.ssd.victims.valid[block]
        return live < self.ssd.pool.pages_per_block and live * gain < moves * (self.ssd.pool.pages_per_block - live)

    cdef int empty(self, uint32_t offset) except -1 nogil:
        """Cleans that superblock; or only its emptiest block, if the free blocks cannot hold all of its live pages:
        then streams other than the host's and cleaning's have taken blocks of the reserve, and return them later."""
        cdef uint32_t die, block, n = 0, least = NONE
        cdef uint64_t live = 0
        for die in range(self.ssd.pool.dies):
            block = offset * self.ssd.pool.dies + die
            if self.may_go(block):
                self.victims[n] = block
                n += 1
                live += self.ssd.victims.valid[block]
                if least == NONE or self.ssd.victims.valid[block] < self.ssd.victims.valid[least]:
                    least = block
        if least != NONE and live > <uint64_t> (self.ssd.pool.free_n + self.ssd.pool.pending_n) * (
                self.ssd.pool.pages_per_block):
            return self.ssd.relocate(least, STREAM_GC, CAUSE_GC)
        self.ssd.relocate_blocks(self.victims, n, STREAM_GC, CAUSE_GC)
        self.cleaned_n += 1
        return 0

    cdef bint may_go(self, uint32_t block) noexcept nogil:
        return self.ssd.victims.listed[block] == LISTED or self.ssd.victims.listed[block] == EMPTIED

    cdef uint32_t fewest(self) noexcept nogil:
        """The victim; NONE if no cleanable block has a dead page. Looks at each block, but only once per superblock
        cleaned."""
        cdef uint32_t offset, best = NONE
        cdef uint64_t live, pages, live_best = 0, pages_best = 0
        for offset in range(self.ssd.pool.blocks // self.ssd.pool.dies):
            pages = self.count(offset, &live)
            if live == pages:
                continue
            if (best == NONE or live * pages_best < live_best * pages
                    or (live * pages_best == live_best * pages and pages > pages_best)):
                best, live_best, pages_best = offset, live, pages
        return best

    cdef uint64_t count(self, uint32_t offset, uint64_t* live) noexcept nogil:
        """How many pages the cleanable blocks of that superblock have; ``live`` gets how many of them live."""
        cdef uint32_t block
        cdef uint64_t closed = 0
        live[0] = 0
        for block in range(offset * self.ssd.pool.dies, (offset + 1) * self.ssd.pool.dies):
            if self.may_go(block):
                closed += 1
                live[0] += self.ssd.victims.valid[block]
        return closed * self.ssd.pool.pages_per_block
