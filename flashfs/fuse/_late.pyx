# cold
# pkg-config: fuse3
"""Replies that wait until the virtual end of what they answer, so that the host feels the chip: ``--realtime``.

A heap by due time. It copies the data of read replies, because the next request uses the buffer that they were read to.
"""
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from flashfs.fuse.includes.libfuse cimport fuse_reply_buf, fuse_reply_err, fuse_reply_write, fuse_req_t


cdef int answer(fuse_req_t req, int kind, const uint8_t* data, uint64_t size) noexcept nogil:
    """Send the reply to the kernel now. The kernel refuses it if the process that asked was killed: that is ignored."""
    if kind == REPLY_DATA:
        return fuse_reply_buf(req, <const char*> data, size)
    if kind == REPLY_WRITTEN:
        return fuse_reply_write(req, size)
    return fuse_reply_err(req, 0)


cdef bint before(const Late* a, const Late* b) noexcept nogil:
    return a.due_ns < b.due_ns or (a.due_ns == b.due_ns and a.number < b.number)


cdef class LateReplies:
    """Not for more than one thread at a time."""

    def __dealloc__(self):
        cdef uint64_t i
        for i in range(self.waiting):  # the session is gone, and its requests with it
            free(self.heap[i].data)
        free(self.heap)

    cdef int add(self, int64_t due_ns, fuse_req_t req, int kind, const uint8_t* data, uint64_t size) noexcept nogil:
        """Answer ``req`` at ``due_ns``; at once, with ENOMEM, if there is no memory to wait in."""
        cdef Late one
        cdef Late* grown
        cdef uint64_t at, parent
        if self.waiting == self.room:
            grown = <Late*> realloc(self.heap, (2 * self.room + 64) * sizeof(Late))
            if grown == NULL:
                return fuse_reply_err(req, ENOMEM)
            self.heap = grown
            self.room = 2 * self.room + 64
        one.due_ns = due_ns
        one.number = self.number
        one.req = req
        one.kind = kind
        one.data = NULL
        one.size = size
        if kind == REPLY_DATA:
            one.data = <uint8_t*> malloc(size)
            if one.data == NULL:
                return fuse_reply_err(req, ENOMEM)
            memcpy(one.data, data, size)
        self.number += 1
        at = self.waiting
        self.waiting += 1
        while at:
            parent = (at - 1) // 2
            if not before(&one, self.heap + parent):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = one
        return 0

    cdef int64_t next_due(self) noexcept nogil:
        """When the next reply is due, in ns; -1 if none waits."""
        return self.heap[0].due_ns if self.waiting else -1

    cdef int send_due(self, int64_t now_ns) noexcept nogil:
        """Send all replies that are due; INT64_MAX sends all that wait."""
        cdef Late one
        while self.waiting and self.heap[0].due_ns <= now_ns:
            one = self.heap[0]
            self.drop_first()
            answer(one.req, one.kind, one.data, one.size)
            free(one.data)
        return 0

    cdef int drop_first(self) noexcept nogil:
        cdef uint64_t at = 0, child
        cdef Late last
        self.waiting -= 1
        last = self.heap[self.waiting]
        while 2 * at + 1 < self.waiting:
            child = 2 * at + 1
            if child + 1 < self.waiting and before(self.heap + child + 1, self.heap + child):
                child += 1
            if not before(self.heap + child, &last):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = last
        return 0
