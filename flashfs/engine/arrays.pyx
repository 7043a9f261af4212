"""The engine's memory as numpy arrays. They share it (no copy), so the memory must outlive the array."""
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
