"""Cleaning that leaves blocks of metadata alone until nothing in them lives: GeckoFTL's policy (N. Dayan et al.,
GeckoFTL, SIGMOD 2016, section 4.2), with an exception that keeps space from running out.

Metadata is superseded so soon that moving it is wasted work. But a page that is never written again holds its block
forever, with all dead pages in it, and enough such blocks leave no room for the host's pages. So when more blocks wait
than a share of the over-provisioning, the one with the fewest live pages is cleaned after all, and counted apart.
Retirement and wear levelling always move metadata.
"""
from libc.stdint cimport uint32_t

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_GC, NONE, STREAM_GC


cdef class MetadataAsideGc(Greedy):
    """As Greedy; blocks of the streams ``spares`` wait: at most ``needed``, which their pages need, plus ``share`` per
    cent of the over-provisioned blocks (at least one)."""

    def __cinit__(self, Engine ssd, uint32_t share, uint32_t needed, *, spares=()):
        cdef uint32_t data = (ssd.lpas + ssd.nand.pages_per_block - 1) // ssd.nand.pages_per_block
        extra = max(0, <int> ssd.nand.blocks - <int> data - <int> needed)
        self.held_most = needed + max(1, extra * share // 100)

    cdef bint holds_too_much(self) noexcept nogil:
        return self.ssd.victims.waiting_n > self.held_most

    cdef int clean(self) except -1 nogil:
        cdef uint32_t victim
        if self.holds_too_much():
            victim = self.ssd.victims.fewest_waiting()
            if victim != NONE and self.ssd.victims.valid[victim] < self.ssd.nand.pages_per_block:
                self.escapes += 1
                self.escaped_pages += self.ssd.victims.valid[victim]
                self.ssd.relocate(victim, STREAM_GC, CAUSE_GC)
                return 0
        victim = self.ssd.victims.fewest()
        if victim == NONE or self.ssd.victims.valid[victim] >= self.ssd.nand.pages_per_block:
            if self.ssd.mapping.release_superseded():
                return 0
        return Greedy.clean(self)
