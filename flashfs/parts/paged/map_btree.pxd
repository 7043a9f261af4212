# A directory of translation pages as a tree in flash; see map_btree.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libcpp.map cimport map as cppmap

from flashfs.parts.paged.entry_pages cimport Gtd

cdef enum:
    LEVELS = 32


cdef class MapBtree(Gtd):
    cdef readonly uint32_t fanout, levels  # pointers of a node; levels of nodes in flash, between root and leaves
    cdef uint32_t[LEVELS] first            # number of the first page of each level; the leaves, level 0, are last
    cdef uint32_t[LEVELS] width            # pages of each level
    cdef uint32_t* root                    # pointers to the pages of the highest level
    cdef cppmap[uint32_t, uint32_t] newer  # pointers that the node above does not have yet
    cdef cppmap[uint32_t, uint32_t] placed  # ... and their places in a battery
    cdef readonly uint32_t newer_most
    cdef uint32_t pages_n                  # existing pages, of all levels
    cdef uint32_t frames_n                 # nodes that are cached; one more frame is for lookups under ``quiet``
    cdef uint32_t* images
    cdef uint32_t* frame_id
    cdef uint32_t* frame_ppa
    cdef uint64_t* frame_used
    cdef uint64_t clock
    cdef bint hushed
    cdef uint32_t page_words
    cdef readonly uint64_t node_reads, node_programs, node_hits
    cdef int level_of(self, uint32_t id) noexcept nogil
    cdef uint32_t parent(self, uint32_t id) noexcept nogil
    cdef uint32_t slot(self, uint32_t id) noexcept nogil
    cdef uint32_t first_child(self, uint32_t id, uint32_t* n) noexcept nogil
    cdef uint32_t frame_of(self, uint32_t id, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef uint32_t most_changed(self) noexcept nogil
    cdef int write_node(self, uint32_t id) except -1 nogil
    cdef int keep_pointer(self, uint32_t id, uint32_t ppa) except -1 nogil
    cdef int drop_pointers(self, uint32_t first, uint32_t n) except -1 nogil
    cdef uint32_t remaking                 # depth of recursion of ``remake``
    cdef int drop_nameless(self) except -1
    cdef int remake(self, uint32_t id) except -1
