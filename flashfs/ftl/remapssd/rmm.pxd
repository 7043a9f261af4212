# The remapping metadata in NVRAM; see rmm.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine

cdef struct Claim:           # an entry: an LPA, and the page that it was pointed at
    uint64_t seq
    uint32_t lpa, ppa
    uint32_t source                        # the LPA that the remap unmapped, or NONE
    uint32_t order                         # low bits of the order of the page's block when the entry was made, or NONE
    uint32_t first, n                      # the command that it is part of, if that is atomic; else n is 0

cdef struct Group:           # the segments of a superblock
    uint32_t first, last                   # NONE: the group is empty
    uint32_t segments, used, valid         # number of segments; of entries in them; of valid entries
    uint32_t number                        # of its next segment
    uint64_t stamp, high                   # of its last segment


cdef class Rmm:
    cdef Engine ssd
    cdef const uint32_t* table             # the mapping's
    cdef uint64_t* lr                      # LR bitmap: a bit an LPA
    cdef uint64_t front_at, at, begin      # addresses of the region, of its segments, and of those in memory
    cdef uint64_t retired_seq              # no entry of a retired segment is newer
    cdef uint64_t durable_seq, retired_since  # nor newer than this, if retired before sync ``retired_since``
    cdef uint64_t proved_at, proved_sync   # segments retired before so many syncs are stored as whole; when
    cdef readonly uint64_t segments, superblocks, pages
    cdef readonly uint32_t segment_bytes, entry_bytes, slots, reserve
    cdef readonly uint64_t reclaimed_n     # of a rival: how often its log was rewritten
    cdef uint8_t* brought_to               # of each page of superblock ``counted``: LPAs of valid entries
    cdef uint32_t counted                  # that superblock, or NONE
    cdef uint64_t counted_at, changes      # ... the value of ``changes`` at that count
    cdef Group* groups
    cdef uint32_t* next_of                 # of each segment, the next of its group
    cdef uint32_t* fill                    # ... number of its entries
    cdef uint8_t* dirty                    # ... whether a free one is not all zeros
    cdef uint32_t* ring                    # free segments, the one free for longest first
    cdef uint32_t* listed                  # room for the segments of a group
    cdef uint32_t* retired                 # segments that wait for a sync,
    cdef uint64_t* retired_at              # ... and the number of syncs when each was retired
    cdef uint64_t ring_at, retired_from, gave_up_at
    cdef readonly uint64_t free_n, retired_n, used_n, valid_n
    cdef readonly uint64_t taken_n, compacted_n, carried_n, forced_syncs, largest_group, torn_n
    cdef const uint8_t* segment_at(self, uint32_t segment) noexcept nogil
    cdef bint head(self, uint32_t segment, uint64_t* stamp, uint64_t* high, uint32_t* superblock, uint32_t* number,
                   uint32_t* behind) noexcept nogil
    cdef bint entry(self, uint32_t segment, uint32_t slot, uint64_t high, uint32_t superblock,
                    Claim* claim) noexcept nogil
    cdef bint is_written(self, uint32_t segment, uint32_t slot) noexcept nogil
    cdef int pass_through(self, uint32_t superblock, bint counting) noexcept nogil
    cdef uint32_t order_at(self, uint32_t ppa) noexcept nogil
    cdef bint matches(self, const Claim* claim, uint64_t stamp) noexcept nogil
    cdef bint holds(self, const Claim* claim, uint64_t stamp) noexcept nogil
    cdef bint is_remapped(self, uint32_t lpa) noexcept nogil
    cdef uint32_t nth_valid(self, uint32_t superblock, uint32_t block, uint64_t n) noexcept nogil
    cdef uint64_t valid_of(self, uint32_t superblock, uint32_t block) noexcept nogil
    cdef uint32_t brought(self, uint32_t ppa) noexcept nogil
    cdef int leave(self, uint32_t lpa, uint32_t ppa) noexcept nogil
    cdef int append(self, const Claim* claim, int cause) except -1 nogil
    cdef int take(self, const Claim* claim, int cause) except -1 nogil
    cdef uint32_t chain(self, uint32_t superblock, uint64_t high, int cause) except? 0xFFFFFFFE nogil
    cdef int give_up(self, uint32_t superblock) noexcept nogil
    cdef int retire(self, uint32_t segment) noexcept nogil
    cdef int harvest(self) except -1 nogil
    cdef bint crosses(self, uint32_t segment) noexcept nogil
    cdef int wipe(self, uint32_t segment, int cause) except -1 nogil
    cdef bint gain(self, uint64_t wanted) except -1 nogil
    cdef uint32_t worst(self) noexcept nogil
    cdef uint64_t entries_most(self) noexcept nogil
    cdef int logged(self, const Claim* claim) noexcept nogil
    cdef bint takes_more(self) except -1 nogil
    cdef int housekeep(self) except -1 nogil
    cdef bint looks_up(self, uint32_t superblock) noexcept nogil
    cdef int64_t charge_lookup(self, uint32_t superblock, int cause, int64_t t_ns) except -1 nogil
    cdef int charge_compaction(self, uint32_t superblock) except -1 nogil
    cdef uint32_t pages_n(self) noexcept nogil
    cdef int compact(self, uint32_t superblock) except -1 nogil
    cdef bint prove_whole(self) except -1 nogil
    cdef uint64_t segments_for(self, uint64_t claims) noexcept nogil
    cdef int name_all(self, uint32_t superblock) noexcept nogil
    cdef uint64_t list_group(self, uint32_t superblock) noexcept nogil
    cdef int carry(self, uint32_t superblock, const uint32_t* new_of, uint32_t* table, int cause) except -1 nogil
    cdef bint is_dirty(self, uint32_t segment) noexcept nogil
    cdef int64_t charge_group(self, uint32_t superblock, int cause, int64_t t_ns) noexcept nogil
