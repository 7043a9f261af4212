"""LearnedFTL's groups (S. Wang et al., LearnedFTL, HPCA 2024): neighbouring translation pages, whose pages share
superblocks. This tracks the owner of each superblock, what is lent of it, and how much of each group has changed.

A clean checkpoint has it (``save``). After a recovery no superblock has an owner, and no group has changed.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

import struct

import numpy

from flashfs.engine.blocks.pool cimport NONE


cdef class Groups:
    """``n`` groups of ``group_lpas`` LPAs, on superblocks of ``dies`` blocks. A group is worth putting in order from
    ``share`` per cent of changed pages on; if ``lend_share`` per cent of a superblock are lent, it is no group's any
    more. Per 100 pages that the host writes, ``budget`` pages may move to put groups in order that would not need to
    move."""

    def __cinit__(self, uint32_t n, uint32_t group_lpas, uint32_t blocks, uint32_t dies, uint32_t pages_per_block,
                  uint32_t share, uint32_t lend_share, uint32_t budget):
        self.n = n
        self.group_lpas = group_lpas
        self.superblocks = blocks // dies
        self.dies = dies
        self.pages_per_block = pages_per_block
        self.superblock_pages = dies * pages_per_block
        self.share = share
        self.budget = budget
        self.least = <uint32_t> max(<uint64_t> 1, <uint64_t> group_lpas * share // 100)
        self.lent_most = <uint32_t> max(<uint64_t> 1, <uint64_t> self.superblock_pages * lend_share // 100)
        self.changed = <uint32_t*> calloc(n, sizeof(uint32_t))
        self.owner = <uint32_t*> malloc(self.superblocks * sizeof(uint32_t))
        self.lent = <uint32_t*> calloc(self.superblocks, sizeof(uint32_t))
        if not (self.changed and self.owner and self.lent):
            raise MemoryError
        self.reset()

    def __dealloc__(self):
        free(self.changed)
        free(self.owner)
        free(self.lent)

    def reset(self):
        """Make it empty: no superblock has an owner, and no group has changed."""
        memset(self.changed, 0, self.n * sizeof(uint32_t))
        memset(self.owner, 0xFF, self.superblocks * sizeof(uint32_t))
        memset(self.lent, 0, self.superblocks * sizeof(uint32_t))

    cdef uint32_t of(self, uint32_t lpa) noexcept nogil:
        return lpa // self.group_lpas

    cdef int open(self, uint32_t superblock, uint32_t group) noexcept nogil:
        """The superblock is opened for the group."""
        self.owner[superblock] = group
        self.lent[superblock] = 0
        self.opened += 1
        return 0

    cdef int wrote(self, uint32_t group, uint32_t superblock, uint32_t n) noexcept nogil:
        """The host wrote ``n`` pages of the group to the superblock. If too much of that is lent, it loses its
        owner."""
        self.changed[group] += n
        self.credit = min(self.credit + <uint64_t> n * self.budget, <uint64_t> 200 * self.group_lpas)
        if self.owner[superblock] == group:
            return 0
        self.borrowed_n += n
        self.lent[superblock] += n
        if self.owner[superblock] != NONE and self.lent[superblock] >= self.lent_most:
            self.owner[superblock] = NONE
            self.settled += 1
        return 0

    cdef int add(self, uint32_t superblock, uint32_t n) noexcept nogil:
        """``n`` pages of another group are put in order there."""
        self.lent[superblock] += n
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, uint32_t n) noexcept nogil:
        """Cleaning moved these pages from ``olds``: those that were in a superblock of their own group count as changed
        now. (Wear levelling does not report its moves: to put cold groups in order for those would move them again.)"""
        cdef uint32_t i, group
        for i in range(n):
            group = self.of(lpas[i])
            self.changed[group] += self.owner[olds[i] // self.superblock_pages] == group
        return 0

    cdef int settle(self, uint32_t group, uint32_t changed) noexcept nogil:
        """The group was examined, or put in order: ``changed`` of its pages are without a model."""
        self.changed[group] = changed
        return 0

    cdef bint may_move(self) noexcept nogil:
        """Whether the host has written enough to allow putting a group in order."""
        return self.credit >= <uint64_t> 100 * self.group_lpas

    cdef int spend(self, uint32_t n) noexcept nogil:
        """``n`` pages of a group have moved."""
        self.credit -= min(self.credit, <uint64_t> 100 * n)
        return 0

    cdef int disown(self, uint32_t superblock) noexcept nogil:
        """The superblock is no group's any more."""
        self.owner[superblock] = NONE
        self.lent[superblock] = 0
        return 0

    cdef bint is_own(self, uint32_t superblock) noexcept nogil:
        """Whether the superblock has an owner: not too much of it is lent."""
        return self.owner[superblock] != NONE

    def forget_counts(self):
        self.opened = self.borrowed_n = self.settled = 0

    def save(self):
        """u32 groups, u32 LPAs of a group, u32 superblocks, u32 0, u64 credit; then for each superblock u32 owner, then
        for each u32 pages lent; for each group u32 pages changed."""
        return b"".join((
            struct.pack("<4IQ", self.n, self.group_lpas, self.superblocks, 0, self.credit),
            (<const uint8_t*> self.owner)[:4 * self.superblocks],
            (<const uint8_t*> self.lent)[:4 * self.superblocks],
            (<const uint8_t*> self.changed)[:4 * self.n],
        ))

    def load(self, saved):
        """The inverse; ValueError says what is wrong. A section of groups of another size is ignored, and so is the
        byte for each group that older images have at its end."""
        cdef uint32_t i
        self.reset()
        if len(saved) < 24:
            raise ValueError(f"owners section of {len(saved)} bytes")
        n, lpas, superblocks, _, credit = struct.unpack_from("<4IQ", saved)
        if (n, lpas, superblocks) != (self.n, self.group_lpas, self.superblocks):
            return
        needed = 24 + 8 * superblocks + 4 * n
        if len(saved) not in (needed, needed + n):
            raise ValueError(f"owners section of {len(saved)} bytes: {needed} are needed")
        words = numpy.frombuffer(saved, "<u4", 2 * superblocks + n, 24).tolist()
        if any(owner != NONE and owner >= n for owner in words[:superblocks]):
            raise ValueError("owners section: a superblock of a group that there is not")
        for i in range(self.superblocks):
            self.owner[i] = words[i]
            self.lent[i] = words[superblocks + i]
        for i in range(self.n):
            self.changed[i] = words[2 * superblocks + i]
        self.credit = min(credit, 200 * lpas)

    def sizes(self):
        """Bytes of the lists."""
        return 4 * self.n + 8 * self.superblocks

    def groups(self):
        """For views: the changed pages of each group."""
        cdef uint32_t i
        return [{"group": i, "changed": self.changed[i]} for i in range(self.n)]

    def table(self):
        """For views: the owner of each superblock, and its pages of other groups."""
        cdef uint32_t i
        return [{"superblock": i, "group": None if self.owner[i] == NONE else self.owner[i], "lent": self.lent[i]}
                for i in range(self.superblocks)]
