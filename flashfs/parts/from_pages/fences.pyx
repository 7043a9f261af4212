# cold
# distutils: language = c++
"""Checkpoints of a mapping that is recovered from its pages (rebuild.pyx): a clean one holds everything; any other is a
*fence*, which says where a recovery's scan for newer pages begins.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_GC, KIND_TRANSLATION, STATE_OPEN
from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.owner cimport Owner
from flashfs.parts.paged.paged_map cimport PagedMapping

from flashfs.parts.from_pages.scan_mark import ScanMark, blocks_of
from flashfs.parts.paged.demand_map import MAP_STRAYS


cdef class Fences(Checkpointer):
    """A fence after as many pages of users as the map's cache has entries, at most; the log of trims is kept from one
    fence to the next.

    A scan begins at the fence before the newest one, or at the one before that: if validity kept reports in DRAM, its
    last report that is programmed may be as old as the fence before the newest. Then a recovery does what it would have
    done had the newest fence not been written yet, and needs what it would have needed: that scan, and the log of
    trims from there on. So reports wait for one fence, and are programmed at the next."""

    def __cinit__(self, *_, PagedMapping map not None, **__):
        self.map = map
        self.marks = []
        self.logs = []
        self.needs_room = self.trusts_notes = True

    def limit(self, uint64_t every):
        """Pages of users programmed between two fences, at most: the cache gets an entry for each of them."""
        self.every = every

    cdef int begins(self, bint clean) except -1:
        self.clean = clean
        self.far = False
        self.map.write_aged()              # of FencedMap, which imports this file
        return 0

    def reach_far(self, uint32_t aside):
        """Allows validity to keep its reports at a fence. The log from two fences before then stays: ``aside`` blocks
        are kept free for it, and where they do not suffice, it is done only if more are free than cleaning keeps so."""
        self.reaches = True
        self.aside = aside
        self.ssd.keep_free(aside)

    cdef bint finds_reports(self) except -1:
        """If this mount wrote the two fences before, and there is room for the log from before the second. What a
        recovery found is then in translation pages, and no row of recoveries goes back to the same place."""
        cdef uint32_t left = self.ssd.pool.free_n + self.ssd.pool.pending_n
        if not self.reaches or self.clean or len(self.marks) < 2:
            return False
        newest = self.logs[max(0, len(self.logs) - 1):]
        self.far = left + self.aside > self.ssd.meta_floor + self.ssd.gc_reserve + len(sum(newest, []))
        return self.far

    def now_at(self):
        """Where a recovery's scan would begin if nothing before this moment were newer than its translation page."""
        pool, validity = self.ssd.pool, self.ssd.validity
        still_open = {block: self.ssd.pool.next_page[block] for block in range(pool.blocks)
                      if self.ssd.pool.state[block] == STATE_OPEN}
        retiring = {block for block in range(pool.blocks) if self.ssd.pool.retiring[block]}
        return ScanMark(self.ssd.seq, pool.last_order, validity.stamp_in_force(),
                        {**still_open, **validity.unfinished()}, retiring)

    def sections(self, clean):
        """If ``clean``, everything, and the scan begins here. Else: where the scan for newer pages begins; the
        blocks with translation pages (one whose first page says otherwise was overwritten); and whether several LPAs
        may name one page."""
        self.now = self.now_at()
        if clean:
            return {**super().sections(clean), "fence": self.now.pack()}
        before = self.marks[0 if self.far else len(self.marks) - 1] if self.marks else self.found or ScanMark()
        return {**(MAP_STRAYS if self.map.strays else {}),
                "tblocks": blocks_of(self.ssd.pool, (<Owner> self.ssd.owner_at[KIND_TRANSLATION]).stream),
                "fence": ScanMark(before.seq, before.order, self.now.stamp, before.open, self.now.retiring).pack()}

    def to_release(self, old, clean):
        """Trims from before a fence still count after it, so its log blocks are released one fence later, or two."""
        self.logs.append(list(old))
        n = len(self.logs) if clean else max(0, len(self.logs) - (2 if self.far else 1))
        gone, self.logs = self.logs[:n], self.logs[n:]
        return sum(gone, [])

    def ends(self):
        """No scan begins before a clean checkpoint: the log up to it is gone."""
        self.marks = [*self.marks[max(0, len(self.marks) - 1) if not self.clean else len(self.marks):], self.now]
        self.ssd.pool.erase_stale(CAUSE_GC, self.ssd.now_ns)

    def device_ready(self, clean, at):
        self.marks = []
        self.found = self.now_at() if clean else at

    def kept(self):
        return sum(self.logs, [])
