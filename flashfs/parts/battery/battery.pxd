from libc.stdint cimport int64_t, uint64_t

from nandimg._nand cimport Nand


cdef class Battery:
    cdef readonly Nand nand
    cdef readonly object name
    cdef readonly uint64_t words
    cdef uint64_t head_at                  # in the NVRAM
    cdef uint64_t body_at
    cdef const uint64_t* body              # where the words are; NULL before the region is begun or proved
    cdef uint64_t sum                      # of the words as they are
    cdef uint64_t turn                     # 0 or 1: which of the two sums the next put replaces
    cdef uint64_t get(self, uint64_t index) noexcept nogil
    cdef int64_t put(self, uint64_t index, uint64_t value, int cause, int64_t t_ns) except -1 nogil
    cdef int64_t put_range(self, uint64_t first, const uint64_t* values, uint64_t n, int cause,
                           int64_t t_ns) except -1 nogil
    cdef int64_t put_bits(self, uint64_t first, uint64_t n, bint on, int cause, int64_t t_ns) except -1 nogil
    cdef bint bit(self, uint64_t number) noexcept nogil
    cdef int64_t disown(self, int cause) except -1 nogil
    cdef int breach(self, uint64_t first, uint64_t n) except -1 nogil
