# FAST's two maps; see mapping.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs._core cimport Mapping
from flashfs.ftl.hashing.pairs cimport PairTable


cdef class FastMapping(Mapping):
    cdef uint32_t* data                    # of each logical block, its data block, or NONE
    cdef uint8_t* bits                     # of each LPA, whether it is mapped
    cdef readonly PairTable log            # LPAs whose newest page is not at their place in the data block
    cdef readonly uint32_t logical_blocks
    cdef readonly uint32_t per_block
    cdef readonly uint32_t log_pages       # pages of all log blocks
    cdef readonly uint64_t mapped_n
    cdef bint is_mapped(self, uint32_t lpa) noexcept nogil
    cdef uint32_t place_of(self, uint32_t lpa) noexcept nogil
    cdef uint32_t in_data(self, uint32_t lpa) noexcept nogil
    cdef int enter(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t data_block(self, uint32_t lbn) noexcept nogil
    cdef uint32_t list_pages(self, uint32_t lbn, uint32_t first, uint32_t* ppas) noexcept nogil
    cdef uint32_t list_logical(self, uint32_t block, uint32_t* lbns) noexcept nogil
    cdef uint32_t owner(self, uint32_t block) noexcept nogil
    cdef int forget(self, uint32_t block) except -1 nogil
    cdef int settle(self, uint32_t lbn, uint32_t block) except -1 nogil
