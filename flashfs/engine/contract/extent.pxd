# Consecutive pages of one block.
from libc.stdint cimport uint32_t


cdef struct Extent:
    uint32_t block, page, n
    uint32_t choice          # placement's word to the mapping: what it chose beside the place; 0: nothing
