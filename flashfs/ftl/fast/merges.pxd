# FAST's log blocks and merges; see merges.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs._core cimport Cleaning, Extent, Placement
from flashfs.ftl.fast.mapping cimport FastMapping


cdef class LogBlocks(Placement):
    cdef FastMapping map
    cdef Merges merges
    cdef int stream                        # of sequential log blocks
    cdef readonly uint32_t most            # log blocks, at most
    cdef readonly uint32_t sequential      # the sequential log block, or NONE
    cdef readonly uint32_t of              # ... the logical block that it belongs to
    cdef readonly uint32_t random          # the random log block that is open, or NONE
    cdef uint32_t* closed                  # the others, in the order in which they were opened
    cdef readonly uint32_t closed_n
    cdef uint32_t target                   # the block that a merge fills, or NONE
    cdef uint32_t target_of
    cdef bint broken                       # the target takes no more pages
    cdef uint32_t in_use(self) noexcept nogil
    cdef int take_target(self, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil
    cdef bint is_next(self, uint32_t lpa) except -1 nogil
    cdef int begin_sequential(self, uint32_t lbn) except -1 nogil
    cdef int take_random(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil
    cdef int find_room(self) except -1 nogil
    cdef int shut(self, uint32_t block) noexcept nogil
    cdef int close(self, uint32_t block) noexcept nogil
    cdef int gone(self, uint32_t block) noexcept nogil


cdef class Merges(Cleaning):
    cdef FastMapping map
    cdef LogBlocks place
    cdef uint32_t* ppas
    cdef uint32_t* lbns
    cdef readonly uint64_t switches, partials, fulls
    cdef int give_back(self, uint32_t block, int cause) except -1 nogil
    cdef int free_dead(self) except -1 nogil
    cdef int reclaim(self, uint32_t block, int cause) except -1 nogil
    cdef bint copy_to(self, uint32_t block, uint32_t lbn, uint32_t n, int stream, int cause) except -1 nogil
    cdef int merge(self, uint32_t lbn, int cause) except -1 nogil
    cdef int merge_sequential(self, int cause) except -1 nogil
