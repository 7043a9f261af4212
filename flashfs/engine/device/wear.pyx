"""Static wear levelling: pages that are never rewritten move from little worn blocks to the most worn ones.

A block rests (is static) when at least as many blocks as the chip has were opened since it was. A block that lags but
is in use catches up by itself, because it is opened before others whenever it is free; emptying it would copy pages
that are about to die.

This class uses the erase count and the age of every block, which a controller would have to keep in DRAM.
``flashfs.engine.device.wear_scan`` avoids that.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_WEAR, NONE, STATE_BAD, STATE_CLOSED, STATE_META, STATE_OPEN, STREAMS

cdef enum:
    QUEUE = 64
    PACE = 32                # erases since the last levelling for which one more block may be emptied


cdef class WearLevel:
    """Empties a resting block when the most worn one is more than ``spread`` erases ahead of it."""

    def __cinit__(self, Engine ssd, uint32_t spread, *_):
        self.ssd = ssd
        self.spread = spread

    cdef int level(self) except -1 nogil:
        """Between requests: empty a block that lags, and one more per PACE erases since the last time: after a long
        request with many erases, one block would not keep up."""
        cdef uint64_t turns = 1 + (self.ssd.pool.erases_n - self.levelled_at) // PACE
        self.levelled_at = self.ssd.pool.erases_n
        while turns and self.level_one():
            turns -= 1
        return 0

    cdef bint level_one(self) except -1 nogil:
        """Empty one block that lags, if there is one and room for it; False if there is nothing to do."""
        cdef uint32_t block
        if self.queued == 0:
            if self.ssd.pool.erases_n < self.scan_at:
                return False
            self.scan()
        if self.queued == 0 or not self.has_room():
            return False
        self.queued -= 1
        block = self.queue[self.queued]
        if self.lags(block):
            self.ssd.cleaning.evacuate(block, CAUSE_WEAR)
        return True

    cdef bint has_room(self) noexcept nogil:
        return self.ssd.pool.free_n + self.ssd.pool.pending_n > self.ssd.meta_floor + 1

    cdef bint lags(self, uint32_t block) noexcept nogil:
        """Whether the block must be emptied."""
        cdef uint64_t behind = self.ssd.pool.erases_most - self.ssd.nand.erases(block)
        if behind <= self.spread or not self.may_rest(block):
            return False
        return (behind > <uint64_t> self.spread + PATIENCE
                or self.ssd.pool.order[block] + self.ssd.pool.blocks <= self.ssd.pool.last_order)

    cdef bint may_rest(self, uint32_t block) noexcept nogil:
        """Whether the block's state allows it to be emptied. An open block that fills slowly may rest too: a part's own
        stream may program one page per checkpoint."""
        cdef uint8_t state = self.ssd.pool.state[block]
        return state == STATE_CLOSED or (state == STATE_OPEN and (
            self.ssd.cleaning.open_blocks_rest or self.ssd.pool.stream[block] >= STREAMS))

    cdef int scan(self) noexcept nogil:
        """Queue the closed blocks that lag; set the next scan to when one could lag (the least erase count never
        falls). The log's blocks rest until the next checkpoint: if one lags, a checkpoint is due, but not before a
        chip's worth of pages was programmed since the last."""
        cdef uint32_t block, wear, least = NONE
        for block in range(self.ssd.pool.blocks):
            if self.ssd.pool.state[block] == STATE_BAD:
                continue
            wear = self.ssd.nand.erases(block)
            least = min(least, wear)
            if self.queued < QUEUE and self.lags(block):
                self.queue[self.queued] = block
                self.queued += 1
            elif (self.ssd.pool.state[block] == STATE_META and wear + self.spread < self.ssd.pool.erases_most
                    and self.ssd.since_checkpoint >= <uint64_t> self.ssd.pool.blocks * self.ssd.pool.pages_per_block):
                self.ssd.checkpoint_due = True
        # after a minimum of erases, and not before the spread can be exceeded: an erase adds one at most
        self.scan_at = self.ssd.pool.erases_n + max(4, self.ssd.pool.blocks // 64)
        if least != NONE and least + self.spread >= self.ssd.pool.erases_most:
            self.scan_at = max(self.scan_at,
                               self.ssd.pool.erases_n + (least + self.spread - self.ssd.pool.erases_most))
        return 0

    def tables(self):
        """None: its DRAM is not accounted for, because it reads the chip's counts for free."""
        return None

    def figures(self):
        """How blocks are found, and statistics over all blocks."""
        return {"by": "exact"}
