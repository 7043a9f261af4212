# Placement by appending; see streams.pyx.
from libc.stdint cimport int64_t, uint32_t

from flashfs.engine.contract.placement cimport Placement


cdef class Streams(Placement):
    cdef readonly uint32_t width_host, width_gc, stripe
    cdef uint32_t[32] width                # of each stream
    cdef uint32_t[32] turn
    cdef uint32_t[32] left
    cdef uint32_t* open_of                 # [streams][most]
    cdef uint32_t most, streams_n
    cdef bint map_together                 # their blocks are opened together, after half of them were filled
    cdef bint map_opens                    # then: they are being opened
    cdef int64_t map_enough                # the turn stays until so many live on its die
    cdef int map_die                       # the die on which their next block is wanted, or -1
    cdef bint is_spread(self, int stream) noexcept nogil
    cdef int turn_to_emptiest(self) except -1 nogil
    cdef int learn_streams(self) except -1
    cdef bint takes_more(self, uint32_t block, int stream) except -1 nogil
    cdef int shut(self, uint32_t* slot) noexcept nogil
    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil
    cdef uint32_t* open_slot(self, int stream) noexcept nogil
