# Which block is cleaned next, and where do its pages go?
from libc.stdint cimport uint32_t

from flashfs.engine.contract.engine cimport Engine


cdef class Cleaning:
    cdef readonly Engine ssd
    cdef readonly bint open_blocks_rest    # a block may stay open for long: wear levelling considers open blocks too
    cdef int clean(self) except -1 nogil
    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil
    cdef bint cleans(self, int stream) noexcept nogil
