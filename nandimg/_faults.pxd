from libc.stdint cimport uint8_t, uint32_t, uint64_t

from nandimg._chip cimport Chip
from nandimg._nand cimport Nand


cdef class FaultyNand(Nand):
    cdef readonly Chip chip
    cdef readonly uint64_t operations      # changes since power came: page programs, erases, NVRAM and boot writes
    cdef readonly bint dead
    cdef uint64_t cut_at                   # the operation that the power does not survive; 0 is never
    cdef int cut_shape
    cdef object pending_cuts               # the cuts of the lives to come
    cdef set failing
    cdef object on_sync
    cdef bint has_failing
    cdef bint fails_now(self) except -1 nogil
    cdef int cut_now(self) except -1 nogil
