# Which blocks may be cleaned, and which has the fewest live pages; see victims.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport NONE

cdef enum:                   # VictimIndex.listed
    UNLISTED = 0
    LISTED = 1               # a candidate, in the list for its count
    WAITING = 2              # a candidate once it has no live page
    EMPTIED = 3              # ... which is now so: in the list for count 0


@cython.final
cdef class VictimIndex:
    cdef uint32_t* valid                   # live pages of each block: the BVC
    cdef uint32_t* next_of                 # candidates by valid count: a doubly linked list per count
    cdef uint32_t* prev_of
    cdef uint32_t* first                   # [pages_per_block + 1]
    cdef uint8_t* listed
    cdef uint32_t lowest
    cdef readonly uint32_t blocks, pages_per_block
    cdef readonly uint32_t waiting_n       # blocks that are WAITING
    cdef int link(self, uint32_t block, uint32_t count) noexcept nogil
    cdef int unlink(self, uint32_t block, uint32_t count) noexcept nogil
    cdef int relist(self, uint32_t block, uint32_t old) noexcept nogil
    cdef int set_count(self, uint32_t block, uint32_t count) noexcept nogil
    cdef int candidate(self, uint32_t block) noexcept nogil
    cdef int candidate_once_dead(self, uint32_t block) noexcept nogil
    cdef int not_candidate(self, uint32_t block) noexcept nogil
    cdef uint32_t fewest(self) noexcept nogil
    cdef uint32_t fewest_waiting(self) noexcept nogil
    cdef int clear(self) noexcept nogil


cdef inline int changed(VictimIndex index, uint32_t block, uint32_t old, uint32_t new) noexcept nogil:
    """The block has ``new`` live pages and had ``old``. Inlined for a plain candidate: this is most of the cost of a
    page that dies."""
    cdef uint32_t after, before
    index.valid[block] = new
    if index.listed[block] != LISTED:
        return index.relist(block, old) if index.listed[block] else 0
    after = index.next_of[block]
    before = index.prev_of[block]
    if before == NONE:
        index.first[old] = after
    else:
        index.next_of[before] = after
    if after != NONE:
        index.prev_of[after] = before
    after = index.first[new]
    index.next_of[block] = after
    index.prev_of[block] = NONE
    if after != NONE:
        index.prev_of[after] = block
    index.first[new] = block
    if new < index.lowest:
        index.lowest = new
    return 0


cdef inline int gained(VictimIndex index, uint32_t block, uint32_t n) noexcept nogil:
    """``n`` more pages of the block are live."""
    return changed(index, block, index.valid[block], index.valid[block] + n)


cdef inline int lost_one(VictimIndex index, uint32_t block) noexcept nogil:
    """A page of the block died."""
    return changed(index, block, index.valid[block], index.valid[block] - 1)
