"""Static wear levelling by a scan through the blocks: a few figures of the whole chip are in DRAM, and erase counts and
ages in the blocks' own spare areas (N. Dayan et al., GeckoFTL, SIGMOD 2016, Appendix D).

Nothing of it has to survive: whoever mounts begins a new round.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_WEAR, CAUSE_WEAR_SCAN, NONE, STATE_BAD, STATE_META, oob_order
from flashfs.engine.device.wear cimport PATIENCE, WearLevel
from nandimg._nand cimport PAGE_OK, PAGE_TORN

cdef enum:
    FIGURES_BYTES = 24       # of a round: least, most and mean of erases and ages, four bytes each


cdef class WearScan(WearLevel):
    """For each page that is programmed, ``reads`` spare areas are read, of the next blocks in turn, and charged. A
    block's first page says how often the block was erased, and how long ago: its record has the epoch, its OOB the
    order, and a block is erased when it is opened. What is kept is the least, the most and the mean of both, of all
    blocks. A block is held against those when its turn comes, and emptied then or in a later round."""

    def __cinit__(self, Engine ssd, uint32_t spread, uint32_t reads):
        self.reads = reads
        self.spare = <uint8_t*> malloc(ssd.nand.oob_bytes)
        if self.spare == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.spare)

    cdef int level(self) except -1 nogil:
        """Go on with the scan as far as is due, and empty one of the blocks that stood out; the others wait until the
        scan comes by again. The dies take turns, or one would have no free block but a worn one; of a die's blocks it
        is the least worn."""
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
        if found != NONE and self.has_room():
            self.turn = (found + 1) % self.ssd.pool.dies
            self.ssd.cleaning.evacuate(found, CAUSE_WEAR)
        return 0

    cdef bint comes_before(self, uint32_t block, uint32_t other) noexcept nogil:
        cdef uint32_t dies = self.ssd.pool.dies
        cdef uint32_t wait = (block % dies + dies - self.turn) % dies, longer = (other % dies + dies - self.turn) % dies
        return wait < longer or (wait == longer and self.ssd.nand.erases(block) < self.ssd.nand.erases(other))

    cdef int begin_round(self) noexcept nogil:
        """The first one since the mount begins wherever the chip's life has brought it, for mounts may be short."""
        if self.now.blocks:
            self.whole = self.now
            self.rounds += 1
        else:
            self.cursor = <uint32_t> (self.ssd.pool.last_order % self.ssd.pool.blocks)
        memset(&self.now, 0, sizeof(Round))
        self.left = self.ssd.pool.blocks
        return 0

    cdef bint look(self, uint32_t block) except -1 nogil:
        """Read what the block says of itself; whether it is to be emptied. One that has no page says nothing."""
        cdef uint8_t status = PAGE_TORN
        cdef uint32_t page = 0, erases
        cdef uint64_t order
        while status == PAGE_TORN and page < self.ssd.pool.pages_per_block:
            self.ssd.nand.read_spare(block, page, 1, self.spare, &status, CAUSE_WEAR_SCAN, self.ssd.now_ns)
            page += 1
        if status != PAGE_OK:
            return False
        erases = self.ssd.nand.erases(block)  # what the page's record says: it is whole, so its epoch is one more
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
        """Whether it is exceptionally unworn, and static: older than the mean. As in ``WearLevel``, one that is in use
        is let be for some more erases. Nothing does before a round is whole."""
        cdef uint32_t most = max(self.ssd.pool.erased_most, max(self.whole.erases_most, self.now.erases_most))
        if self.whole.blocks == 0 or erases + <uint64_t> self.spread >= most:
            return False
        if self.ssd.pool.state[block] == STATE_META:
            if self.ssd.since_checkpoint >= <uint64_t> self.ssd.pool.blocks * self.ssd.pool.pages_per_block:
                self.ssd.checkpoint_due = True
            return False
        if not self.may_rest(block):
            return False
        return order <= self.whole.order_mean or erases + <uint64_t> self.spread + PATIENCE < most

    def tables(self):
        """(as a controller packs it, as allocated) of all that is kept in DRAM: the figures of the round under way and
        of the one before it, how many blocks the first stands for, the next block and the next die, pages programmed
        that no spare area was read for yet, the greatest count of a block that was erased since the mount, and the
        chip's count of blocks opened, by which ages are told."""
        return 2 * FIGURES_BYTES + 6 * 4, 2 * sizeof(Round) + self.ssd.nand.oob_bytes + 2 * 8 + 2 * 4

    def figures(self):
        """How blocks are found, and what the last whole round said of all of them together: ages are in blocks opened
        since."""
        cdef Round* whole = &self.whole
        cdef uint64_t last = self.ssd.pool.last_order
        found = {"by": "scan", "rounds": self.rounds, "blocks": whole.blocks}
        if whole.blocks:
            found["erases"] = {"min": whole.erases_least, "max": whole.erases_most,
                               "mean": round(whole.erases_mean, 3)}
            found["age"] = {"min": last - whole.order_most, "max": last - whole.order_least,
                            "mean": round(last - whole.order_mean, 3)}
        return found
