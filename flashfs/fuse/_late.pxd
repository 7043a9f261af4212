# Replies that wait for their virtual end.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from flashfs.fuse.includes.libfuse cimport fuse_req_t


cdef enum:
    REPLY_DATA = 0
    REPLY_WRITTEN = 1
    REPLY_DONE = 2


cdef struct Late:
    int64_t due_ns
    uint64_t number          # of replies due at the same time, the first added is sent first
    fuse_req_t req
    int kind
    uint8_t* data
    uint64_t size


cdef class LateReplies:
    cdef readonly uint64_t waiting
    cdef uint64_t room, number
    cdef Late* heap
    cdef int add(self, int64_t due_ns, fuse_req_t req, int kind, const uint8_t* data, uint64_t size) noexcept nogil
    cdef int64_t next_due(self) noexcept nogil
    cdef int send_due(self, int64_t now_ns) noexcept nogil
    cdef int drop_first(self) noexcept nogil


cdef int answer(fuse_req_t req, int kind, const uint8_t* data, uint64_t size) noexcept nogil
