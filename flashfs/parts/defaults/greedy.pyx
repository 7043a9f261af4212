"""The engine's default cleaning: the closed block with the fewest live pages."""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_GC, CAUSE_WEAR, NONE, STATE_CLOSED, STATE_OPEN, STREAM_GC, STREAM_WEAR
from flashfs.engine.blocks.victims cimport UNLISTED
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.engine cimport Engine


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
