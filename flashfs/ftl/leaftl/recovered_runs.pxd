# What a recovery of LeaFTL has found so far; see recovered_runs.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef struct Found:           # an LPA and its PPA
    uint32_t lpa, ppa
    uint32_t number          # in the order of ``add``; its stamp is at number * stamp_bytes
    bint alone               # learned alone: its neighbours are unknown


cdef class FoundPages:
    cdef readonly uint32_t n
    cdef uint32_t gamma, pages_per_block, room, stamp_bytes
    cdef Found* found
    cdef uint8_t* stamps
    cdef int add(self, uint32_t lpa, uint32_t ppa, const uint8_t* stamp) except -1 nogil
    cdef int clear(self) noexcept nogil
    cdef int settle(self) noexcept nogil
    cdef uint32_t run(self, uint32_t first, uint32_t* lpas, uint32_t* ppas, uint32_t most) noexcept nogil
    cdef int grow(self) except -1 nogil
    cdef uint32_t entry(self, const Found* page, int64_t away) noexcept nogil
    cdef bint names_itself(self, const Found* page) noexcept nogil
    cdef bint are_of_one_run(self, const Found* a, const Found* b) noexcept nogil
