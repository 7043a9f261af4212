# Optional calls to a mapping.
from libc.stdint cimport uint32_t

from flashfs.engine.contract.shown cimport Shown


cdef class Hooks(Shown):
    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil
    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil
    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil
    cdef int expect(self, uint32_t lpa) noexcept nogil
    cdef int moves_end(self) except -1 nogil
    cdef int superseded_left(self, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef bint release_superseded(self) except -1 nogil
    cdef int housekeep(self) except -1 nogil
