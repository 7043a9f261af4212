from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass

# What a record's operation may be. The numbers are in the file (docs/trace-format.md): a new one goes to the end.
cdef enum:
    READ = 0
    WRITE = 1
    TRIM = 2
    ZERO = 3
    FLUSH = 4
    COPY = 5
    REMAP = 6
    MOVE = 7


cdef struct Chunk:
    uint32_t records
    uint32_t words
    uint64_t first_ns
    uint64_t last_ns
    uint64_t before
    uint32_t* gap_ns
    uint8_t* operation
    uint64_t* offset
    uint64_t* length
    uint64_t* word
    Chunk* next


cdef class Recorder:
    # `note` and `note_from` are for servers, from any thread, with or without the GIL. Neither ever waits for a file.
    # They return 0 if the request is in the trace, 1 if it was dropped and counted. A request that does not lie within
    # the device is dropped. `data` are the `length` bytes of a write, hashed before the call returns; NULL for
    # everything else, and for a write whose data are not at hand, which is recorded without hashes. A flush has offset
    # 0 and length 0.
    cdef int note(self, int op, uint64_t offset, uint64_t length, const uint8_t* data) noexcept nogil
    # A copy, a remap or a move, of `length` bytes from `source` to `offset`.
    cdef int note_from(self, int op, uint64_t source, uint64_t offset, uint64_t length) noexcept nogil

    cdef pthread_mutex_t lock  # never held across a system call other than the one that rings the bell
    cdef Chunk* open
    cdef Chunk* full
    cdef Chunk* full_last
    cdef Chunk* free
    cdef uint32_t chunks, chunks_max
    cdef uint64_t start_ns, size_bytes, noted_n, lost_n
    cdef bint stopped
    cdef int bell

    cdef record_from(self, int op, uint64_t source, uint64_t offset, uint64_t length)
    cdef int put(self, int op, uint64_t offset, uint64_t length, const uint8_t* data, uint64_t source) noexcept nogil
    cdef Chunk* room(self, uint64_t now_ns, uint32_t words) noexcept nogil
    cdef void seal(self) noexcept nogil
    cdef Chunk* blank(self) noexcept nogil
    cdef void give_back(self, Chunk* chunk) noexcept nogil
