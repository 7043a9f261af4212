from libc.stdint cimport uint32_t, uint64_t

from nandimg._chip cimport Chip
from nandimg._nand cimport Nand


cdef class NandFilter(Nand):
    cdef readonly Nand inner
    cdef readonly Chip chip                # at the bottom of the stack, which faults damage
