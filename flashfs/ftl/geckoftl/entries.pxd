# Gecko entries, packed, and a sorted list of them; see entries.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cpdef enum:
    KEY_BYTES = 4

cdef enum:                   # flags in a key's lowest bits
    ERASED = 1               # older entries of the block are void
    FLAG_BITS = 1


cdef inline uint32_t key_of(const uint8_t* entry) noexcept nogil:
    cdef uint32_t key
    memcpy(&key, entry, 4)
    return key

cdef inline uint32_t slot_of(const uint8_t* entry) noexcept nogil:
    return key_of(entry) >> FLAG_BITS


cdef class Layout:
    cdef readonly uint32_t pages_per_block, parts, chunk_pages, chunk_bytes, entry_bytes
    cdef uint32_t slot(self, uint32_t block, uint32_t page) noexcept nogil


cdef class EntryList:
    cdef Layout layout
    cdef uint8_t* at
    cdef readonly uint32_t n, room
    cdef uint32_t last                     # place of the newest entry: the next report is often of the same block
    cdef uint32_t first_from(self, uint32_t slot) noexcept nogil
    cdef uint8_t* open_at(self, uint32_t slot, uint32_t i) except NULL nogil
    cdef bint set_invalid(self, uint32_t block, uint32_t page) except -1 nogil
    cdef int set_erased(self, uint32_t block) except -1 nogil
    cdef int drop(self, uint32_t block) noexcept nogil
    cdef int clear(self) noexcept nogil


cdef bint gather(Layout layout, const uint8_t* at, uint32_t n, uint32_t block, uint64_t* words) noexcept nogil
cdef uint32_t lower(const uint8_t* at, uint32_t n, uint32_t entry_bytes, uint32_t slot) noexcept nogil
cdef int or_chunk(Layout layout, uint64_t* words, uint32_t part, const uint8_t* chunk) noexcept nogil
cdef bint take_chunk(Layout layout, const uint64_t* words, uint32_t part, uint8_t* chunk) noexcept nogil
