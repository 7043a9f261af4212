"""Which pages of a block are live? The default is PageBitmap (flashfs.parts.defaults.defaults)."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.engine cimport Engine

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil


cdef uint32_t list_bits(const uint64_t* words, uint32_t n, uint32_t* out) noexcept nogil:
    """The numbers of the bits that are set, ascending; returns how many."""
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
    """Which pages are live? Live is a question, and a store may answer it as it likes; the default is sure and in DRAM.

    *In flash.* Queries may read and fail. What reports (``live_run``, ``dead``) have to program or clean, they do not:
    ``prepare`` does, before anything is changed, and makes room for as many reports as are coming. Queries program
    nothing either. So a report that was prepared does not fail, and one that does stops the device like any change
    that came to no end. A store that programs pages of its own has an Owner for their kind, and a stream.

    *Late.* A store may go on calling a page live that is superseded, until it learns better; never the reverse. Then
    ``count`` is an upper bound, pages that cleaning meets are asked for (``Owner.confirm`` answers SUPERSEDED, and they
    are dropped), the engine holds live pages against the map as "no fewer", and a recovery asks the pages of a victim
    themselves before it takes a move for unfinished. A page is to be known dead before cleaning needs its space.

    The counts are the engine's VictimIndex, which a store keeps up with each page."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.ssd = ssd
        self.victims = ssd.victims
        self.words = <uint64_t*> malloc((ssd.nand.pages_per_block + 63) // 64 * 8)
        if self.words == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.words)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        """Up to ``n`` pages will be reported before the next call, whatever they are. Makes room for all of them if
        that can be, else for as many as it returns: twice as many as a run or a block has pages, at least. It may
        program; and, if ``may_clean``, clean, which changes mapping and validity. If not, it is called by cleaning.
        May read, program, clean."""
        return n

    cdef uint32_t room(self) noexcept nogil:
        """How many reports there is room for, now."""
        return NONE

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        """``n`` pages from ``ppa`` on, all of one block, are live now."""
        with gil:
            raise NotImplementedError

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These pages died; NONE entries are skipped."""
        with gil:
            raise NotImplementedError

    cdef int opened(self, uint32_t block) except -1 nogil:
        """The block was erased, and its pages are about to be programmed. It was ``released`` some time ago, if this
        device had it in use at all; nothing is to be programmed here."""
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """The block is given up: no page in it lives, all of them were reported dead. It is erased some time later."""
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        """Whether the page is live, as far as the store knows. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t count(self, uint32_t block) noexcept nogil:
        """Live pages of the block; at most that many, if the store is late. From DRAM."""
        return self.victims.valid[block]

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        """A bit a page of the block, the lowest first; what is beyond the block is 0. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        """Page numbers of the block's live pages, ascending; returns how many. May read."""
        if self.victims.valid[block] == 0:
            return 0
        self.bitmap(block, self.words)
        return list_bits(self.words, (self.ssd.nand.pages_per_block + 63) // 64, out)

    cdef uint64_t pages_named(self) noexcept nogil:
        """How many live pages are the store's own."""
        return 0

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity. What the store has to program for that, it programs now;
        a sync follows. Its ``save`` then says all that it knows, or names pages that do. May read, program."""
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        """As RecoveryWishes.checkpoint_ended."""
        return 0

    def device_ready(self):
        """As RecoveryWishes.device_ready; the mapping's comes after."""

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most."""
        raise NotImplementedError

    def load(self, sections):
        """The inverse of ``save``; ValueError says what cannot be."""
        raise NotImplementedError

    def reset(self):
        """Nothing is live: a recovery that found no checkpoint starts here."""
        raise NotImplementedError

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        raise NotImplementedError

    def figures(self):
        """The store's own statistics."""
        return {}

    def forget_counts(self):
        """What ``figures`` counts is counted from now on."""

    def problems_in_flash(self):
        """As Shown.problems_in_flash."""
        return []

    def recovery_steps(self):
        """As RecoveryWishes.recovery_steps."""
        return ()

    def base_from_pages(self, versions, last):
        """As FencedMap.base_from_pages; ``last``: of each version, whether its OOB calls it the last of something, or
        does not say. Returns (sections, sequence number up to which reports are programmed, a line about it)."""
        raise NotImplementedError

    def stamp_in_force(self):
        """A sequence number that says which of the store's structures in flash are in force: what a recovery from pages
        finds must not be older."""
        return 0

    def unfinished(self):
        """{block: pages}: of blocks that are not full, how many of their pages the store has heard of; others may be
        there that never lived."""
        return {}

    def counts_from_pages(self, sections, ends):
        """After that, and loaded with it: the section of live pages by block; ``ends``, of each block: pages that it
        has. A store that goes ``by_map`` says that all of those live: which do is told by ``take_named``."""
        raise NotImplementedError

    def take_named(self, bits):
        """A store that goes ``by_map``, in a recovery: these pages live, and no others; its own it knows. ``bits``: as
        many words of 64 bits a block as hold one for each page, an array. A line about it."""
        raise NotImplementedError

    cdef int forget(self, uint32_t block) except -1 nogil:
        """Recovery: the block was erased after the checkpoint that says otherwise, so nothing of that holds."""
        return 0

    cdef int pages_known(self) except -1 nogil:
        """Recovery: the store's own pages are where they say by now, so they can be read; ``forget`` was called for
        all blocks that were erased since the checkpoint. Everything behind this is about pages found since.
        May read."""
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
        """Invariants of the store, each a line when broken."""
        return []
