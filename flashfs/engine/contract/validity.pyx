"""Which pages of a block are live? The default is PageBitmap (flashfs.parts.defaults.page_bitmap)."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.engine cimport Engine

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil


cdef uint32_t list_bits(const uint64_t* words, uint32_t n, uint32_t* out) noexcept nogil:
    """Store the numbers of the set bits in ``out``, ascending; returns how many."""
    cdef uint32_t w, found = 0
    cdef uint64_t word
    for w in range(n):
        word = words[w]
        while word:
            out[found] = w * 64 + lowest_bit(word)
            word &= word - 1
            found += 1
    return found


cdef class Validity:
    """Which pages are live? A store may be in flash, or late; the default is exact and in DRAM.

    *In flash.* Queries may read and fail, and program nothing. Reports (``live_run``, ``dead``) do not program or
    clean: ``prepare`` does that for them, before anything is changed, and makes room for as many reports as are coming.
    So a prepared report does not fail; if one does, the device stops, as for any change that does not end. A store that
    programs pages of its own has an Owner for their kind, and a stream.

    *Late.* A store may call a superseded page live for a while, but never a live page dead. Then ``count`` is an upper
    bound, cleaning asks about each page (``Owner.confirm`` answers SUPERSEDED, and the page is dropped), the engine
    requires only that live pages are not fewer than the map's, and a recovery reads the pages of a victim before it
    takes a move for unfinished. A page must be known dead before cleaning needs its space.

    The counts are in the engine's VictimIndex, which a store updates with each page."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.ssd = ssd
        self.victims = ssd.victims
        self.words = <uint64_t*> malloc((ssd.nand.pages_per_block + 63) // 64 * 8)
        if self.words == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.words)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        """Make room for up to ``n`` reports before the next call. Returns how many there is room for, at least twice
        the pages of a run or a block. It may program and, if ``may_clean``, clean, which changes mapping and validity;
        cleaning itself calls it without ``may_clean``. May read, program, clean."""
        return n

    cdef uint32_t room(self) noexcept nogil:
        """How many reports there is room for now."""
        return NONE

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        """Report that ``n`` pages from ``ppa`` on, all of one block, are live."""
        with gil:
            raise NotImplementedError

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Report that these pages died; NONE entries are skipped."""
        with gil:
            raise NotImplementedError

    cdef int opened(self, uint32_t block) except -1 nogil:
        """The block was erased, and its pages are about to be programmed. It was ``released`` before, if this device
        had it in use at all. Must not program."""
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """The block is released: all its pages were reported dead. It is erased later."""
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        """Whether the page is live, as far as the store knows. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t count(self, uint32_t block) noexcept nogil:
        """Live pages of the block; an upper bound if the store is late. From DRAM."""
        return self.victims.valid[block]

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        """One bit per page of the block, the lowest first; bits beyond the block are 0. ``words`` has room for
        ceil(pages_per_block / 64) of them, which are all set. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        """Page numbers of the block's live pages, ascending; returns how many. May read."""
        if self.victims.valid[block] == 0:
            return 0
        self.bitmap(block, self.words)
        return list_bits(self.words, (self.ssd.nand.pages_per_block + 63) // 64, out)

    cdef uint64_t pages_named(self) noexcept nogil:
        """How many live pages belong to the store itself."""
        return 0

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity: program what it needs of the store; a sync follows.
        ``save`` then returns all that the store knows, or names the pages that hold it. May read, program."""
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        """As RecoveryWishes.checkpoint_ended."""
        return 0

    def device_ready(self):
        """As RecoveryWishes.device_ready; called before the mapping's."""

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most."""
        raise NotImplementedError

    def load(self, sections):
        """The inverse of ``save``; ValueError for contents that cannot be right."""
        raise NotImplementedError

    def reset(self):
        """No page is live: a recovery that found no checkpoint starts with this."""
        raise NotImplementedError

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        raise NotImplementedError

    def figures(self):
        """The store's own statistics."""
        return {}

    def forget_counts(self):
        """Reset the counters of ``figures``."""

    def problems_in_flash(self):
        """As Shown.problems_in_flash."""
        return []

    def recovery_steps(self):
        """As RecoveryWishes.recovery_steps."""
        return ()

    def base_from_pages(self, versions, last):
        """As FencedMap.base_from_pages; ``last``: for each version, whether its OOB has the flag "last", or does not
        say. Returns (sections, sequence number up to which reports are programmed, a line about it)."""
        raise NotImplementedError

    def stamp_in_force(self):
        """A sequence number that identifies the store's structures in flash that are in force: a recovery from pages
        must not find older ones."""
        return 0

    def unfinished(self):
        """{block: pages}: for blocks that are not full, how many of their pages were reported to the store; further
        pages may exist that were never live."""
        return {}

    def counts_from_pages(self, sections, ends):
        """After ``base_from_pages``, whose ``sections`` it gets: the sections that count live pages by block. Returns
        {section: bytes}, to be loaded with those. ``ends``: an array of u32, the number of pages that each block has. A
        ``by_map`` store counts all of them as live; ``take_named`` corrects that."""
        raise NotImplementedError

    def take_named(self, bits):
        """For a ``by_map`` store in a recovery: exactly these pages are live (the store knows its own). ``bits``: a
        numpy array of u64, for each block in turn ceil(pages_per_block / 64) words, as of ``bitmap``. Returns text that
        is appended to a line about the step, "" if there is none."""
        raise NotImplementedError

    cdef int forget(self, uint32_t block) except -1 nogil:
        """Recovery: the block was erased after the checkpoint, so drop what the checkpoint says about it."""
        return 0

    cdef int pages_known(self) except -1 nogil:
        """Recovery: the places of the store's own pages are final, so they can be read; ``forget`` was called for all
        blocks erased since the checkpoint. Later calls are about pages found since. May read."""
        return 0

    def live_in(self, uint32_t block):
        """Page numbers of the live pages of a block. May read."""
        cdef uint32_t* out = <uint32_t*> malloc(self.ssd.nand.pages_per_block * sizeof(uint32_t))
        if out == NULL:
            raise MemoryError
        try:
            n = self.pages(block, out)
            return [out[i] for i in range(n)]
        finally:
            free(out)

    def check(self):
        """One line for each broken invariant of the store."""
        return []
