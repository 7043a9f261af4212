# The engine's default for each of the four parts.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity


cdef class PageTable(Mapping):
    cdef uint32_t* table                   # ~PPA of each LPA; 0: not mapped
    cdef int require_range(self) except -1

    @cython.final
    cdef uint32_t next_mapped(self, uint32_t lpa) noexcept nogil

    @cython.final
    cdef inline uint32_t at(self, uint32_t lpa) noexcept nogil:
        """The PPA of an LPA; NONE: not mapped."""
        return ~self.table[lpa]

    @cython.final
    cdef inline int put(self, uint32_t lpa, uint32_t ppa) noexcept nogil:
        self.table[lpa] = ~ppa
        return 0


cdef class PageBitmap(Validity):
    cdef uint64_t* bits
    cdef uint32_t pages_per_block, words_a_block, shift
    cdef uint64_t n_words

    @cython.final
    cdef uint32_t bits_of(self, uint32_t block) noexcept nogil

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil

    @cython.final
    cdef int come(self, uint32_t ppa) noexcept nogil


cdef class Streams(Placement):
    cdef readonly uint32_t width_host, width_gc, stripe
    cdef uint32_t[32] width                # of each stream
    cdef uint32_t[32] turn
    cdef uint32_t[32] left
    cdef uint32_t* open_of                 # [streams][most]
    cdef uint32_t most, streams_n
    cdef int learn_streams(self) except -1
    cdef bint takes_more(self, uint32_t block, int stream) except -1 nogil
    cdef uint32_t stripe_of(self, int stream) noexcept nogil
    cdef int shut(self, uint32_t* slot) noexcept nogil
    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil
    cdef uint32_t* open_slot(self, int stream) noexcept nogil


cdef class Greedy(Cleaning):
    cdef uint64_t spared                   # a bit per stream that is never cleaned
    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil
    cdef uint32_t oldest(self) noexcept nogil
