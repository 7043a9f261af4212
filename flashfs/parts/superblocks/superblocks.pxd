# Superblocks, the blocks of equal offset on all dies, as the unit of allocation and of cleaning.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.streams cimport Streams


cdef class Superblocks(Streams):
    cdef readonly uint32_t dies, superblocks
    cdef uint32_t[32] offset               # the superblock that each stream fills, or NONE
    cdef uint8_t* to_open                  # [streams][dies]: the blocks of that superblock that are still to be opened
    cdef readonly uint64_t opened_n, whole_n   # superblocks that were begun; those begun with all of their blocks
    cdef uint32_t fresh_apart(self, int stream) except? 0xFFFFFFFE nogil
    cdef bint is_striped(self, int stream) noexcept nogil
    cdef bint turn_to(self, int stream) noexcept nogil
    cdef bint is_filled(self, uint32_t offset) noexcept nogil
    cdef bint choose(self, int stream) noexcept nogil


cdef class SuperblockGreedy(Greedy):
    cdef uint32_t* victims
    cdef readonly uint64_t cleaned_n       # superblocks
    cdef int empty(self, uint32_t offset) except -1 nogil
    cdef bint goes_alone(self, uint32_t block, uint64_t moves, uint64_t gain) noexcept nogil
    cdef bint may_go(self, uint32_t block) noexcept nogil
    cdef uint32_t fewest(self) noexcept nogil
    cdef uint64_t count(self, uint32_t offset, uint64_t* live) noexcept nogil
