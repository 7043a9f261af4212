# Cleaning that leaves metadata alone; see metadata_aside_gc.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.defaults.greedy cimport Greedy


cdef class MetadataAsideGc(Greedy):
    cdef readonly uint32_t held_most       # blocks
    cdef readonly uint64_t escapes, escaped_pages
    cdef bint holds_too_much(self) noexcept nogil
