"""Growing arrays of records for recovery, in bounded memory.

The distance of checkpoints bounds how many pages a recovery finds, except for a device that has lost all checkpoints:
it finds every page of the chip. Arrays of more than ``memory_most`` bytes are in a mapped temporary file, so that the
kernel may write them out; its space is reserved before use, because a full disk would kill the process.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import os
import tempfile

cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t length)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED

cdef enum:
    LEAST = 1 << 14          # bytes


@cython.final
cdef class SpillArray:
    """Append records of ``size`` bytes with ``add``; they are at ``at``, end to end, and may move when one is added."""

    def __cinit__(self, uint32_t size, uint64_t memory_most):
        self.size = max(<uint32_t> 1, size)
        self.memory_most = memory_most

    def __dealloc__(self):
        self.release()

    cdef uint8_t* add(self) except NULL nogil:
        """The place of one more record, which the caller fills."""
        if (self.n + 1) * self.size > self.room:
            with gil:
                self.grow()
        self.n += 1
        return self.at + (self.n - 1) * self.size

    cdef int grow(self) except -1:
        """Double the room. MemoryError, or OSError if there is no space for the file."""
        cdef uint64_t room = max(<uint64_t> LEAST, 2 * self.room)
        cdef void* grown
        if self.file is None and self.room < self.memory_most:
            room = max((self.n + 1) * self.size, min(room, self.memory_most))
        if self.file is not None or room > self.memory_most:
            return self.to_file(room)
        grown = realloc(self.at, room)
        if grown == NULL:
            raise MemoryError
        want_huge_pages(grown, room)
        self.at = <uint8_t*> grown
        self.room = room
        return 0

    cdef int to_file(self, uint64_t room) except -1:
        cdef void* at
        file = self.file if self.file is not None else tempfile.TemporaryFile(prefix="flashfs-recovery-")
        os.posix_fallocate(file.fileno(), 0, room)
        at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, file.fileno(), 0)
        if at == MAP_FAILED:
            raise MemoryError
        if self.file is not None:
            munmap(self.at, self.room)
        else:
            memcpy(at, self.at, self.n * self.size)
            free(self.at)
        self.file = file
        self.at = <uint8_t*> at
        self.room = room
        return 0

    cdef int release(self) noexcept:
        """Remove all records and free the memory."""
        if self.file is not None:
            munmap(self.at, self.room)
            self.file.close()
            self.file = None
        else:
            free(self.at)
        self.at = NULL
        self.n = self.room = 0
        return 0
