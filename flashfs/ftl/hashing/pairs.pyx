"""(LPA, PPA) pairs, fully associative: HPFTL's secondary table (J. Shin, SNU thesis, 2020, 2.2), FAST's map of its log
blocks.

A controller would search its pairs by content; here they are hashed, with open addressing. The mapping bounds their
number: the table itself grows when it must, which happens in a recovery only.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from flashfs.engine.blocks.pool cimport NONE

cdef extern from "huge.h" nogil:
    void zero_memory(void* at, size_t bytes)

PAIR_BYTES = 8  #: u32 LPA, u32 PPA


cdef class PairTable:
    """Room for ``entries`` pairs."""

    def __cinit__(self, uint32_t entries):
        self.resize(entries)

    def __dealloc__(self):
        free(self.slots)

    cdef uint32_t home(self, uint32_t lpa) noexcept nogil:
        return <uint32_t> ((lpa * <uint64_t> 0x9E3779B97F4A7C15) >> self.shift)

    cdef uint32_t slot_of(self, uint32_t lpa) noexcept nogil:
        """The slot of the LPA, or the empty slot where it would be."""
        cdef uint32_t at = self.home(lpa)
        while self.slots[at].key and self.slots[at].key != ~lpa:
            at = (at + 1) & self.mask
        return at

    cdef uint32_t find(self, uint32_t lpa) noexcept nogil:
        """The LPA's PPA; NONE if it is not in the table."""
        cdef uint32_t at = self.slot_of(lpa)
        return self.slots[at].ppa if self.slots[at].key else NONE

    cdef int put(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Enter the pair, replacing the LPA's old one. MemoryError if the table must grow and cannot."""
        cdef uint32_t at = self.slot_of(lpa)
        if self.slots[at].key == 0:
            if (self.n + 1) * <uint64_t> 8 > (self.mask + 1) * <uint64_t> 7:
                with gil:
                    self.resize(2 * self.n)
                at = self.slot_of(lpa)
            self.slots[at].key = ~lpa
            self.n += 1
        self.slots[at].ppa = ppa
        return 0

    cdef uint32_t drop(self, uint32_t lpa) noexcept nogil:
        """Remove the pair; returns its PPA, NONE if there was none. Later pairs of its cluster close the gap."""
        cdef uint32_t gap = self.slot_of(lpa), at, ppa
        if self.slots[gap].key == 0:
            return NONE
        ppa = self.slots[gap].ppa
        self.n -= 1
        at = gap
        while True:
            at = (at + 1) & self.mask
            if self.slots[at].key == 0:
                break
            if ((at - self.home(self.lpa_in(at))) & self.mask) >= ((at - gap) & self.mask):
                self.slots[gap] = self.slots[at]
                gap = at
        self.slots[gap].key = 0
        return ppa

    cdef int clear(self) noexcept nogil:
        zero_memory(self.slots, (<uint64_t> self.mask + 1) * sizeof(Pair))
        self.n = 0
        return 0

    cdef int resize(self, uint32_t entries) except -1:
        """Make room for so many pairs: seven eighths of a power of two. The pairs in the table stay."""
        cdef uint64_t room = 64, at, before = <uint64_t> self.mask + 1
        cdef Pair* old = self.slots
        cdef Pair* fresh
        while room * 7 // 8 <= entries:
            room *= 2
        fresh = <Pair*> calloc(room, sizeof(Pair))
        if fresh == NULL:
            raise MemoryError
        self.slots = fresh
        self.mask = <uint32_t> (room - 1)
        self.shift = 64 - (room.bit_length() - 1)
        self.n = 0
        if old != NULL:
            for at in range(before):
                if old[at].key:
                    self.put(~old[at].key, old[at].ppa)
            free(old)
        return 0

    @property
    def allocated(self):
        """Allocated bytes."""
        return (<uint64_t> self.mask + 1) * sizeof(Pair)

    def pairs(self):
        """[(LPA, PPA)], ascending."""
        cdef uint64_t at
        if self.n == 0:  # of a large chip the table has gigabytes
            return []
        return sorted((self.lpa_in(at), self.slots[at].ppa) for at in range(<uint64_t> self.mask + 1)
                      if self.slots[at].key)
