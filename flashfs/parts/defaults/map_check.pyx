# cold
"""Whether mapping and validity agree: each mapped page is live, no two LPAs have one unless they share it, and nothing
else is live. Cleaning would carry along a live page that no LPA maps, and a recovery would take it for the newest.

A mapping enters the pages that it names, one by one or all at once, and then asks for the result.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport KIND_USER, KIND_VALIDITY, NONE

cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    AHEAD = 12               # entries prefetched ahead: the bits of a large chip miss the cache at every random page


cdef class MapCheck:
    """For one device; empty at first. Memory: a bit per page, and a block's worth of page numbers."""

    def __cinit__(self, Engine ssd not None):
        self.ssd = ssd
        self.shares = ssd.mapping.sharing is not None
        self.pages = <uint64_t> ssd.nand.blocks * ssd.nand.pages_per_block
        self.seen = <uint64_t*> calloc(self.pages // 64 + 1, 8)
        self.of_block = <uint32_t*> malloc(ssd.nand.pages_per_block * sizeof(uint32_t))
        if self.seen == NULL or self.of_block == NULL:
            raise MemoryError
        want_huge_pages(self.seen, self.pages // 8)

    def __dealloc__(self):
        free(self.seen)
        free(self.of_block)

    cdef int clear(self) noexcept nogil:
        """Forgets all that was entered."""
        memset(self.seen, 0, (self.pages // 64 + 1) * 8)
        self.mapped = 0
        return 0

    cdef bint enter_all(self, const uint32_t* ppas, uint32_t n, uint32_t inverted) noexcept nogil:
        """Enters pages that LPAs name, NONE skipped, without asking validity, which would miss the cache for each.
        False if two are the same page and pages are not shared, or a page is not on this chip. ``inverted``: the bits
        of ``ppas`` that are."""
        cdef uint32_t i, ppa
        for i in range(n):
            if i + AHEAD < n and ppas[i + AHEAD] ^ inverted < self.pages:
                prefetch(self.seen + ((ppas[i + AHEAD] ^ inverted) >> 6), 1)
            ppa = ppas[i] ^ inverted
            if ppa == NONE:
                continue
            if ppa >= self.pages or (self.seen[ppa >> 6] >> (ppa & 63) & 1 and not self.shares):
                return False
            self.mapped += not self.seen[ppa >> 6] >> (ppa & 63) & 1
            self.seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
        return True

    cdef bint is_whole(self) except -1 nogil:
        """Whether the live pages are those that were entered."""
        cdef uint64_t live = 0
        return self.first_unnamed(&live) == NONE and live == self.mapped

    cdef uint32_t first_unnamed(self, uint64_t* live) except? 0xFFFFFFFE nogil:
        """The first live user page that was not entered, or NONE; ``live`` grows by the live pages up to its block.
        Pages of other kinds are their owners' to check."""
        cdef uint32_t block, i, n, ppa
        for block in range(self.ssd.nand.blocks):
            if self.ssd.kind_of(block) != KIND_USER:
                continue
            n = self.ssd.validity.pages(block, self.of_block)
            live[0] += n
            for i in range(n):
                ppa = block * self.ssd.nand.pages_per_block + self.of_block[i]
                if not self.seen[ppa >> 6] >> (ppa & 63) & 1:
                    return ppa
        return NONE

    cdef uint32_t unnamed(self) except? 0xFFFFFFFE nogil:
        """A live page that was not entered, or NONE."""
        cdef uint64_t live = 0
        return self.first_unnamed(&live)

    cdef bint enter(self, uint32_t ppa) except -1 nogil:
        """Enters one page that an LPA names; False, and nothing is entered, if it is not on this chip, not live, or
        entered for another LPA and pages are not shared."""
        if ppa < self.pages and self.seen[ppa >> 6] >> (ppa & 63) & 1:
            return self.shares
        if ppa >= self.pages or not self.ssd.validity.is_live(ppa):
            return False
        self.seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
        self.mapped += 1
        return True

    cdef int require(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Enters page ``ppa``, which ``lpa`` names; NONE is skipped. ValueError, which names both, if ``enter`` returns
        False. May read."""
        if ppa != NONE and not self.enter(ppa):
            with gil:
                raise ValueError(self.fault_of(lpa, ppa))
        return 0

    cdef str fault_of(self, uint32_t lpa, uint32_t ppa):
        """What is wrong with a page that could not be entered."""
        if ppa >= self.pages:
            return f"LPA {lpa} is at PPA {ppa}: the chip has {self.pages} pages"
        return f"LPA {lpa} is at PPA {ppa}, which is not live or another LPA's"

    cdef str fault_of_all(self, uint64_t others, bint some_unknown=False):
        """None, or one line: the live pages are not as many as the entered ones and ``others`` together. ``others``:
        translation pages, and LPAs whose place is a guess. With ``some_unknown``, LPAs may be mapped that are in
        neither: then, and if the store is late, only too few live pages are a fault. Validity's own pages do not count;
        if the numbers differ, those in blocks that damage left without headers are looked for, too. May read."""
        cdef uint64_t live = 0, mapped = self.mapped + others
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.ssd.kind_of(block) != KIND_VALIDITY:
                live += self.ssd.validity.count(block)
        if live != mapped:
            live -= self.strays_of_validity()
        if live < mapped if some_unknown or self.ssd.validity.late else live != mapped:
            what = ("pages" if self.shares else "LPAs") + (" and translation pages" if others else "")
            return f"{live} pages are live, and {mapped} {what} are mapped"
        return None

    cdef uint64_t strays_of_validity(self):
        """Validity's own live pages in blocks that say nothing of what they hold, because damage took their headers."""
        cdef uint64_t n = 0
        cdef uint32_t ppa
        for kind, ppa in self.ssd.owned_pages():
            if (kind == KIND_VALIDITY and self.ssd.kind_of(ppa // self.ssd.nand.pages_per_block) != KIND_VALIDITY
                    and self.ssd.validity.is_live(ppa) and not self.seen[ppa >> 6] >> (ppa & 63) & 1):
                n += 1
        return n

    cdef str fault_of_counts(self, const uint32_t* ppas, uint32_t n, uint32_t inverted):
        """For a map in DRAM, ``ppas[lpa] ^ inverted``, and without reading validity's pages in flash: None, or text
        that says that two LPAs are at one page, or that a block's live pages are not as many as the LPAs mapped there.
        """
        cdef uint32_t lpa, ppa, block
        mapped = [0] * self.ssd.nand.blocks
        for lpa in range(n):
            ppa = ppas[lpa] ^ inverted
            if ppa == NONE:
                continue
            if ppa < self.pages and self.seen[ppa >> 6] >> (ppa & 63) & 1 and self.shares:
                continue
            if ppa >= self.pages or self.seen[ppa >> 6] >> (ppa & 63) & 1:
                return self.fault_of(lpa, ppa)
            self.seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
            mapped[ppa // self.ssd.nand.pages_per_block] += 1
        for block in range(self.ssd.nand.blocks):
            live = self.ssd.validity.count(block) if self.ssd.kind_of(block) == KIND_USER else 0
            if live < mapped[block] or (live > mapped[block] and not self.ssd.validity.late):
                return f"block {block} has {live} live pages, and {mapped[block]} LPAs are mapped there"
        return None
