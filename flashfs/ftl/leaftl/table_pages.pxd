# The groups of a SegmentTable in translation pages; see table_pages.pyx.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from flashfs.engine.parts cimport Engine
from flashfs.ftl.leaftl.segments cimport Pager, SegmentTable
from flashfs.engine.translation cimport Directory, TranslationPages, Witness


cdef struct Leaf:
    uint16_t first, n                      # groups of the region
    bint clean                             # it is in flash as it is; else it is here, and goes with the checkpoint
    bint here                              # its groups are in the table
    bint proved                            # written, or read and checked against validity, since the mount
    uint32_t bytes                         # of their blocks, while it is clean and here

cdef struct Region:
    Leaf* leaves                           # sorted; NULL: one, never written
    uint32_t* homes                        # ``span`` PPAs each; NONE: none
    uint16_t n, room


cdef class LeafDirectory(Directory):
    cdef TablePages pages


cdef class TablePages(Pager):
    cdef readonly Engine ssd
    cdef readonly SegmentTable table
    cdef readonly TranslationPages store
    cdef readonly uint64_t limit           # bytes of groups that may be here; 0: any
    cdef readonly uint64_t clean_bytes     # of groups that could be evicted
    cdef readonly uint64_t most_bytes      # that were here after any request
    cdef readonly uint64_t loads, evictions, rebuilds, splits, merges
    cdef readonly uint32_t span            # pages that a leaf takes at most
    cdef readonly uint32_t written         # leaves that have a home
    cdef readonly uint32_t leaves_n        # of all regions
    cdef bint rebuilt                      # a leaf was made again: what it names was not counted
    cdef bint strict                       # a page that cannot be read is an error, not to be made again
    cdef uint32_t capacity                 # bytes of a leaf
    cdef uint32_t regions_n
    cdef Region* regions
    cdef uint8_t* changed                  # a bit a group: its leaf is not clean
    cdef uint8_t* buffer                   # one leaf
    cdef uint32_t hand_region, hand_leaf   # of the clock
    cdef uint32_t back_region              # where writing back goes on
    cdef uint32_t groups_of(self, uint32_t region) noexcept nogil
    cdef int split_up(self, uint32_t region) except -1 nogil
    cdef int64_t leaf_of(self, uint32_t group) noexcept nogil
    cdef int replace(self, uint32_t region, uint32_t first, uint32_t n, const uint32_t* homes) except -1 nogil
    cdef int reserve(self, Region* region, uint32_t more) except -1 nogil
    cdef int insert_leaf(self, Region* region, uint32_t at, Leaf leaf, const uint32_t* homes) except -1 nogil
    cdef bint load(self, uint32_t region, uint32_t at) except -1 nogil
    cdef bint parse(self, uint32_t first, uint32_t n) except -1 nogil
    cdef bint plausible(self, const uint8_t* block, uint32_t bytes) noexcept nogil
    cdef int rebuild(self, uint32_t region, uint32_t at) except -1 nogil
    cdef int place_witnesses(self, uint32_t first, uint32_t n, const Witness* seen, uint32_t nobody) except -1 nogil
    cdef int forget(self, uint32_t first, uint32_t n) noexcept nogil
    cdef str named(self, uint32_t region, uint32_t at)
    cdef bint names_live_pages(self, uint32_t first, uint32_t n) except -1 nogil
    cdef uint32_t homes_n(self) noexcept nogil
    cdef int evict(self, uint32_t region, uint32_t at) noexcept nogil
    cdef bint evict_one(self) noexcept nogil
    cdef bint was_used(self, uint32_t first, uint32_t n) noexcept nogil
    cdef int borrow(self, uint32_t group) except -1 nogil
    cdef int give_back(self, uint32_t group) noexcept nogil
    cdef int shrink(self, uint64_t more) noexcept nogil
    cdef uint64_t dirty_bytes(self) noexcept nogil
    cdef uint64_t share(self) noexcept nogil
    cdef int tend(self) except -1 nogil
    cdef int write_back(self, uint64_t target) except -1 nogil
    cdef bint write_one(self, uint32_t region) except -1 nogil
    cdef uint32_t gather(self, uint32_t first, uint32_t end, uint32_t* bytes) noexcept nogil
    cdef int program(self, uint32_t first, uint32_t bytes, uint32_t* homes) except -1 nogil
    cdef uint32_t home_of(self, uint32_t id) noexcept nogil
    cdef int set_home(self, uint32_t id, uint32_t ppa) noexcept nogil
    cdef int lost(self, uint32_t ppa) except -1 nogil
    cdef int free_leaves(self) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef int load_all(self) except -1 nogil
