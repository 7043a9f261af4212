# Consecutive pages of one block.
from libc.stdint cimport uint32_t


cdef struct Extent:
    uint32_t block, page, n
    uint32_t choice          # for the mapping: what placement chose in addition to the place; 0: nothing
