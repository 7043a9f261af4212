# Requests in bytes, as a server gets them; flashfs.engine.device.ssd.Ssd takes pages.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd


cdef int64_t read_bytes(Ssd ssd, uint64_t offset, uint64_t size, uint8_t* into, int64_t t_ns) except -1 nogil
cdef int64_t write_bytes(Ssd ssd, uint64_t offset, uint64_t size, const uint8_t* data, int64_t t_ns) except -1 nogil
cdef int64_t trim_bytes(Ssd ssd, uint64_t offset, uint64_t size, int64_t t_ns) except -1 nogil
cdef int64_t copy_bytes(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                        uint64_t scratch_bytes, int64_t t_ns) except -1 nogil
cdef int64_t remap_bytes(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, bint move, uint8_t* scratch,
                         uint64_t scratch_bytes, int64_t t_ns) except -1 nogil
cdef uint64_t seek_mapped(Ssd ssd, uint64_t offset, uint64_t size, bint mapped) except? 0xFFFFFFFFFFFFFFFF nogil
