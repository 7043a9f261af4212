# Zero-copy reads: where the pages are in the image's memory mapping.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd
from nandimg._chip cimport Chip


cdef struct Piece:
    const uint8_t* data
    uint64_t size


cdef class ZeroCopy:
    cdef Ssd ssd
    cdef Chip chip
    cdef uint8_t* zeros                    # a page
    cdef uint32_t pieces_n
    cdef Piece* pieces
    cdef int64_t see(self, const uint32_t* lpas, uint32_t ppa, uint32_t n, int64_t t_ns,
                     uint32_t ahead) except -1 nogil
    cdef int add(self, const uint8_t* data, uint64_t size) noexcept nogil
    cdef int64_t find(self, uint64_t offset, uint64_t size, int64_t t_ns) except -1 nogil
