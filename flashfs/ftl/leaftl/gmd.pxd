# The directory of LeaFTL's translation pages; see gmd.pyx.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from flashfs.parts.paged.paged_map cimport PageDirectory

cdef enum:
    REGION = 256             # groups


cdef struct TransPage:
    uint16_t first, n                      # groups of the region
    bint clean                             # flash has it unchanged; else it is in memory, and goes into the checkpoint
    bint here                              # its groups are in memory
    bint proved                            # written, or read and checked against validity, since the mount
    uint32_t bytes                         # of its groups, while it is clean and in memory

cdef struct Region:
    TransPage* pages                       # sorted; NULL: a single page, never written
    uint32_t* ppas                         # ``span`` for each page; NONE: unused
    uint16_t n, room


cdef class Gmd(PageDirectory):
    cdef readonly uint32_t groups
    cdef readonly uint32_t span            # most pages of flash of a translation page
    cdef readonly uint32_t pages_n         # of all regions
    cdef readonly uint64_t splits, merges
    cdef uint32_t regions_n
    cdef Region* regions
    cdef uint32_t groups_of(self, uint32_t region) noexcept nogil

    @cython.final
    cdef int release(self) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef int split_up(self, uint32_t region) except -1 nogil
    cdef int reserve(self, Region* region, uint32_t more) except -1 nogil
    cdef int insert(self, Region* region, uint32_t at, TransPage page, const uint32_t* ppas) except -1 nogil
    cdef int64_t place_of(self, uint32_t group) noexcept nogil
    cdef TransPage* replace(self, uint32_t region, uint32_t first, uint32_t n, const uint32_t* ppas) except NULL nogil
