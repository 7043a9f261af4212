# Cleaning, the fewest live pages first; see greedy.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.contract.cleaning cimport Cleaning


cdef class Greedy(Cleaning):
    cdef uint64_t spared                   # a bit per stream that is never cleaned
    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil
    cdef uint32_t oldest(self) noexcept nogil
