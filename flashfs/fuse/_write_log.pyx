"""The part of a tape that writes: every request that changes the device goes into a file, with its data.

A record is written before the device gets its request, by the request's thread, so what was acknowledged is on the
tape. Unlike for a trace, requests wait for it: a tape is for reproducing what a device held, not for measuring.
"""
from libc.errno cimport EINTR, EIO, errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.unistd cimport write

from flashfs.replay cimport _record
from flashfs.replay._record cimport Recorder, pthread_mutex_t

import os

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)

cdef enum:
    MARK_OP = 64  # above all operations of a trace

MARK = MARK_OP


cdef struct Head:  # flashfs.fuse.write_log reads it
    uint64_t offset
    uint64_t length
    uint64_t source
    uint32_t operation
    uint32_t data_bytes


cdef class TapeWriter(Recorder):
    """Writes records to the descriptor ``file``, which its owner closes. Any thread may call any method; the tape has
    requests in the order in which they were noted."""
    cdef int file
    cdef int error  # the errno of the write that failed: nothing is written after it
    cdef uint64_t bytes_n
    cdef pthread_mutex_t turn

    def __cinit__(self, *args, **kwargs):
        pthread_mutex_init(&self.turn, NULL)
        self.file = -1

    def __init__(self, uint64_t size_bytes, int file):
        super().__init__(size_bytes)
        self.file = file

    def __dealloc__(self):
        pthread_mutex_destroy(&self.turn)

    cdef int note(self, int op, uint64_t offset, uint64_t length, const uint8_t* data) noexcept nogil:
        if op == _record.READ:
            return 0
        return self.keep(op, offset, length, 0, data, length if data != NULL else 0)

    cdef int note_from(self, int op, uint64_t source, uint64_t offset, uint64_t length) noexcept nogil:
        return self.keep(op, offset, length, source, NULL, 0)

    def note_mark(self, bytes word not None):
        """Put the mark ``word`` on the tape, before all that is noted from now on. OSError if it cannot be written."""
        cdef const uint8_t* data = word
        cdef uint64_t length = len(word)
        cdef int lost
        with nogil:
            lost = self.keep(MARK_OP, 0, length, 0, data, length)
        if lost:
            raise OSError(self.error, os.strerror(self.error))

    cdef int keep(self, int op, uint64_t offset, uint64_t length, uint64_t source, const uint8_t* data,
                  uint64_t data_bytes) noexcept nogil:
        """Write a record. Returns 1 if it is not on the tape."""
        cdef Head head
        cdef int lost = 1
        head.offset, head.length, head.source = offset, length, source
        head.operation, head.data_bytes = op, <uint32_t> data_bytes
        pthread_mutex_lock(&self.turn)
        self.noted_n += 1
        if not self.error and data_bytes != head.data_bytes:
            self.error = EIO
        if not self.error and self.put_all(<const uint8_t*> &head, sizeof(head)) and self.put_all(data, data_bytes):
            lost = 0
        self.lost_n += lost
        pthread_mutex_unlock(&self.turn)
        return lost

    cdef bint put_all(self, const uint8_t* data, uint64_t left) noexcept nogil:
        cdef ssize_t n
        while left:
            n = write(self.file, data, <size_t> left)
            if n < 0 and errno == EINTR:
                continue
            if n <= 0:
                self.error = errno if n < 0 else EIO
                return False
            data += n
            left -= <uint64_t> n
            self.bytes_n += <uint64_t> n
        return True

    @property
    def error_number(self):
        """The errno that ended the tape, or 0."""
        return self.error

    @property
    def written(self):
        """Bytes that are on the tape."""
        return self.bytes_n
