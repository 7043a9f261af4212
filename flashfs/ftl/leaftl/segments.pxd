# LeaFTL's log-structured mapping table, all groups of it; see segments.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.ftl.leaftl.blocks cimport GroupBlocks
from flashfs.ftl.leaftl.group cimport GROUP, Segment, View
from flashfs.ftl.leaftl.regression cimport Piece, Rules
from flashfs.ftl.leaftl.slabs cimport block_at

cdef extern from * nogil:
    void prefetch "__builtin_prefetch" (const void* address)

cdef enum:
    AHEAD = 12                   # look-ups of a batch whose memory is prefetched

cdef class Pager:
    cdef uint8_t* used                     # a bit a group: used since the bit was cleared
    cdef int need(self, uint32_t group) except -1 nogil
    cdef int changes(self, uint32_t group) except -1 nogil
    cdef bint settled(self, uint32_t group) noexcept nogil


cdef class SegmentTable(GroupBlocks):
    cdef readonly uint64_t learned         # segments that were ever inserted
    cdef Rules rules
    cdef Pager pager                       # None: all groups stay in memory
    cdef bint paged
    cdef uint8_t* used                     # the pager's
    cdef readonly uint64_t compacted       # groups compacted because of their debts
    cdef readonly uint32_t pair_most       # most LPAs between two points of a pair; others stay single
    cdef Piece* pieces
    cdef uint32_t pieces_room
    cdef int insert_run(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef bint parts(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t at) noexcept nogil
    cdef uint32_t part_pairs(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) noexcept nogil
    cdef int insert_part(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int find(self, uint32_t lpa, uint32_t* ppa, uint32_t* levels, bint* approximate) except -1 nogil
    cdef int find_many(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas, uint8_t* levels,
                       uint8_t* approximate) except -1 nogil
    cdef int change(self, uint32_t group) except -1 nogil
    cdef int unmap_run(self, const uint32_t* lpas, uint32_t n) except -1 nogil
    cdef int compact_group(self, uint32_t group) except -1 nogil
    cdef int compact_all(self, bint every=*) except -1 nogil
    cdef int make_room(self, uint32_t group) except -1 nogil
    cdef uint32_t levels_of(self, uint32_t group) noexcept nogil
    cdef int owe(self, uint32_t group, uint32_t points, uint32_t levels) except -1 nogil
    cdef int insert_pieces(self, uint32_t group, const uint32_t* lpas, const Piece* pieces,
                           uint32_t n) except -1 nogil
    cdef int insert_in_place(self, uint32_t group, const Segment* segment) except -1 nogil
    cdef int supersede(self, const View* old, uint32_t at, const Segment* segment) noexcept nogil
    cdef int first_segment(self, uint32_t group, const Segment* segment) except -1 nogil
    cdef int exchange(self, uint32_t group, const View* old, uint32_t first, uint32_t last, const Segment* left,
                      uint32_t kept, uint32_t bytes) except -1 nogil
    cdef void fetch(self, uint32_t group) noexcept nogil


cdef inline void expect(SegmentTable table, const uint32_t* lpas, uint32_t i, uint32_t n) noexcept nogil:
    """Look-up ``i`` of ``n`` is next: prefetch what later ones need. LPAs beyond the device are skipped."""
    if i + 2 * AHEAD < n and lpas[i + 2 * AHEAD] < table.lpas:
        prefetch(&table.directory[lpas[i + 2 * AHEAD] // GROUP])
    if i + AHEAD < n and lpas[i + AHEAD] < table.lpas:
        prefetch(block_at(table.slabs, table.directory[lpas[i + AHEAD] // GROUP]))
