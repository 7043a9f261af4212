# Arrays of records for recovery; see spill_array.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t


@cython.final
cdef class SpillArray:
    cdef uint8_t* at                       # ``n`` records of ``size`` bytes
    cdef readonly uint64_t n
    cdef readonly uint32_t size
    cdef readonly uint64_t memory_most     # bytes; beyond that, a temporary file is used
    cdef uint64_t room                     # bytes
    cdef object file                       # None while all is in memory
    cdef uint8_t* add(self) except NULL nogil
    cdef int grow(self) except -1
    cdef int to_file(self, uint64_t room) except -1
    cdef int release(self) noexcept
