# The engine's default for each of the four parts.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.parts cimport Cleaning, Extent, Mapping, Placement, Validity


cdef class PageTable(Mapping):
    cdef uint32_t* table
    cdef int require_range(self) except -1
    cdef bint names_what_lives(self, uint64_t* seen, uint32_t* of_block) noexcept nogil
    cdef int require_agreement(self, uint64_t* seen) except -1


cdef class PageBitmap(Validity):
    cdef uint64_t* bits
    cdef uint32_t* bvc
    cdef uint32_t* next_of                 # victims by valid count: doubly linked lists, one a count
    cdef uint32_t* prev_of
    cdef uint32_t* first                   # [pages_per_block + 1]
    cdef uint8_t* listed
    cdef uint32_t lowest, pages_per_block, words, shift
    cdef uint64_t n_words

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil

    @cython.final
    cdef int link(self, uint32_t block, uint32_t count) noexcept nogil

    @cython.final
    cdef int unlink(self, uint32_t block, uint32_t count) noexcept nogil


cdef class Streams(Placement):
    cdef readonly uint32_t width_host, width_gc, stripe
    cdef uint32_t[5] width                 # of each stream
    cdef uint32_t[5] turn
    cdef uint32_t[5] left
    cdef uint32_t* open_of                 # [5][most dies]
    cdef uint32_t most
    cdef int shut(self, uint32_t* slot) noexcept nogil
    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil
    cdef uint32_t* open_slot(self, int stream) noexcept nogil


cdef class Greedy(Cleaning):
    pass
