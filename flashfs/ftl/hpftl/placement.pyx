"""HPFTL's placement and cleaning (J. Shin, SNU thesis, 2020, 2.2). A page of the host goes to an open block that its
LPA hashes to, or else to a free one, which is opened. If there is neither, that is a collision: the page goes to an
overflow block and into the secondary table. Cleaning is greedy, and pages that it moves go into the secondary table.

That table is bounded. Beyond a threshold entries are reclaimed: a free block is taken, and secondary pages that hash to
it are copied there. Not in the thesis: cleaning passes over a victim whose entries have no room. Blocks that hold
secondary pages need no room, and reclaim has left dead pages in them.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC, CAUSE_HOST, NONE, STATE_FREE, STATE_OPEN, STREAM_GC, STREAM_HOST,
)
from flashfs.engine.blocks.victims cimport LISTED
from flashfs.ftl.hpftl.mapping cimport HpftlMapping

from flashfs.errors import DeviceFullError

cdef extern from "<stdlib.h>" nogil:
    void qsort(void* base, size_t n, size_t size, int (*compare)(const void*, const void*) noexcept nogil)

cdef enum:
    WORTH = 4                # reclaim takes a block if the pages that hash to it fill 1/WORTH of it
    LOOKED_AT = 8            # most free blocks that reclaim examines
    TRIES = 64               # most blocks cleaned for one collision
    REST = 64                # collisions beyond the threshold that skip reclaim after it reclaimed nothing


cdef int ascending(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<const uint32_t*> a)[0], y = (<const uint32_t*> b)[0]
    return (x > y) - (x < y)


cdef class HpftlPlacement(Streams):
    """The blocks of the host's stream are those that LPAs hash to; ``open_of`` lists them. Collisions have a stream of
    their own, which is filled like that of cleaning."""
    cdef HpftlMapping map
    cdef HpftlCleaning cleaner
    cdef int overflow
    cdef uint32_t target                   # the block that reclaim fills, or NONE
    cdef bint broken                       # a program in it failed
    cdef uint32_t resting                  # collisions until the next try to reclaim
    cdef readonly uint64_t collisions

    def join(self, HpftlMapping map not None, HpftlCleaning cleaner not None, int overflow):
        """Connect placement, mapping and cleaning; ``overflow`` is the stream of collisions."""
        self.map = map
        self.cleaner = cleaner
        self.overflow = overflow
        self.target = NONE

    cdef int make_ready(self, int stream) except -1 nogil:
        """Does nothing: whether to clean depends on the LPA, so ``take`` does that."""
        return 0

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        return 0 if stream == STREAM_HOST else Streams.run_room(self, stream)

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        if stream == STREAM_HOST:
            return self.take_hashed(lpas[0], out)
        if self.target == NONE:
            return Streams.take(self, stream, lpas, n, out)
        out.n = 0
        if not self.broken:
            self.give(self.target, n, out)
        return 0

    cdef int give(self, uint32_t block, uint32_t n, Extent* out) noexcept nogil:
        out.block = block
        out.page = self.ssd.pool.next_page[block]
        out.n = min(n, self.ssd.pool.pages_per_block - out.page)
        return 0

    cdef int take_hashed(self, uint32_t lpa, Extent* out) except -1 nogil:
        """Place one page: the next has other candidates."""
        cdef uint32_t hid = self.open_candidate(lpa)
        cdef uint32_t* slot
        if hid == 0 and self.is_candidate_free(lpa) and self.free_slot() != NULL:
            self.ssd.make_room()
            hid = self.open_candidate(lpa)  # cleaning may have reclaimed into one
            if hid == 0:
                hid = self.open_free(lpa)
        if hid == 0 and self.map.second.n > self.cleaner.threshold:
            self.hold_bound(lpa)
            hid = self.open_candidate(lpa)
            if hid == 0 and not self.has_entry(lpa):
                hid = self.open_free(lpa)
        if hid:
            out.choice = hid
            return self.give(self.map.hasher.candidates[hid], 1, out)
        self.collisions += 1
        slot = self.open_of + self.overflow * self.most + self.turn[self.overflow]
        if slot[0] == NONE or not self.takes_more(slot[0], self.overflow):
            self.ssd.make_room()
        Streams.take(self, self.overflow, &lpa, 1, out)
        out.n = 1
        return 0

    cdef uint32_t open_candidate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The first HID that leads to an open block with room; 0 if none does."""
        cdef uint32_t hid, block
        self.map.hasher.find(lpa)
        for hid in range(1, self.map.hashes + 1):
            block = self.map.hasher.candidates[hid]
            if self.ssd.pool.state[block] != STATE_OPEN or self.ssd.pool.stream[block] != STREAM_HOST:
                continue
            if self.takes_more(block, STREAM_HOST):
                return hid
            self.failed(block)
        return 0

    cdef bint is_candidate_free(self, uint32_t lpa) noexcept nogil:
        cdef uint32_t hid
        self.map.hasher.find(lpa)
        for hid in range(1, self.map.hashes + 1):
            if self.ssd.pool.state[self.map.hasher.candidates[hid]] == STATE_FREE:
                return True
        return False

    cdef uint32_t open_free(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """Open the first candidate that is free; returns its HID; 0 if there is none, or no slot for it."""
        cdef uint32_t* slot = self.free_slot()
        cdef uint32_t hid, block
        self.map.hasher.find(lpa)
        for hid in range(1, self.map.hashes + 1):
            block = self.map.hasher.candidates[hid]
            if (slot != NULL and self.ssd.pool.state[block] == STATE_FREE
                    and self.ssd.open_this(block, STREAM_HOST, CAUSE_HOST) >= 0):
                slot[0] = block
                return hid
        return 0

    cdef uint32_t* free_slot(self) noexcept nogil:
        """The slot for one more open block of the host; NULL if all are in use."""
        cdef uint32_t i
        for i in range(self.width_host):
            if self.open_of[STREAM_HOST * self.most + i] == NONE:
                return self.open_of + STREAM_HOST * self.most + i
        return NULL

    cdef bint has_entry(self, uint32_t lpa) noexcept nogil:
        """Whether the secondary table has room for a collision of that LPA."""
        return self.cleaner.host_fits() or self.map.is_second(lpa)

    cdef int hold_bound(self, uint32_t lpa) except -1 nogil:
        """At a collision beyond the threshold: reclaim. If that is not enough, close the fullest open block in favour
        of a free one that this LPA hashes to; if there is none, clean, to free blocks that may be reclaimed into."""
        cdef uint32_t tries = 0
        if self.resting and self.has_entry(lpa):
            self.resting -= 1
            return 0
        if not self.cleaner.affords_block():
            self.ssd.make_room()
        if not self.cleaner.reclaim():
            self.resting = REST
        while not self.has_entry(lpa):
            if self.cleaner.reclaim():
                continue
            if self.is_candidate_free(lpa):
                self.ssd.make_room()
                if self.free_slot() == NULL:
                    self.close_fullest()
                return 0
            if not self.cleaner.has_victim() and self.ssd.pool.pending_n:
                self.ssd.barrier()          # blocks that it hashes to may wait for a sync
                continue
            if tries == TRIES or not self.cleaner.has_victim():
                return self.cleaner.exceed(1)
            self.cleaner.clean()
            tries += 1
        return 0

    cdef int close_fullest(self) except -1 nogil:
        """Close the open block of the host that has least room."""
        cdef uint32_t i, block, best = NONE
        for i in range(self.width_host):
            block = self.open_of[STREAM_HOST * self.most + i]
            if block != NONE and (best == NONE or self.ssd.pool.next_page[block] > self.ssd.pool.next_page[best]):
                best = block
        return self.failed(best) if best != NONE else 0

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if block == self.target:
            return 0
        if self.ssd.pool.stream[block] != STREAM_HOST:
            return Streams.used(self, block, n)
        if self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            self.failed(block)
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        if block == self.target:
            self.broken = True
            return 0
        return Streams.failed(self, block)

    cdef int keep(self, uint32_t block) except -1 nogil:
        """Give a block that reclaim opened to the host if it has room and there is a slot; else close it."""
        cdef uint32_t* slot = self.free_slot()
        if (slot != NULL and self.ssd.pool.state[block] == STATE_OPEN
                and self.ssd.pool.next_page[block] < self.ssd.pool.pages_per_block):
            slot[0] = block
            return 0
        return self.shut_out(block)

    cdef int shut_out(self, uint32_t block) except -1 nogil:
        """Close a block that is in no slot: an open one would be taken for the host's."""
        return self.ssd.close(block) if self.ssd.pool.state[block] == STATE_OPEN else 0


cdef class HpftlCleaning(Greedy):
    """Greedy among the victims whose pages have room in the secondary table."""
    cdef HpftlMapping map
    cdef HpftlPlacement place
    cdef uint32_t* ppas
    cdef uint32_t turn                     # block at which ``free_target`` continues
    cdef bint pressed                      # the next reclaim may take one more free block
    cdef readonly uint32_t threshold       # beyond so many entries some are reclaimed
    cdef readonly uint64_t reclaims, reclaimed, passed_over, exceeded

    def __dealloc__(self):
        free(self.ppas)

    def join(self, HpftlMapping map not None, HpftlPlacement place not None):
        """See HpftlPlacement.join."""
        self.map = map
        self.place = place
        self.open_blocks_rest = True       # e.g. one that few LPAs hash to, or an overflow block without collisions
        self.threshold = map.capacity - 2 * self.ssd.nand.pages_per_block
        self.ppas = <uint32_t*> malloc(self.ssd.nand.pages_per_block * 4)
        if self.ppas == NULL:
            raise MemoryError

    cdef bint fits(self, uint32_t entries) noexcept nogil:
        """Whether the secondary table has room for so many more. After a recovery it may already exceed its bound."""
        return entries == 0 or self.map.second.n + entries <= self.map.capacity

    cdef int exceed(self, uint32_t entries) except -1 nogil:
        """The last resort: exceed the bound, as far as a checkpoint has room. DeviceFullError beyond that."""
        if self.map.saved_most < self.ssd.lpas and (self.map.second.n + entries) * 2 > self.map.saved_most:
            with gil:
                raise DeviceFullError(f"the secondary table is full, with {self.map.second.n} entries, and no block "
                                      f"takes any of them")
        self.exceeded += 1
        return 0

    cdef bint host_fits(self) noexcept nogil:
        """Whether a collision has room: a block's worth of entries is reserved for cleaning."""
        return self.fits(self.ssd.nand.pages_per_block + 1)

    cdef bint affords_block(self) noexcept nogil:
        """Whether reclaim may take a free block and leave cleaning two; or one, if ``pressed``."""
        return self.ssd.pool.free_n + self.ssd.pool.pending_n > self.ssd.meta_floor + (1 if self.pressed else 2)

    cdef bint has_victim(self) noexcept nogil:
        """Whether a closed block has a dead page."""
        cdef uint32_t victim = self.ssd.victims.fewest()
        return victim != NONE and self.ssd.victims.valid[victim] < self.ssd.nand.pages_per_block

    cdef int clean(self) except -1 nogil:
        cdef uint32_t victim = self.ssd.victims.fewest()
        if not self.has_victim():
            return Greedy.clean(self)      # raises the error
        if not self.fits(self.map.first_in(victim)):
            self.passed_over += 1
            victim = self.affordable()
            if victim == NONE:
                if self.reclaim():
                    return 0
                self.place.close_fullest()  # makes room for a free block, and may be cleaned
                self.pressed = True
                if self.reclaim() or self.affordable() != NONE:
                    return 0
                victim = self.ssd.victims.fewest()
                self.exceed(self.map.first_in(victim))
        self.ssd.relocate(victim, STREAM_GC, CAUSE_GC)
        return 0

    cdef uint32_t affordable(self) noexcept nogil:
        """The victim with the fewest live pages whose entries have room, or NONE. Scans all blocks."""
        cdef uint32_t block, best = NONE
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.victims.listed[block] == LISTED
                    and self.ssd.victims.valid[block] < self.ssd.nand.pages_per_block
                    and (best == NONE or self.ssd.victims.valid[block] < self.ssd.victims.valid[best])
                    and self.fits(self.map.first_in(block))):
                best = block
        return best

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        """A block whose entries have no room is left as it is; the caller retries later."""
        if not self.fits(self.map.first_in(block)):
            return 0
        self.place.failed(block)           # if it is open, fill it no further
        return Greedy.evacuate(self, block, cause)

    # --- reclaim

    cdef uint32_t reclaim(self) except? 0xFFFFFFFE nogil:
        """Copy secondary pages to a block that they hash to: to a free one, if enough of them do, or else to one that
        is open for the host. Returns how many left the table: 0 if none can."""
        cdef uint32_t n, block, i
        cdef bint affords = self.affords_block()
        self.pressed = False
        if affords:
            block = self.free_target(&n)
            if block != NONE and self.ssd.open_this(block, STREAM_HOST, CAUSE_GC) >= 0:
                n = self.copy_to(block, n)
                self.place.keep(block)
                return n
        for i in range(self.place.width_host):
            block = self.place.open_of[STREAM_HOST * self.place.most + i]
            if block == NONE:
                continue
            if not self.place.takes_more(block, STREAM_HOST):
                self.place.failed(block)
                continue
            n = self.list_for(block, self.ssd.nand.pages_per_block - self.ssd.pool.next_page[block])
            if n:
                n = self.copy_to(block, n)
                if self.ssd.pool.next_page[block] >= self.ssd.nand.pages_per_block:
                    self.place.failed(block)
                return n
        return 0

    cdef uint32_t free_target(self, uint32_t* n) noexcept nogil:
        """The next free block that ``n[0]`` secondary pages, listed in ``ppas``, would fill; or fill to 1/WORTH, if the
        host may go on with it. NONE if none of LOOKED_AT free blocks qualifies."""
        cdef uint32_t i, block, looked = 0
        for i in range(self.ssd.pool.blocks):
            block = (self.turn + i) % self.ssd.pool.blocks
            if self.ssd.pool.state[block] != STATE_FREE:
                continue
            n[0] = self.list_for(block, self.ssd.nand.pages_per_block)
            if (n[0] == self.ssd.nand.pages_per_block
                    or (n[0] * WORTH >= self.ssd.nand.pages_per_block and self.place.free_slot() != NULL)):
                self.turn = block + 1
                return block
            looked += 1
            if looked == LOOKED_AT:
                break
        return NONE

    cdef uint32_t copy_to(self, uint32_t block, uint32_t n) except? 0xFFFFFFFE nogil:
        """Copy the ``n`` pages at ``ppas`` to an open block; returns how many left the table. If a program fails, no
        page is remapped, and the block is filled no further."""
        cdef uint32_t before = self.map.second.n
        cdef int done = 0
        self.place.target = block
        self.place.broken = False
        try:
            done = self.ssd.relocate_pages(self.ppas, n, STREAM_GC, CAUSE_GC)
        finally:
            self.place.target = NONE
            if not done:
                self.place.failed(block)
                self.place.shut_out(block)
        self.reclaims += 1
        self.reclaimed += before - self.map.second.n
        return before - self.map.second.n

    cdef uint32_t list_for(self, uint32_t block, uint32_t most) noexcept nogil:
        """Put the PPAs of up to ``most`` secondary pages that hash to the block into ``ppas``, ascending; returns how
        many."""
        cdef uint32_t i, at, n = 0, slots = self.map.second.mask + 1, first = block * 2654435761u % slots
        for i in range(slots):
            at = (first + i) & self.map.second.mask
            if self.map.second.slots[at].key == 0 or not self.map.hid_of(self.map.second.lpa_in(at), block):
                continue
            self.ppas[n] = self.map.second.slots[at].ppa
            n += 1
            if n == most:
                break
        qsort(self.ppas, n, sizeof(uint32_t), ascending)
        return n
