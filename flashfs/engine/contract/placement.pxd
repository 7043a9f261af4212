# Where may these pages be programmed?
from libc.stdint cimport uint32_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.extent cimport Extent


cdef class Placement:
    cdef readonly Engine ssd
    cdef int make_ready(self, int stream) except -1 nogil
    cdef readonly bint pads                # a flush pads the host's open blocks
    cdef readonly bint refills             # ``attach`` takes a block of cleaning's stream that a recovery left open
    cdef uint32_t run_room(self, int stream) noexcept nogil
    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil
    cdef int failed(self, uint32_t block) except -1 nogil
    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil
    cdef int finish(self, int stream) except -1 nogil
