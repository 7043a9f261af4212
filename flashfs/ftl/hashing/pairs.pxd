# (LPA, PPA) pairs; see pairs.pyx.
cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef struct Pair:
    uint32_t key, ppa        # key: the LPA's bits inverted; 0: the slot is empty


cdef class PairTable:
    cdef Pair* slots
    cdef uint32_t mask, shift
    cdef readonly uint32_t n               # entries

    @cython.final
    cdef inline uint32_t lpa_in(self, uint64_t slot) noexcept nogil:
        """The LPA in a slot; NONE: it is empty."""
        return ~self.slots[slot].key

    cdef uint32_t home(self, uint32_t lpa) noexcept nogil
    cdef uint32_t slot_of(self, uint32_t lpa) noexcept nogil
    cdef uint32_t find(self, uint32_t lpa) noexcept nogil
    cdef int put(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t drop(self, uint32_t lpa) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef int resize(self, uint32_t entries) except -1
