"""The victim index: the number of live pages of each block (BVC), and the candidate for cleaning with the fewest. The
engine has one beside any validity store: the store reports live and dead pages, placement reports full blocks, and
cleaning asks for a victim. For a validity store in flash, two bytes per block and these lists are all that DRAM must
hold.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset


@cython.final
cdef class VictimIndex:
    """A list of candidates per count, so the greedy victim is found at once; each change moves a block from one list to
    another in O(1)."""

    def __cinit__(self, uint32_t blocks, uint32_t pages_per_block):
        self.blocks = blocks
        self.pages_per_block = pages_per_block
        self.valid = <uint32_t*> calloc(blocks, 4)
        self.next_of = <uint32_t*> calloc(blocks, 4)
        self.prev_of = <uint32_t*> calloc(blocks, 4)
        self.listed = <uint8_t*> calloc(blocks, 1)
        self.first = <uint32_t*> malloc((pages_per_block + 1) * 4)
        if not (self.valid and self.next_of and self.prev_of and self.listed and self.first):
            raise MemoryError
        self.clear()

    def __dealloc__(self):
        free(self.valid)
        free(self.next_of)
        free(self.prev_of)
        free(self.listed)
        free(self.first)

    cdef int link(self, uint32_t block, uint32_t count) noexcept nogil:
        cdef uint32_t head = self.first[count]
        self.next_of[block] = head
        self.prev_of[block] = NONE
        if head != NONE:
            self.prev_of[head] = block
        self.first[count] = block
        if count < self.lowest:
            self.lowest = count
        return 0

    cdef int unlink(self, uint32_t block, uint32_t count) noexcept nogil:
        cdef uint32_t after = self.next_of[block], before = self.prev_of[block]
        if before == NONE:
            self.first[count] = after
        else:
            self.next_of[before] = after
        if after != NONE:
            self.prev_of[after] = before
        return 0

    cdef int relist(self, uint32_t block, uint32_t old) noexcept nogil:
        """Update a block that cleaning must not take before it is empty; it had ``old`` live pages until now."""
        if self.listed[block] == WAITING and self.valid[block] == 0:
            self.listed[block] = EMPTIED
            self.waiting_n -= 1
            self.link(block, 0)
        elif self.listed[block] == EMPTIED and self.valid[block]:
            self.unlink(block, old)
            self.listed[block] = WAITING
            self.waiting_n += 1
        return 0

    cdef int set_count(self, uint32_t block, uint32_t count) noexcept nogil:
        return changed(self, block, self.valid[block], count) if count != self.valid[block] else 0

    cdef int candidate(self, uint32_t block) noexcept nogil:
        """From now on ``fewest`` may name this block."""
        if not self.listed[block]:
            self.listed[block] = LISTED
            self.link(block, self.valid[block])
        return 0

    cdef int candidate_once_dead(self, uint32_t block) noexcept nogil:
        """``fewest`` may name this block once it has no live page: it is never cleaned, only erased."""
        if not self.listed[block]:
            self.listed[block] = EMPTIED if self.valid[block] == 0 else WAITING
            if self.valid[block]:
                self.waiting_n += 1
            else:
                self.link(block, 0)
        return 0

    cdef int not_candidate(self, uint32_t block) noexcept nogil:
        if self.listed[block] == LISTED or self.listed[block] == EMPTIED:
            self.unlink(block, self.valid[block])
        self.waiting_n -= self.listed[block] == WAITING
        self.listed[block] = UNLISTED
        return 0

    cdef uint32_t fewest(self) noexcept nogil:
        """The candidate with the fewest live pages, NONE if there is no candidate."""
        while self.lowest <= self.pages_per_block:
            if self.first[self.lowest] != NONE:
                return self.first[self.lowest]
            self.lowest += 1
        self.lowest = self.pages_per_block
        return NONE

    cdef uint32_t fewest_waiting(self) noexcept nogil:
        """Of the WAITING blocks, the one with the fewest live pages; NONE if there is none. Linear in the number of
        blocks: a last resort."""
        cdef uint32_t block, best = NONE
        for block in range(self.blocks):
            if self.listed[block] == WAITING and (best == NONE or self.valid[block] < self.valid[best]):
                best = block
        return best

    cdef int clear(self) noexcept nogil:
        """No live pages and no candidates."""
        cdef uint32_t count
        memset(self.valid, 0, self.blocks * 4)
        memset(self.listed, 0, self.blocks)
        self.waiting_n = 0
        for count in range(self.pages_per_block + 1):
            self.first[count] = NONE
        return 0

    def tables(self):
        return {
            "bvc": (self.blocks * 2, self.blocks * 4),
            "victim_lists": (self.blocks * 8, self.blocks * 9 + (self.pages_per_block + 1) * 4),
        }

    def check(self):
        """One line per broken invariant: each candidate is once in the list for its count; WAITING blocks have live
        pages and are counted right."""
        problems = []
        cdef uint32_t block, count, at
        seen = {}
        for count in range(self.pages_per_block + 1):
            at = self.first[count]
            while at != NONE:
                if at in seen:
                    problems.append(f"block {at}: twice in the victim lists")
                    break
                seen[at] = count
                at = self.next_of[at]
        for block in range(self.blocks):
            if (self.listed[block] == LISTED or self.listed[block] == EMPTIED) != (block in seen):
                problems.append(f"block {block}: its place in the victim lists is wrong")
            elif block in seen and seen[block] != self.valid[block]:
                problems.append(f"block {block}: listed under {seen[block]} valid pages, has {self.valid[block]}")
            elif self.listed[block] == WAITING and self.valid[block] == 0:
                problems.append(f"block {block}: nothing in it lives, and it waits for that")
        waiting = sum(self.listed[block] == WAITING for block in range(self.blocks))
        if waiting != self.waiting_n:
            problems.append(f"{waiting} blocks wait until nothing in them lives, {self.waiting_n} counted")
        return problems
