# distutils: language = c++
"""LearnedFTL's placement: superblocks in the order of VPPNs, and groups that are put in order before the host's next
page is placed, if there is room for a whole group beside what cleaning needs.

The paper gives a group superblocks of its own, and lends their free pages to other groups when there are too few. Here
all groups write to one open superblock, as if each lent to all, and a group is by itself only when it has been put in
order.
"""
from libc.stdint cimport uint32_t

from flashfs.engine.pool cimport NONE, STREAM_HOST
from flashfs.engine.superblocks cimport SuperblockGreedy, Superblocks


cdef class GroupSuperblocks(Superblocks):
    """Superblocks for the groups of a LearnedMap. Cleaning must be a SuperblockGreedy."""

    def attach(self):
        self.map = self.ssd.mapping
        super().attach()

    cdef int make_ready(self, int stream) except -1 nogil:
        """As Superblocks. The mapping may be told of moves here, as when there is to be cleaned."""
        if stream == STREAM_HOST and self.map is not None and self.map.may_order() and self.affords_group():
            self.map.order_group()
        return Superblocks.make_ready(self, stream)

    cdef bint affords_group(self) except -1 nogil:
        """Whether free blocks would hold a group beside those that are always kept free. Cleaning makes some room for
        that, of superblocks that have something dead."""
        cdef uint32_t group = self.map.group_pages * self.map.per_page
        cdef int _
        cdef uint32_t needed = (self.ssd.meta_floor + self.ssd.gc_reserve
                                + (group + self.ssd.nand.pages_per_block - 1) // self.ssd.nand.pages_per_block)
        for _ in range(2 * <int> self.dies):
            if self.ssd.pool.free_n + self.ssd.pool.pending_n > needed:
                return True
            if (<SuperblockGreedy> self.ssd.cleaning).fewest() == NONE:
                break
            self.ssd.cleaning.clean()
        return self.ssd.pool.free_n + self.ssd.pool.pending_n > needed
