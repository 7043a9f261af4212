# What a recovery asks and tells a map, and what checkpoints take of it.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.contract.owner cimport Owner


cdef class Recovered(Owner):
    cdef bint needs(self, uint32_t ppa, uint32_t lpa) except -1 nogil
    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa, bint* own) except? 0xFFFFFFFE nogil
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
    cdef int64_t pages_named(self) except -2 nogil
