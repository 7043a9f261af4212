# Extensions of a mapping: members of it, None unless it has them.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class Sharing:
    cdef readonly bint names_sharers       # it knows all LPAs at a page, each by its own number: see resolve.pyx
    cdef bint is_page_of(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil
    cdef bint shared_by_others(self, uint32_t ppa, uint32_t lpa) except -1 nogil
    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa, bint* own) except? 0xFFFFFFFE nogil


cdef class Remapping:
    cdef readonly bint atomic              # a host command is remapped as a whole, or refused
    cdef uint32_t room(self, uint32_t target, uint32_t source, uint32_t n, bint move) except? 0xFFFFFFFF nogil
    cdef int run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                 uint32_t* olds) except -1 nogil


cdef class Deduplication:
    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, const uint64_t* words,
                       int64_t t_ns) except -1 nogil


cdef class Runs:
    cdef int ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
