# Whether mapping and validity agree; see map_check.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef class MapCheck:
    cdef Engine ssd
    cdef uint64_t pages                    # of the chip
    cdef uint64_t* seen                    # a bit per page: a mapped one
    cdef uint32_t* of_block
    cdef readonly uint64_t mapped          # pages that were entered
    cdef readonly bint shares              # several LPAs may share a page, which counts once
    cdef int clear(self) noexcept nogil
    cdef bint enter_all(self, const uint32_t* ppas, uint32_t n, uint32_t inverted) noexcept nogil
    cdef bint is_whole(self) except -1 nogil
    cdef uint32_t first_unnamed(self, uint64_t* live) except? 0xFFFFFFFE nogil
    cdef uint32_t unnamed(self) except? 0xFFFFFFFE nogil
    cdef bint enter(self, uint32_t ppa) except -1 nogil
    cdef int require(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef str fault_of(self, uint32_t lpa, uint32_t ppa)
    cdef str fault_of_all(self, uint64_t others, bint some_unknown=*)
    cdef uint64_t strays_of_validity(self)
    cdef str fault_of_counts(self, const uint32_t* ppas, uint32_t n, uint32_t inverted)
