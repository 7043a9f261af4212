# Reference counts as a validity store; see counts.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.validity cimport Validity
from flashfs.ftl.remapssd.fingerprints cimport Prints

cdef enum:
    COUNT_MOST = 15          # the largest count of four bits


cdef class ReferenceCounts(Validity):
    cdef uint8_t* nibbles                  # two pages a byte, the lower page in the low half
    cdef Prints prints                     # fingerprints, if pages are deduplicated, or None
    cdef const uint32_t* table             # the mapping's table, ``lpas`` entries
    cdef uint32_t pages_per_block, lpas, shift
    cdef uint64_t pages_n
    cdef readonly uint64_t over_n          # references beyond what four bits can count
    cdef bint shared                       # some page had two LPAs or more when all were counted

    @cython.final
    cdef inline uint32_t at(self, uint32_t lpa) noexcept nogil:
        """The PPA of an LPA, or NONE: as PageTable's."""
        return ~self.table[lpa]

    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil
    cdef uint32_t get(self, uint32_t ppa) noexcept nogil
    cdef int put(self, uint32_t ppa, uint32_t count) noexcept nogil
    cdef uint32_t next_lpa(self, uint32_t lpa) noexcept nogil
    cdef uint64_t next_counted(self, uint64_t ppa) noexcept nogil
    cdef uint64_t next_of_either(self, const uint8_t[::1] n, uint64_t ppa) noexcept
    cdef uint32_t drop(self, uint32_t ppa) noexcept nogil
    cdef int carry(self, uint32_t old, uint32_t new) noexcept nogil
    cdef uint64_t extra(self) noexcept nogil
