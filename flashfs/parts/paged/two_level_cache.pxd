# TPFTL's two-level cache of entries; see two_level_cache.pyx.
from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef enum:
    UNIT_BYTES = 64          # of a node, and of a chunk of entries
    CHUNK = 9                # entries of a chunk


cdef struct Chunk:
    uint32_t[9] ppa
    uint32_t next                          # the chunk with entries used longer ago; of a free unit: the next free one
    uint32_t before
    uint16_t[9] at                         # offset in the translation page
    uint16_t dirty                         # a bit for each place


cdef struct Node:
    uint64_t hot                           # average time of its entries' last use, in 1 / 65,536 of a lookup
    uint32_t page
    uint32_t head, tail                    # its first and its last chunk
    uint32_t skip                          # places of the first chunk that hold nothing
    uint32_t n, dirty_n
    uint32_t heap_at
    uint32_t used_in                       # the batch that used it last,
    uint32_t used_n                        # and how many entries of it: they are its first


cdef struct Spot:                          # where an entry is
    uint32_t chunk, place
    uint32_t index                         # in the order of its node, the one used last is 0


cdef class TwoLevelCache:
    cdef readonly uint32_t units, free_n, nodes_n, used, dirty_n
    cdef readonly uint32_t pages, per_page
    cdef readonly uint64_t births, deaths  # of nodes
    cdef readonly int balance              # births less deaths since it last reached its bound
    cdef readonly bint selective           # whether selective prefetching is on
    cdef char* arena
    cdef uint32_t* node_of                 # of each translation page: its unit
    cdef uint32_t* heap                    # of units, the coldest node first
    cdef uint32_t heap_room
    cdef uint32_t free                     # units that hold nothing, chained
    cdef uint64_t clock
    cdef uint32_t batch
    cdef uint64_t free_bytes(self) noexcept nogil
    cdef int allocate(self, uint32_t units) except -1
    cdef int clear(self) noexcept nogil
    cdef Node* node(self, uint32_t unit) noexcept nogil
    cdef Chunk* chunk(self, uint32_t unit) noexcept nogil
    cdef uint32_t take(self) noexcept nogil
    cdef int give(self, uint32_t unit) noexcept nogil
    cdef int count_node(self, int step) noexcept nogil
    # the heap of nodes
    cdef int put_at(self, uint32_t at, uint32_t unit) noexcept nogil
    cdef bint colder(self, uint32_t one, uint32_t two) noexcept nogil
    cdef int sift_up(self, uint32_t at) noexcept nogil
    cdef int sift_down(self, uint32_t at) noexcept nogil
    cdef int leave_heap(self, uint32_t at) noexcept nogil
    cdef uint32_t coldest(self) noexcept nogil
    # entries
    cdef bint find(self, uint32_t page, uint32_t offset, Spot* spot) noexcept nogil
    cdef uint32_t units_for(self, uint32_t page) noexcept nogil
    cdef bint use(self, uint32_t page, uint32_t offset) noexcept nogil
    cdef int insert(self, uint32_t page, uint32_t offset, uint32_t ppa, bint dirty, bint asked) noexcept nogil
    cdef int put(self, uint32_t page, const Spot* spot, uint32_t ppa) noexcept nogil
    cdef bint leaver(self, uint32_t unit, Spot* spot) noexcept nogil
    cdef int remove(self, uint32_t unit, const Spot* spot) noexcept nogil
    cdef int clean_page(self, uint32_t page) noexcept nogil
    cdef int forget_page(self, uint32_t page) noexcept nogil
    cdef uint32_t dirty_of(self, uint32_t page, uint32_t offset, uint32_t n, uint32_t* image) noexcept nogil
    cdef int list_cached(self, uint32_t page, uint64_t* bits, uint32_t* image) noexcept nogil
    cdef int next_batch(self) noexcept nogil
    cdef uint32_t used_now(self, const Node* node) noexcept nogil
    cdef int to_front(self, Node* node, const Spot* spot) noexcept nogil
    cdef int warm(self, Node* node) noexcept nogil
