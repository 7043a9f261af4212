# Remaps, moves and copies of whole pages; see remaps.pyx.
from libc.stdint cimport int64_t, uint32_t

from flashfs.engine.device.ssd cimport Ssd


cdef int64_t remap(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move, int64_t t_ns) except -1 nogil
cdef int64_t remap_at_once(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move,
                           int64_t t_ns) except -1 nogil
