"""Memory of the engine's as an array of numpy's, which shares it: no copy is made, and the memory has to outlast it."""
from libc.stdint cimport uint16_t, uint32_t

import numpy


cdef object array_u16(uint16_t* at, Py_ssize_t n):
    """``n`` numbers, one at least."""
    cdef uint16_t[::1] view = <uint16_t[:n]> at
    return numpy.asarray(view)


cdef object array_u32(uint32_t* at, Py_ssize_t n):
    """``n`` numbers, one at least."""
    cdef uint32_t[::1] view = <uint32_t[:n]> at
    return numpy.asarray(view)
