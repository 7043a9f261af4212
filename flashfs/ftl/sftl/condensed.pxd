# S-FTL's cache of condensed translation pages; see condensed.pyx.
from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    INLINE = 4               # heads of runs in the node itself


cdef struct Node:                          # ``words`` of bits follow, one for each entry: whether it begins a run
    uint32_t page
    uint32_t older, newer                  # of the LRU of pages
    uint32_t runs
    uint32_t chunks                        # the unit with further heads; NONE: none
    uint32_t dirty                         # the unit with a bit for each dirty entry; NONE: none is dirty
    uint32_t dirty_n
    uint32_t used_in                       # the last batch that used it
    uint32_t[4] heads


cdef class CondensedPages:
    cdef readonly uint32_t units, free_n, unit_bytes, pages_n, dirty_n
    cdef readonly uint64_t runs            # of all cached pages
    cdef readonly uint32_t pages, per_page, words, a_chunk
    cdef readonly uint32_t batch
    cdef char* arena
    cdef uint32_t* node_of                 # the unit of each translation page
    cdef uint32_t* heads                   # heads of a page that is being changed
    cdef uint32_t free                     # first free unit; free units are chained
    cdef uint32_t oldest, newest
    cdef uint64_t free_bytes(self) noexcept nogil
    cdef int allocate(self, uint32_t units) except -1
    cdef int clear(self) noexcept nogil
    cdef Node* node(self, uint32_t unit) noexcept nogil
    cdef uint64_t* bits(self, Node* node) noexcept nogil
    cdef uint64_t* dirty_bits(self, const Node* node) noexcept nogil
    cdef uint32_t* words_of(self, uint32_t unit) noexcept nogil
    cdef uint32_t take(self) noexcept nogil
    cdef int give(self, uint32_t unit) noexcept nogil
    cdef int link(self, uint32_t unit) noexcept nogil
    cdef int unlink(self, uint32_t unit) noexcept nogil
    cdef int use(self, uint32_t unit) noexcept nogil
    cdef uint32_t victim(self) noexcept nogil
    cdef int next_batch(self) noexcept nogil
    # heads
    cdef uint32_t units_for(self, uint32_t runs) noexcept nogil
    cdef uint32_t* head_at(self, Node* node, uint32_t run) noexcept nogil
    cdef int resize(self, Node* node, uint32_t runs) noexcept nogil
    cdef int copy_heads(self, Node* node, uint32_t first, uint32_t n, uint32_t* heads, bint back) noexcept nogil
    # entries
    cdef uint32_t rank(self, const uint64_t* bits, uint32_t offset, uint32_t* start) noexcept nogil
    cdef uint32_t get(self, Node* node, uint32_t offset) noexcept nogil
    cdef uint32_t runs_in(self, const uint32_t* image) noexcept nogil
    cdef uint32_t insert(self, uint32_t page, const uint32_t* image, uint32_t runs) noexcept nogil
    cdef bint put(self, uint32_t unit, uint32_t offset, uint32_t ppa) noexcept nogil
    cdef int splice(self, Node* node, uint32_t run, uint32_t out, const uint32_t* heads, uint32_t n) noexcept nogil
    cdef bint mark(self, uint32_t unit, uint32_t offset) noexcept nogil
    cdef bint mark_all(self, uint32_t unit, uint32_t n) noexcept nogil
    cdef int expand(self, uint32_t unit, uint32_t* image) noexcept nogil
    cdef uint32_t list_dirty(self, uint32_t unit, uint32_t* offsets, uint32_t* ppas) noexcept nogil
    cdef int clean(self, uint32_t unit) noexcept nogil
    cdef int drop(self, uint32_t unit) noexcept nogil
