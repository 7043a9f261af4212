# Consecutive pages of one block, and how many pages a request is cut into.
from libc.stdint cimport uint32_t

cdef enum:
    RUN = 256                # the most pages of one step of a request


cdef struct Extent:
    uint32_t block, page, n
    uint32_t choice          # for the mapping: what placement chose in addition to the place; 0: nothing
