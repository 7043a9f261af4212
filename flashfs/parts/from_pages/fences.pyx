# cold
# distutils: language = c++
"""Checkpoints of a mapping that is recovered from its pages (rebuild.pyx): a clean one holds everything; any other is a
*fence*, which says where a recovery's scan for newer pages begins.
"""
from libc.stdint cimport uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_GC, KIND_TRANSLATION, STATE_OPEN
from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.owner cimport Owner
from flashfs.parts.paged.paged_map cimport PagedMapping

from flashfs.parts.from_pages.scan_mark import ScanMark, blocks_of
from flashfs.parts.paged.demand_map import MAP_STRAYS


cdef class Fences(Checkpointer):
    """A fence after as many pages as the map's cache has entries, at most; the log of trims is kept from one fence to
    the next."""

    def __cinit__(self, *_, PagedMapping map not None, **__):
        self.map = map
        self.needs_room = self.trusts_notes = True

    def limit(self, uint64_t every):
        """Pages programmed between two fences, at most."""
        self.every = every

    cdef int begins(self, bint clean) except -1:
        self.clean = clean
        self.map.write_aged()              # of FencedMap, which imports this file
        return 0

    def now_at(self):
        """Where a recovery's scan would begin if nothing before this moment were newer than its translation page."""
        pool, validity = self.ssd.pool, self.ssd.validity
        still_open = {block: self.ssd.pool.next_page[block] for block in range(pool.blocks)
                      if self.ssd.pool.state[block] == STATE_OPEN}
        retiring = {block for block in range(pool.blocks) if self.ssd.pool.retiring[block]}
        return ScanMark(self.ssd.seq, pool.last_order, validity.stamp_in_force(),
                        {**still_open, **validity.unfinished()}, retiring)

    def sections(self, clean):
        """If ``clean``, everything, and the scan begins here. Else: where the scan for newer pages begins, which is at
        the fence before this one; the blocks with translation pages (one whose first page says otherwise was
        overwritten); and whether several LPAs may name one page."""
        self.now = self.now_at()
        if clean:
            return {**super().sections(clean), "fence": self.now.pack()}
        before = self.mark or ScanMark()
        return {**(MAP_STRAYS if self.map.strays else {}),
                "tblocks": blocks_of(self.ssd.pool, (<Owner> self.ssd.owner_at[KIND_TRANSLATION]).stream),
                "fence": ScanMark(before.seq, before.order, self.now.stamp, before.open, self.now.retiring).pack()}

    def to_release(self, old, clean):
        """Trims from before a fence still count after it, so its log blocks are released one fence later."""
        before, self.log_before = self.log_before or [], [] if clean else list(old)
        return before + list(old) if clean else before

    def ends(self):
        self.mark = self.now
        self.ssd.pool.erase_stale(CAUSE_GC, self.ssd.now_ns)

    def device_ready(self, clean, at):
        self.mark = self.now_at() if clean else at

    def kept(self):
        return self.log_before or ()
