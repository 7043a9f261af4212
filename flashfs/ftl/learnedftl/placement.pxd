# LearnedFTL's placement; see placement.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.superblocks.superblocks cimport SuperblockGreedy, Superblocks
from flashfs.ftl.learnedftl.groups cimport Groups
from flashfs.ftl.learnedftl.mapping cimport LearnedMap


cdef struct Candidates:                # for cleaning, of all superblocks
    uint32_t dead                          # one without live pages, or NONE
    uint32_t cheapest                      # the one that is cheapest to clean by itself, or NONE;
    uint64_t moves, gain                   # pages that move for that, those of a home twice, and pages gained
    uint64_t live                          # live pages of all


cdef class GroupSuperblocks(Superblocks):
    cdef LearnedMap map
    cdef Groups groups
    cdef SuperblockGreedy cleaner
    cdef readonly uint32_t slots           # superblocks that the host fills at once
    cdef int[16] slot_stream
    cdef readonly uint32_t order_blocks    # blocks that a group fills
    cdef int order_stream                  # the stream for groups that are put in order
    cdef uint32_t[16] slot_owner           # the group that a slot's superblock was opened for, or NONE
    cdef uint8_t* lender                   # of each group: the slot that it borrowed from last
    cdef uint32_t taking, taking_from      # group and slot of the page placed last
    cdef uint32_t seen_free, seen_pending, seen_opened  # state of the pool when ``promised`` was counted
    cdef uint32_t promised                 # free blocks of superblocks that are being filled
    cdef bint has_room(self) noexcept nogil
    cdef uint32_t slot_for(self, uint32_t group) except? 0xFFFFFFFE nogil
    cdef uint32_t begin(self, uint32_t slot, uint32_t group) except? 0xFFFFFFFE nogil
    cdef uint32_t borrow(self, uint32_t group) noexcept nogil
    cdef uint32_t room_of(self, int stream) noexcept nogil
    cdef uint32_t at_hand(self) noexcept nogil
    cdef uint32_t kept(self) noexcept nogil
    cdef uint32_t map_owes(self) noexcept nogil
    cdef int clean_for_groups(self) except -1 nogil
    cdef uint32_t next_group(self, const Candidates* found) noexcept nogil
    cdef double worth(self, const Candidates* found) noexcept nogil
    cdef int look_round(self, Candidates* found) noexcept nogil
    cdef int clean_group(self, uint32_t group) except -1 nogil
    cdef int begin_order(self, uint32_t group, uint32_t n) except -1 nogil
