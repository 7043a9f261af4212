# LearnedFTL's groups; see groups.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class Groups:
    cdef readonly uint32_t n               # groups
    cdef readonly uint32_t group_lpas      # LPAs of a group
    cdef readonly uint32_t superblocks, superblock_pages, pages_per_block, dies
    cdef readonly uint32_t share           # per cent of its pages without a model that make a group worth cleaning
    cdef readonly uint32_t least           # changed pages from which a group is examined
    cdef readonly uint32_t lent_most       # pages of a superblock that may be other groups' before it is no group's
    cdef uint32_t budget                   # pages that may move per page of the host, per cent
    cdef readonly uint64_t credit          # ... what is left of it, in hundredths of a page
    # of each group: pages written since it was put in order, or moved out of a superblock of its own
    cdef uint32_t* changed
    cdef uint32_t* owner                   # of each superblock: the group it was opened for, or NONE
    cdef uint32_t* lent                    # of each superblock: pages of other groups
    cdef readonly uint64_t opened          # superblocks opened for a group
    cdef readonly uint64_t borrowed_n      # pages of the host in a superblock of another group
    cdef readonly uint64_t settled         # superblocks lent so much that they are no group's any more
    cdef uint32_t of(self, uint32_t lpa) noexcept nogil
    cdef int open(self, uint32_t superblock, uint32_t group) noexcept nogil
    cdef int wrote(self, uint32_t group, uint32_t superblock, uint32_t n) noexcept nogil
    cdef int add(self, uint32_t superblock, uint32_t n) noexcept nogil
    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, uint32_t n) noexcept nogil
    cdef int settle(self, uint32_t group, uint32_t changed) noexcept nogil
    cdef bint may_move(self) noexcept nogil
    cdef int spend(self, uint32_t n) noexcept nogil
    cdef int disown(self, uint32_t superblock) noexcept nogil
    cdef bint is_own(self, uint32_t superblock) noexcept nogil
