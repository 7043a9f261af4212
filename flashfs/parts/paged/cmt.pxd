# The cached mapping table; see cmt.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cpdef enum:
    ENTRY_BYTES = 29         # the most that a slot takes: six words, its flags, and its share of the hash table


cdef enum:                   # flags of a slot that mappings use, beside the CMT's own
    AGED = 128               # dirty since before the last fence


cdef class Cmt:
    cdef readonly uint32_t slots, used, protected_most, protected_n, dirty_n
    cdef uint32_t* lpa
    cdef uint32_t* ppa
    cdef uint32_t* older                   # of its segment: the one that leaves before it
    cdef uint32_t* newer
    cdef uint32_t* chain                   # of its bucket
    cdef uint32_t* next_dirty              # of its translation page
    cdef uint32_t* first_dirty             # of each translation page
    cdef uint32_t* page_before             # of each translation page with dirty entries: the queue, if there is one
    cdef uint32_t* page_behind
    cdef readonly uint32_t first_page, last_page  # of that queue; NONE: no entry is dirty
    cdef readonly bint queued
    cdef readonly uint32_t pages, per_page
    cdef uint8_t* flags
    cdef uint32_t* buckets
    cdef uint32_t bucket_bits
    cdef uint32_t[2] oldest                # of each segment
    cdef uint32_t[2] newest
    cdef uint32_t free                     # slots that hold nothing, chained
    cdef int allocate(self, uint32_t slots) except -1
    cdef int clear(self) noexcept nogil
    cdef uint64_t free_bytes(self) noexcept nogil
    cdef uint32_t bucket_of(self, uint32_t lpa) noexcept nogil
    cdef uint32_t find(self, uint32_t lpa) noexcept nogil
    cdef int touch(self, uint32_t slot) noexcept nogil
    cdef uint32_t victim(self) noexcept nogil
    cdef uint32_t insert(self, uint32_t lpa, uint32_t ppa, bint dirty) noexcept nogil
    cdef int remove(self, uint32_t slot) noexcept nogil
    cdef int put(self, uint32_t slot, uint32_t ppa) noexcept nogil
    cdef int mark(self, uint32_t slot) noexcept nogil
    cdef int clean_page(self, uint32_t page) noexcept nogil
    cdef int forget_page(self, uint32_t page) noexcept nogil
    cdef bint is_dirty(self, uint32_t slot) noexcept nogil
    cdef int enqueue(self, uint32_t page) noexcept nogil
    cdef int dequeue(self, uint32_t page) noexcept nogil
    cdef int link(self, uint32_t slot, int segment) noexcept nogil
    cdef int unlink(self, uint32_t slot) noexcept nogil
