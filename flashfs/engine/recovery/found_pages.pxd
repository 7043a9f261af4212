# The pages that a recovery found, by LPA; see found_pages.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.recovery.spill_array cimport SpillArray

cdef enum:
    SEQ_BITS = 48

cdef struct Entry:
    uint64_t word                          # u48 seq, u8 group, u8 flags of its OOB
    uint32_t key                           # its LPA; for other kinds of pages, which have separate tables, the id
    uint32_t ppa


cdef inline uint64_t entry_seq(const Entry* entry) noexcept nogil:
    return entry.word & ((<uint64_t> 1 << SEQ_BITS) - 1)

cdef inline uint8_t entry_flags(const Entry* entry) noexcept nogil:
    return <uint8_t> (entry.word >> 56)


cdef inline uint8_t entry_group(const Entry* entry) noexcept nogil:
    return <uint8_t> (entry.word >> SEQ_BITS)


@cython.final
cdef class FoundPages:
    cdef SpillArray records
    cdef const uint64_t* orders            # of the blocks
    cdef uint32_t pages_per_block
    cdef Entry* scratch
    cdef uint64_t scratch_n
    cdef Entry* entry(self, uint64_t i) noexcept nogil
    cdef uint64_t count(self) noexcept nogil
    cdef int add(self, uint64_t word, uint32_t key, uint32_t ppa) except -1 nogil
    cdef int drop_last(self) noexcept nogil
    cdef int sort(self, uint64_t keys) except -1 nogil
    cdef int sort_bucket(self, Entry* first, uint64_t n, int bits) noexcept nogil
    cdef int sort_group(self, Entry* first, uint64_t n) noexcept nogil
    cdef uint64_t first_of(self, uint64_t key) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef int release(self) noexcept
