"""FAST's log blocks and merges (Lee et al., ACM TECS 6(3), 2007, section 3).

Every write goes to a log block. One is *sequential*: it belongs to one logical block, starts with a write to its page 0
and continues for as long as writes follow in order. The others are *random*: any LPA, in the order of writes. When the
most log blocks are in use, one is merged.

*Switch merge*: a sequential log block with all pages becomes the data block. *Partial merge*: one that has the first
pages gets the others, then becomes the data block. *Full merge*: the pages of a logical block, wherever they lie, are
copied to a free block, which becomes its data block. A random log block is reclaimed by a full merge of each logical
block that has pages in it; the one that was opened first is next.

A page's place in a data block is its offset, and a chip programs pages in order: where a logical block has a hole, an
empty page is programmed.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs._core cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_WEAR,
    NONE,
    STATE_CLOSED,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_WEAR,
    Cleaning,
    Engine,
    Extent,
    Placement,
)
from flashfs.ftl.fast.mapping cimport FastMapping

cdef enum:
    TRIES = 4                # blocks that may go bad in one merge before it gives up


cdef class LogBlocks(Placement):
    """Places the pages of the host and of merges; ``most`` log blocks, the sequential one among them."""

    def __cinit__(self, Engine ssd, FastMapping map not None, int stream, uint32_t most):
        self.ssd = ssd
        self.map = map
        self.stream = stream
        self.most = most
        self.sequential = self.random = self.target = NONE
        self.closed = <uint32_t*> malloc(ssd.nand.blocks * 4)
        if self.closed == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.closed)

    cdef uint32_t in_use(self) noexcept nogil:
        return self.closed_n + (self.sequential != NONE) + (self.random != NONE)

    # --- places

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t i = 1
        if self.target != NONE:
            return self.take_target(lpas, n, out)
        if stream != STREAM_HOST:
            return self.take_random(stream, lpas, n, out)
        if lpas[0] % self.map.per_block == 0:
            self.begin_sequential(lpas[0] // self.map.per_block)
        if self.is_next(lpas[0]):
            while i < n and lpas[i] == lpas[0] + i and lpas[i] % self.map.per_block:
                i += 1
            out.block = self.sequential
            out.page = lpas[0] % self.map.per_block
            out.n = i
            return 0
        while i < n and lpas[i] % self.map.per_block and not self.is_next(lpas[i]):
            i += 1
        return self.take_random(stream, lpas, i, out)

    cdef int take_target(self, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """Place pages in the merge's block: each at its offset; a hole is filled with empty pages."""
        cdef uint32_t at = lpas[0] % self.map.per_block, i = 1
        out.n = 0
        if self.broken or lpas[0] // self.map.per_block != self.target_of:
            return 0
        if self.ssd.pool.next_page[self.target] < at:
            self.ssd.pad(self.target, at - self.ssd.pool.next_page[self.target])
        if self.broken or self.ssd.pool.next_page[self.target] != at:
            return 0
        while i < n and lpas[i] == lpas[0] + i:
            i += 1
        out.block = self.target
        out.page = at
        out.n = i
        return 0

    cdef bint is_next(self, uint32_t lpa) except -1 nogil:
        """Whether that page is the next one of the sequential log block."""
        return (self.sequential != NONE and lpa // self.map.per_block == self.of
                and self.ssd.pool.state[self.sequential] == STATE_OPEN
                and lpa % self.map.per_block == self.ssd.pool.next_page[self.sequential]
                and self.ssd.pool.takes_more(self.sequential, CAUSE_HOST, self.ssd.now_ns))

    cdef int begin_sequential(self, uint32_t lbn) except -1 nogil:
        """Merge the sequential log block, and open a new one."""
        self.merges.merge_sequential(CAUSE_GC)
        self.find_room()
        if self.sequential == NONE:
            self.sequential = <uint32_t> self.ssd.open_block(-1, self.stream, False, CAUSE_HOST)
            self.of = lbn
        return 0

    cdef int take_random(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """Place pages in the open random log block. Pages that a merge could not read go there too, marked as such."""
        if self.random != NONE and not self.ssd.pool.takes_more(self.random, CAUSE_HOST, self.ssd.now_ns):
            self.shut(self.random)
        if self.random == NONE and stream == STREAM_HOST:
            self.find_room()
        if self.random == NONE:
            self.random = <uint32_t> self.ssd.open_block(-1, STREAM_HOST, False, CAUSE_HOST)
        out.block = self.random
        out.page = self.ssd.pool.next_page[self.random]
        out.n = min(n, self.map.per_block - out.page)
        return 0

    cdef int find_room(self) except -1 nogil:
        """Merge until one more log block may be opened."""
        while self.in_use() >= self.most and self.closed_n:
            self.merges.reclaim(self.closed[0], CAUSE_GC)
        return self.ssd.make_room()

    # --- what becomes of log blocks

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if block != self.target and self.ssd.pool.next_page[block] >= self.map.per_block:
            if block == self.sequential:
                return self.ssd.close(block)  # it is merged when the next one begins
            self.shut(block)
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        if block == self.target:
            self.broken = True
            return 0
        return self.shut(block)

    cdef int shut(self, uint32_t block) noexcept nogil:
        """Fill an open log block no further; it counts as a closed random one."""
        if block != self.sequential and block != self.random:
            return 0
        self.gone(block)
        self.closed[self.closed_n] = block
        self.closed_n += 1
        return self.close(block)

    cdef int close(self, uint32_t block) noexcept nogil:
        return self.ssd.close(block) if self.ssd.pool.state[block] == STATE_OPEN else 0

    cdef int gone(self, uint32_t block) noexcept nogil:
        """The block is no log block any more."""
        cdef uint32_t i, n = 0
        if block == self.sequential:
            self.sequential = NONE
        if block == self.random:
            self.random = NONE
        for i in range(self.closed_n):
            if self.closed[i] != block:
                self.closed[n] = self.closed[i]
                n += 1
        self.closed_n = n
        return 0

    def attach(self):
        """Find the log blocks: those that contain pages of the log, and the open blocks, which may have none. An open
        one goes on if it is the only one of its kind."""
        cdef uint32_t block
        self.sequential = self.random = self.target = NONE
        self.closed_n = 0
        pages = {}
        for lpa, ppa in self.map.log.pairs():
            pages.setdefault(ppa // self.map.per_block, set()).add(lpa // self.map.per_block)
        for block in sorted(range(self.ssd.pool.blocks), key=lambda block: self.ssd.pool.order[<uint32_t> block]):
            if self.ssd.pool.state[block] != STATE_OPEN and self.ssd.pool.state[block] != STATE_CLOSED:
                continue
            if self.ssd.pool.state[block] == STATE_OPEN:
                if self.ssd.pool.stream[block] == STREAM_HOST and self.random == NONE:
                    self.random = block
                    continue
                if (self.ssd.pool.stream[block] == self.stream and self.sequential == NONE
                        and len(pages.get(block, ())) == 1):
                    self.sequential, (self.of,) = block, pages[block]
                    continue
            if block in pages:
                self.closed[self.closed_n] = block
                self.closed_n += 1
            self.ssd.close(block)

    def log_blocks(self):
        """[(block, kind)], in the order in which they are reclaimed, the open ones last."""
        out = [(self.closed[i], "random") for i in range(self.closed_n)]
        out += [(self.random, "random, open")] if self.random != NONE else []
        return out + ([(self.sequential, f"sequential, of logical block {self.of}")] if self.sequential != NONE else [])


cdef class Merges(Cleaning):
    """Cleaning: frees blocks by merging log blocks."""

    def __cinit__(self, Engine ssd, FastMapping map not None):
        self.ssd = ssd
        self.map = map
        self.open_blocks_rest = True       # a log block may be open for long
        self.ppas = <uint32_t*> malloc(map.per_block * 4)
        self.lbns = <uint32_t*> malloc(map.per_block * 4)
        if self.ppas == NULL or self.lbns == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.ppas)
        free(self.lbns)

    def join(self, LogBlocks place not None):
        """Connect merges and log blocks: each needs the other."""
        self.place = place
        place.merges = self

    cdef int clean(self) except -1 nogil:
        cdef uint32_t victim = self.ssd.victims.fewest()
        if victim != NONE and self.ssd.victims.valid[victim] == 0:
            return self.give_back(victim, CAUSE_GC)
        if self.place.closed_n:
            return self.reclaim(self.place.closed[0], CAUSE_GC)
        if self.place.sequential != NONE:
            return self.merge_sequential(CAUSE_GC)
        if self.place.random == NONE:
            with gil:
                raise self.ssd.full("no log block is left to be merged")
        self.place.shut(self.place.random)
        return self.reclaim(self.place.closed[0], CAUSE_GC)

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        cdef uint32_t lbn
        self.place.failed(block)
        self.place.close(block)
        lbn = self.map.owner(block)
        if lbn != NONE:
            return self.merge(lbn, cause)
        return self.reclaim(block, cause)

    cdef int give_back(self, uint32_t block, int cause) except -1 nogil:
        """Free a block that has no pages but unreadable ones: those move to a log block, and are marked as such
        there."""
        self.place.failed(block)
        self.place.close(block)
        self.map.forget(block)
        if self.ssd.relocate(block, STREAM_GC, cause):
            self.place.gone(block)
        return 0

    cdef int free_dead(self) except -1 nogil:
        """Free blocks without live pages before a merge opens a block, if that could be the last free one."""
        cdef uint32_t victim = self.ssd.victims.fewest()
        while (victim != NONE and self.ssd.victims.valid[victim] == 0 and
               self.ssd.pool.free_n + self.ssd.pool.pending_n <= self.ssd.meta_floor + self.ssd.gc_reserve):
            self.give_back(victim, CAUSE_GC)
            victim = self.ssd.victims.fewest()
        return 0

    cdef int reclaim(self, uint32_t block, int cause) except -1 nogil:
        """A full merge of each logical block with pages in this log block, which is then freed. A merge may free it
        before the last of them, and even open it again: then there is nothing left to do."""
        cdef uint32_t i, n = self.map.list_logical(block, self.lbns)
        cdef uint64_t order = self.ssd.pool.order[block]
        for i in range(n):
            self.merge(self.lbns[i], cause)
            if self.ssd.pool.order[block] != order:
                return 0
        return self.give_back(block, cause) if self.ssd.pool.state[block] == STATE_CLOSED else 0

    cdef bint copy_to(self, uint32_t block, uint32_t lbn, uint32_t n, int stream, int cause) except -1 nogil:
        """Move the ``n`` pages in ``ppas`` to their places in this block. False if it did not take all of them: then
        the maps are unchanged. The block is closed in either case."""
        cdef bint whole = False
        self.place.target = block
        self.place.target_of = lbn
        self.place.broken = False
        try:
            whole = self.ssd.relocate_pages(self.ppas, n, stream, cause) != 0
        finally:
            self.place.target = NONE
            self.place.close(block)
        return whole

    cdef int merge(self, uint32_t lbn, int cause) except -1 nogil:
        """A full merge. Includes the sequential log block if it belongs to that logical block."""
        cdef uint32_t old, log = NONE, tries, block, n
        cdef int stream = STREAM_WEAR if cause == CAUSE_WEAR else STREAM_GC
        self.free_dead()                   # before any block is known
        if self.place.sequential != NONE and self.place.of == lbn:
            log = self.place.sequential
            if self.ssd.validity.count(log) == 0:
                self.give_back(log, cause)
                log = NONE
            else:
                self.place.shut(log)
        old = self.map.data_block(lbn)
        n = self.map.list_pages(lbn, 0, self.ppas)
        for tries in range(TRIES if n else 0):
            block = <uint32_t> self.ssd.open_block(-1, stream, cause == CAUSE_WEAR, cause)
            if self.copy_to(block, lbn, n, stream, cause):
                self.map.settle(lbn, block)
                break
            if tries == TRIES - 1:
                with gil:
                    raise self.ssd.full(f"{TRIES} blocks went bad in one merge")
        self.fulls += 1
        if old != NONE:
            self.give_back(old, cause)
        if log != NONE:
            self.give_back(log, cause)
        return 0

    cdef int merge_sequential(self, int cause) except -1 nogil:
        """A switch or partial merge; or a full one if a page of the sequential log block is dead or cannot be
        appended."""
        cdef uint32_t block = self.place.sequential, lbn = self.place.of, old, whole, n
        if block == NONE:
            return 0
        whole = self.ssd.pool.next_page[block]
        if self.ssd.validity.count(block) == 0:
            return self.give_back(block, cause)
        if self.ssd.validity.count(block) < whole or (
                whole < self.map.per_block and not self.place.is_next(lbn * self.map.per_block + whole)):
            return self.merge(lbn, cause)
        old = self.map.data_block(lbn)
        n = self.map.list_pages(lbn, whole, self.ppas)
        if n and not self.copy_to(block, lbn, n, STREAM_GC, cause):
            self.place.shut(block)
            return self.merge(lbn, cause)
        self.place.close(block)
        self.place.gone(block)
        if n:
            self.partials += 1
        else:
            self.switches += 1
        self.map.settle(lbn, block)
        return self.give_back(old, cause) if old != NONE else 0
