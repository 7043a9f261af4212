"""Static wear levelling by a scan of the blocks: DRAM holds only a few statistics of the whole chip; erase counts and
ages are in the blocks' spare areas (N. Dayan et al., GeckoFTL, SIGMOD 2016, Appendix D).

Nothing of it is saved: each mount begins a new round.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_WEAR, CAUSE_WEAR_SCAN, NONE, STATE_BAD, STATE_META, oob_order
from flashfs.engine.device.wear cimport PATIENCE, WearLevel
from nandimg._nand cimport PAGE_OK, PAGE_TORN

cdef enum:
    FIGURES_BYTES = 24       # per round: minimum, maximum and mean of erases and ages, four bytes each
    SPREAD_MOST = 1 << 16    # more erases no block bears


cdef class WearScan(WearLevel):
    """For each programmed page, ``reads`` spare areas of the next blocks in turn are read, at the usual cost. A block's
    first page gives its erase count (the epoch in its record) and its age (the order in its OOB; a block is erased when
    it is opened). Minimum, maximum and mean of both over all blocks are kept. When a block is read, it is compared with
    those, and emptied then or in a later round.

    A block that is emptied can be erased ``spread`` times before it lags no longer. So one for as many programs as half
    of that takes keeps up, and where all blocks lag at once the chip is not copied at once."""

    def __cinit__(self, Engine ssd, uint32_t spread, uint32_t reads):
        self.reads = reads
        self.pace = <uint64_t> ssd.nand.pages_per_block * max(<uint32_t> 1, min(spread, SPREAD_MOST) // 2)
        self.due_at = self.pace
        self.spare = <uint8_t*> malloc(ssd.nand.oob_bytes)
        if self.spare == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.spare)

    cdef int level(self) except -1 nogil:
        """Continue the scan as far as is due, and empty one of the blocks that stood out, if one may be emptied again;
        the others wait for the next round. The dies take turns, so that no die is left with worn free blocks only;
        within a die the least worn block is taken."""
        cdef uint32_t found = NONE, block
        cdef uint64_t due = (self.ssd.pool.programs_n - self.seen) * self.reads
        self.seen = self.ssd.pool.programs_n
        while due:
            due -= 1
            if self.left == 0:
                self.begin_round()
            block = self.cursor
            self.cursor = block + 1 if block + 1 < self.ssd.pool.blocks else 0
            self.left -= 1
            if self.ssd.pool.state[block] != STATE_BAD and self.look(block) and (
                    found == NONE or self.comes_before(block, found)):
                found = block
        if found != NONE and self.may_empty(found) and self.has_room():
            self.due_at = self.ssd.pool.programs_n + self.pace
            self.turn = (found + 1) % self.ssd.pool.dies
            self.ssd.cleaning.evacuate(found, CAUSE_WEAR)
        return 0

    cdef bint may_empty(self, uint32_t block) noexcept nogil:
        """Whether it is time to empty a block, and the turn of that block's die; any die's, if its turn brought none
        while the scan passed all dies twice."""
        cdef uint64_t now = self.ssd.pool.programs_n
        cdef uint32_t dies = self.ssd.pool.dies
        return now >= self.due_at and (block % dies == self.turn % dies or now >= self.due_at + 2 * dies)

    cdef bint comes_before(self, uint32_t block, uint32_t other) noexcept nogil:
        cdef uint32_t dies = self.ssd.pool.dies
        cdef uint32_t wait = (block % dies + dies - self.turn) % dies, longer = (other % dies + dies - self.turn) % dies
        return wait < longer or (wait == longer and self.ssd.nand.erases(block) < self.ssd.nand.erases(other))

    cdef int begin_round(self) noexcept nogil:
        """Begin a round. The first one since the mount begins at a block that depends on the chip's count of opened
        blocks, so that short mounts cover all blocks over time."""
        if self.now.blocks:
            self.whole = self.now
            self.rounds += 1
        else:
            self.cursor = <uint32_t> (self.ssd.pool.last_order % self.ssd.pool.blocks)
        memset(&self.now, 0, sizeof(Round))
        self.left = self.ssd.pool.blocks
        return 0

    cdef bint look(self, uint32_t block) except -1 nogil:
        """Read the block's first whole page, update the statistics, and return whether to empty the block; False for a
        block without pages."""
        cdef uint8_t status = PAGE_TORN
        cdef uint32_t page = 0, erases
        cdef uint64_t order
        while status == PAGE_TORN and page < self.ssd.pool.pages_per_block:
            self.ssd.nand.read_spare(block, page, 1, self.spare, &status, CAUSE_WEAR_SCAN, self.ssd.now_ns)
            page += 1
        if status != PAGE_OK:
            return False
        erases = self.ssd.nand.erases(block)  # equals the count in the page's record, because the page is whole
        order = oob_order(self.spare)
        self.note(erases, order)
        return self.stands_out(block, erases, order)

    cdef int note(self, uint32_t erases, uint64_t order) noexcept nogil:
        cdef Round* now = &self.now
        if now.blocks == 0:
            now.erases_least = erases
            now.order_least = order
        now.blocks += 1
        now.erases_least = min(now.erases_least, erases)
        now.erases_most = max(now.erases_most, erases)
        now.erases_mean += (erases - now.erases_mean) / now.blocks
        now.order_least = min(now.order_least, order)
        now.order_most = max(now.order_most, order)
        now.order_mean += (<double> order - now.order_mean) / now.blocks
        return 0

    cdef bint stands_out(self, uint32_t block, uint32_t erases, uint64_t order) noexcept nogil:
        """Whether the block is little worn, by the most and by the mean, and static (older than the mean). As in
        ``WearLevel``, a block in use may lag PATIENCE more erases. False before the first round is complete."""
        cdef uint32_t most = max(self.ssd.pool.erased_most, max(self.whole.erases_most, self.now.erases_most))
        if self.whole.blocks == 0 or erases + <uint64_t> self.spread >= most or erases > self.whole.erases_mean:
            return False
        if self.ssd.pool.state[block] == STATE_META:
            if self.ssd.since_checkpoint >= <uint64_t> self.ssd.pool.blocks * self.ssd.pool.pages_per_block:
                self.ssd.checkpoint_due = True
            return False
        if not self.may_rest(block):
            return False
        return order <= self.whole.order_mean or erases + <uint64_t> self.spread + PATIENCE < most

    def tables(self):
        """(bytes as a controller packs them, bytes allocated) of all that is kept in DRAM: the statistics of the
        current round and of the last one, the number of blocks in the current one, the next block and the next die,
        programmed pages without spare reads yet, those until the next block may be emptied, the greatest erase count of
        a block erased since the mount, and the chip's count of opened blocks, which gives ages."""
        return 2 * FIGURES_BYTES + 7 * 4, 2 * sizeof(Round) + self.ssd.nand.oob_bytes + 4 * 8 + 2 * 4

    def figures(self):
        """How blocks are found, and the statistics of the last complete round; ages are in blocks opened since."""
        cdef Round* whole = &self.whole
        cdef uint64_t last = self.ssd.pool.last_order
        found = {"by": "scan", "rounds": self.rounds, "blocks": whole.blocks}
        if whole.blocks:
            found["erases"] = {"min": whole.erases_least, "max": whole.erases_most,
                               "mean": round(whole.erases_mean, 3)}
            found["age"] = {"min": last - whole.order_most, "max": last - whole.order_least,
                            "mean": round(last - whole.order_mean, 3)}
        return found
