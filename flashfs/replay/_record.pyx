# distutils: sources = flashfs/replay/content_hash_avx2.c
"""The part of a recorder that runs in a request: it takes the time, hashes what is written, and keeps both in memory.

A request costs one uncontended lock, one reading of the clock, a few stores, and for writes a hash of each 4 KiB. This
module touches no file and never waits: another thread (flashfs.replay.trace_writer) empties the queue of full chunks.
When that queue is at its limit, requests are dropped and counted until there is room again.

A chunk in memory is columns with room for RECORDS entries each, and a column of WORDS hashes. It is columns and not
rows because a chunk in the file (docs/trace-format.md) is columns too.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

from flashfs.errors import UsageError

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    ctypedef uint64_t eventfd_t
    int eventfd(unsigned int value, int flags)
    int eventfd_write(int fd, eventfd_t value)

cdef extern from "content_hash.h" nogil:
    void xxh3_setup()
    uint64_t xxh3(const void* data, size_t n)

xxh3_setup()

cdef enum:
    RECORDS = 8192  # in a chunk: a sixth of a second of small requests on a fast mount
    WORDS = 32768
    RECORD_BYTES = 21  # time 4, operation 1, offset 8, length 8
    GRAIN = 4096
    HASHED = 0x80
    HASHES = 264  # for 1 MiB, the kernel's default largest write, and its unaligned ends

OPERATIONS = ("read", "write", "trim", "zero", "flush", "copy", "remap", "move")
CHUNK_BYTES = sizeof(Chunk) + RECORDS * RECORD_BYTES + WORDS * 8
CHUNK_RECORDS = RECORDS
CHUNK_WORDS = WORDS


cdef inline uint64_t clock_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec


cdef inline uint64_t grains(uint64_t offset, uint64_t length) noexcept nogil:
    """How many aligned pieces of 4 KiB a range touches."""
    return (offset + length - 1) // GRAIN - offset // GRAIN + 1 if length else 0


cdef void hash_grains(uint64_t* out, const uint8_t* data, uint64_t offset, uint64_t length) noexcept nogil:
    """Write to ``out`` a hash for each aligned piece of 4 KiB that the range touches. A hash covers only the bytes that
    are written, so those of the first and the last piece may be of less than 4 KiB."""
    cdef uint64_t step = GRAIN - offset % GRAIN
    while length:
        if step > length:
            step = length
        out[0] = xxh3(data, step)
        out += 1
        data += step
        length -= step
        step = GRAIN


cdef uint8_t* planes(uint8_t* out, const void* column, uint32_t n, int width) noexcept nogil:
    """Write the lowest bytes of all entries, then all second bytes, and so on: high bytes that hardly ever change then
    compress to almost nothing. Returns the end of what it wrote."""
    cdef const uint8_t* from_byte
    cdef int byte
    cdef uint32_t i
    for byte in range(width):
        from_byte = <const uint8_t*> column + byte
        for i in range(n):
            out[i] = from_byte[<size_t> i * width]
        out += n
    return out


cdef class Recorder:
    """Requests of a device of ``size_bytes``, in at most ``memory_bytes`` of chunks that wait to be written.

    Any thread may call any method; the trace has requests in the order in which they were noted.
    """

    def __cinit__(self, *args, **kwargs):
        pthread_mutex_init(&self.lock, NULL)
        self.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.bell < 0:
            raise OSError("no eventfd left for the recorder")

    def __init__(self, uint64_t size_bytes, uint64_t memory_bytes=64 << 20):
        if memory_bytes < 2 * CHUNK_BYTES:
            raise UsageError(f"memory of {memory_bytes} bytes: a recorder needs two chunks, {2 * CHUNK_BYTES}")
        self.size_bytes = size_bytes
        self.chunks_max = <uint32_t> (memory_bytes // CHUNK_BYTES)
        self.start_ns = clock_ns()

    def __dealloc__(self):
        cdef Chunk* chunk
        if self.open != NULL:
            free(self.open)
        for head in range(2):
            chunk = self.full if head else self.free
            while chunk != NULL:
                self.free = chunk.next
                free(chunk)
                chunk = self.free
        if self.bell >= 0:
            close(self.bell)
        pthread_mutex_destroy(&self.lock)

    # ---- what servers call

    cdef int note(self, int op, uint64_t offset, uint64_t length, const uint8_t* data) noexcept nogil:
        cdef uint64_t part
        cdef uint64_t part_max = <uint64_t> (WORDS - 1) * GRAIN
        cdef int lost = 0
        if data == NULL or length <= part_max:
            return self.put(op, offset, length, data, 0)
        while length:  # more than 128 MiB in one write: more hashes than a chunk holds
            part = part_max - offset % GRAIN  # so that parts meet on grain boundaries
            if part > length:
                part = length
            lost |= self.put(op, offset, part, data, 0)
            offset += part
            data += part
            length -= part
        return lost

    cdef int note_from(self, int op, uint64_t source, uint64_t offset, uint64_t length) noexcept nogil:
        return self.put(op, offset, length, NULL, source)

    def record(self, int op, uint64_t offset, uint64_t length, data=None):
        """``note`` for servers in Python: True if the request is in the trace. ``data`` is what a write writes."""
        cdef Py_buffer view
        cdef int lost
        if op < READ or op > FLUSH or length > self.size_bytes or offset > self.size_bytes - length:
            raise ValueError(f"operation {op}, offset {offset}, length {length}: not a request of this device")
        if data is None:
            return self.note(op, offset, length, NULL) == 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if op != WRITE or <uint64_t> view.len != length:
                raise ValueError(f"operation {op} of {length} bytes does not go with {view.len} bytes of data")
            lost = self.note(op, offset, length, <const uint8_t*> view.buf)
        finally:
            PyBuffer_Release(&view)
        return lost == 0

    def record_copy(self, uint64_t source, uint64_t offset, uint64_t length):
        """``note_from`` for servers in Python, of a copy: ``length`` bytes from ``source`` to ``offset``, both on this
        device."""
        return self.record_from(COPY, source, offset, length)

    def record_remap(self, uint64_t source, uint64_t offset, uint64_t length, bint move=False):
        """As ``record_copy``, of a remap or, with ``move``, of a move."""
        return self.record_from(MOVE if move else REMAP, source, offset, length)

    cdef record_from(self, int op, uint64_t source, uint64_t offset, uint64_t length):
        if length > self.size_bytes or offset > self.size_bytes - length or source > self.size_bytes - length:
            raise ValueError(f"{OPERATIONS[op]} of {length} bytes from {source} to {offset}: not a request of this "
                             "device")
        return self.note_from(op, source, offset, length) == 0

    def note_often(self, int op, uint64_t offset, uint64_t length, const uint8_t[::1] data, uint32_t times):
        """``note`` the same request ``times`` times, without the GIL, as a native server would: returns how many were
        dropped. For tests and measurements."""
        cdef const uint8_t* at = NULL
        cdef uint32_t _i, lost = 0
        if data is not None:
            if op != WRITE or <uint64_t> data.shape[0] != length:
                raise ValueError(f"operation {op} of {length} bytes does not go with {data.shape[0]} bytes of data")
            at = &data[0] if length else NULL
        with nogil:
            for _i in range(times):
                lost += self.note(op, offset, length, at)
        return lost

    # ---- memory

    cdef int put(self, int op, uint64_t offset, uint64_t length, const uint8_t* data, uint64_t source) noexcept nogil:
        cdef uint64_t hashes[HASHES]
        cdef uint64_t now
        cdef uint32_t words = 0, i
        cdef Chunk* chunk = NULL
        cdef bint hashed = op == WRITE and data != NULL
        if op >= COPY:
            words = 1
        elif hashed:
            words = <uint32_t> grains(offset, length)
            if words <= HASHES:  # what a FUSE request can hold: hashed outside the lock, in parallel with others
                hash_grains(hashes, data, offset, length)
        pthread_mutex_lock(&self.lock)
        now = clock_ns() - self.start_ns  # under the lock, so that times never go back
        if not self.stopped and READ <= op <= MOVE and length <= self.size_bytes and offset <= self.size_bytes - length:
            chunk = self.room(now, words)
        self.noted_n += 1
        if chunk == NULL:
            self.lost_n += 1
            pthread_mutex_unlock(&self.lock)
            return 1
        i = chunk.records
        chunk.gap_ns[i] = <uint32_t> (now - chunk.last_ns)
        chunk.operation[i] = op | HASHED if hashed else op
        chunk.offset[i] = offset
        chunk.length[i] = length
        if op >= COPY:
            chunk.word[chunk.words] = source
        elif words > HASHES:
            hash_grains(chunk.word + chunk.words, data, offset, length)
        else:
            memcpy(chunk.word + chunk.words, hashes, words * 8)
        chunk.words += words
        chunk.last_ns = now
        chunk.records = i + 1
        if chunk.records == RECORDS or chunk.words == WORDS:
            self.seal()
        pthread_mutex_unlock(&self.lock)
        return 0

    cdef Chunk* room(self, uint64_t now_ns, uint32_t words) noexcept nogil:
        """The open chunk, if the request fits in it, else a new one; NULL if no chunk is free and none can be made."""
        cdef Chunk* chunk = self.open
        if chunk != NULL:
            if chunk.words + words <= WORDS and now_ns - chunk.last_ns < <uint64_t> 1 << 32:
                return chunk
            self.seal()
        chunk = self.blank()
        if chunk != NULL:
            chunk.records = chunk.words = 0
            chunk.first_ns = chunk.last_ns = now_ns
            chunk.before = self.noted_n
            chunk.next = NULL
        self.open = chunk
        return chunk

    cdef void seal(self) noexcept nogil:
        """Queue the open chunk and ring the bell."""
        if self.full == NULL:
            self.full = self.open
        else:
            self.full_last.next = self.open
        self.full_last = self.open
        self.open = NULL
        eventfd_write(self.bell, 1)  # fails only after 2**64 rings that were never read

    cdef Chunk* blank(self) noexcept nogil:
        """A chunk that is free, or a new one while the limit allows it."""
        cdef Chunk* chunk = self.free
        cdef uint8_t* at
        if chunk != NULL:
            self.free = chunk.next
            return chunk
        if self.chunks == self.chunks_max:
            return NULL
        # One allocation; the widest columns come first, so that each is aligned.
        at = <uint8_t*> malloc(sizeof(Chunk) + RECORDS * RECORD_BYTES + WORDS * 8)
        if at == NULL:
            return NULL
        self.chunks += 1
        chunk = <Chunk*> at
        chunk.word = <uint64_t*> (at + sizeof(Chunk))
        chunk.offset = chunk.word + WORDS
        chunk.length = chunk.offset + RECORDS
        chunk.gap_ns = <uint32_t*> (chunk.length + RECORDS)
        chunk.operation = <uint8_t*> (chunk.gap_ns + RECORDS)
        return chunk

    cdef void give_back(self, Chunk* chunk) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        chunk.next = self.free
        self.free = chunk
        pthread_mutex_unlock(&self.lock)

    # ---- what the writing thread calls

    def take(self, bint unfinished):
        """The oldest full chunk as (records, words, first time in ns, requests noted before it, columns as in the
        file), or None. ``unfinished``: if no chunk is full, take the one that is being filled."""
        cdef Chunk* chunk
        cdef uint8_t* at
        cdef bytes out
        with nogil:
            pthread_mutex_lock(&self.lock)
            if self.full == NULL and unfinished and self.open != NULL:
                self.seal()
            chunk = self.full
            if chunk != NULL:
                self.full = chunk.next
            pthread_mutex_unlock(&self.lock)
        if chunk == NULL:
            return None
        try:
            out = PyBytes_FromStringAndSize(NULL, chunk.records * RECORD_BYTES + chunk.words * 8)
            at = <uint8_t*> PyBytes_AS_STRING(out)
            with nogil:
                at = planes(at, chunk.gap_ns, chunk.records, 4)
                at = planes(at, chunk.operation, chunk.records, 1)
                at = planes(at, chunk.offset, chunk.records, 8)
                at = planes(at, chunk.length, chunk.records, 8)
                memcpy(at, chunk.word, <size_t> chunk.words * 8)
            return chunk.records, chunk.words, chunk.first_ns, chunk.before, out
        finally:
            self.give_back(chunk)

    def stop(self):
        """Stop recording and drop the chunks that wait to be written. Counting goes on."""
        cdef Chunk* chunk
        pthread_mutex_lock(&self.lock)
        self.stopped = True
        if self.open != NULL:
            self.seal()
        while self.full != NULL:
            chunk = self.full
            self.full = chunk.next
            self.lost_n += chunk.records
            chunk.next = self.free
            self.free = chunk
        pthread_mutex_unlock(&self.lock)
        eventfd_write(self.bell, 1)

    def end(self):
        """Stop recording; chunks that wait can still be taken. Returns how many requests were ever noted."""
        pthread_mutex_lock(&self.lock)
        self.stopped = True
        pthread_mutex_unlock(&self.lock)
        eventfd_write(self.bell, 1)
        return self.noted_n

    @property
    def bell_descriptor(self):
        """An eventfd that is written to whenever there is something to take."""
        return self.bell

    @property
    def elapsed_ns(self):
        """ns since the recorder was made: the time scale of the trace."""
        return clock_ns() - self.start_ns

    @property
    def noted(self):
        """Requests so far, recorded or dropped."""
        return self.noted_n

    @property
    def lost(self):
        """Requests that were dropped and did not reach the writing thread."""
        return self.lost_n


def xxh3_64(const uint8_t[::1] data not None):
    """XXH3 (64 bits, seed 0) as writes are hashed."""
    return xxh3(&data[0] if data.shape[0] else NULL, data.shape[0])
