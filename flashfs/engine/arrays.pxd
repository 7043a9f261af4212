# The engine's memory as numpy arrays.
from libc.stdint cimport uint16_t, uint32_t


cdef object array_u16(uint16_t* at, Py_ssize_t n)
cdef object array_u32(uint32_t* at, Py_ssize_t n)
