# distutils: language = c++
"""The designs that Remap-SSD's paper compares it with (section 5.1): entries that are found at once, and one global log
of all entries, in NVRAM or in flash.

All of them keep entries by superblock, as in rmm.pyx, so map and recovery are not compared. They differ in the cost of
finding the entries of a superblock that is cleaned, and in when there is room for another entry: every entry takes room
in a global log until that is rewritten.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_MAP, NONE
from flashfs.ftl.remapssd.flashlog cimport FlashLog
from flashfs.ftl.remapssd.rmm cimport Claim, Rmm


cdef class IdealRmm(Rmm):
    """Entries are found at no cost."""

    cdef int64_t charge_lookup(self, uint32_t superblock, int cause, int64_t t_ns) except -1 nogil:
        return t_ns


cdef class GlobalLog(Rmm):
    """One log in NVRAM, with room for ``log_entries``, which cleaning reads from end to end."""

    def __cinit__(self, ssd, segment_bytes, entry_bytes, reserve, uint64_t log_entries):
        self.log_entries = log_entries

    def forget(self):
        Rmm.forget(self)
        self.log_n = 0

    def attach(self, store=True):
        Rmm.attach(self, store)
        self.log_n = self.valid_n

    cdef uint64_t entries_most(self) noexcept nogil:
        return min(Rmm.entries_most(self), self.log_entries)

    cdef int logged(self, const Claim* claim) noexcept nogil:
        self.log_n += 1
        return 0

    cdef bint takes_more(self) except -1 nogil:
        """Whether there is room; a full log is rewritten first."""
        if self.log_n + self.slots <= self.log_entries:
            return True
        if self.valid_n + 2 * self.slots > self.log_entries:
            return False
        self.reclaim(True)
        return True

    cdef int reclaim(self, bint reads) except -1 nogil:
        """Rewrite the log: read it from end to end, and put its valid entries into a new one. Without ``reads`` there
        is no log to read."""
        cdef uint32_t i
        if reads:
            self.reclaimed_n += 1
            self.ssd.map_ns = self.charge_lookup(0, CAUSE_MAP, self.ssd.map_ns)
        for i in range(<uint32_t> self.superblocks):
            if (self.groups[i].used > self.groups[i].valid
                    and self.segments_for(self.groups[i].valid) <= self.free_n):
                self.compact(i)
        self.write_anew()
        self.log_n = self.valid_n
        return 0

    cdef int write_anew(self) except -1 nogil:
        """Put the valid entries into a new log. In NVRAM the compaction of groups has done that."""
        return 0

    cdef int charge_compaction(self, uint32_t superblock) except -1 nogil:
        """Nothing: ``reclaim`` has read the whole log."""
        return 0

    cdef bint looks_up(self, uint32_t superblock) noexcept nogil:
        """Always, if the log has entries: which of them are the superblock's is not known without reading it."""
        return self.log_n > 0

    cdef int64_t charge_lookup(self, uint32_t superblock, int cause, int64_t t_ns) except -1 nogil:
        return self.ssd.nand.charge_load(self.at, self.log_n * self.entry_bytes, cause, t_ns)

    def capacity(self):
        return self.log_entries

    def figures(self):
        return {"rmm_logged": self.log_n}


cdef class GlobalLogInFlash(GlobalLog):
    """One log in flash (flashlog.pyx)."""

    def __cinit__(self, ssd, segment_bytes, entry_bytes, reserve, uint64_t log_entries):
        self.flog = FlashLog(ssd, log_entries, self.segments * self.slots)

    cdef int logged(self, const Claim* claim) noexcept nogil:
        self.flog.add(claim.lpa, claim.ppa, claim.seq, claim.source != NONE)
        return GlobalLog.logged(self, claim)

    cdef int write_anew(self) except -1 nogil:
        """Log every valid entry, to be programmed soon. Two entries that say the same of an LPA are both logged."""
        cdef uint32_t i, segment, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        self.flog.drop_all()
        for i in range(<uint32_t> self.superblocks):
            segment = self.groups[i].first
            while segment != NONE:
                if self.head(segment, &stamp, &high, &of, &number, &behind):
                    for slot in range(self.fill[segment]):
                        if self.entry(segment, slot, high, i, &claim) and self.holds(&claim, stamp):
                            self.flog.add(claim.lpa, claim.ppa, claim.seq, claim.source != NONE)
                segment = self.next_of[segment]
        return 0

    cdef int housekeep(self) except -1 nogil:
        """Program full pages of waiting entries; rewrite the log if it is full or not whole. Once: its valid entries
        alone may be more than it holds, for room is asked for by the segment."""
        cdef bint anew = False
        if self.ssd.frozen:
            return 0
        while not self.flog.is_whole() or self.flog.waiting_n >= self.flog.per_page:
            if self.log_n > self.log_entries or not self.flog.is_whole():
                if anew:
                    break
                anew = True
                self.reclaim(self.flog.is_whole())
                if self.flog.waiting_n < self.flog.per_page:
                    break
            self.flog.write_next()
        return 0

    cdef int64_t charge_lookup(self, uint32_t superblock, int cause, int64_t t_ns) except -1 nogil:
        return self.flog.read_all(cause, t_ns)

    cdef uint32_t pages_n(self) noexcept nogil:
        return self.flog.directory.n

    def owner(self):
        return self.flog.pages

    def reset_pages(self):
        self.flog.reset()

    def figures(self):
        return {**GlobalLog.figures(self), "flog_pages": self.flog.directory.n,
                "flog_programs": self.flog.pages.programs, "flog_reads": self.flog.pages.reads}

    def forget_counts(self):
        GlobalLog.forget_counts(self)
        self.flog.pages.forget_counts()

    def tables(self):
        return {"flash_log": self.flog.tables(), **GlobalLog.tables(self)}
