# distutils: language = c++
"""A cache of entries that needs no checkpoint of itself: after a crash it is rebuilt from translation pages and from
the user pages that were programmed since the fence before the last (rebuild.pyx).

LazyFTL, IB-FTL and GeckoFTL recover so, each with its own steps for validity (N. Dayan et al., GeckoFTL, SIGMOD 2016,
sections 4.3 and 5.3). What they share is here: at a fence every entry that was dirty at the fence before, and has not
changed since, goes to its translation page.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.paged.cached_map cimport CachedMap
from flashfs.parts.paged.cmt cimport AGED
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE

import struct

import numpy

from flashfs.parts.from_pages.fences import Fences
from flashfs.parts.from_pages.rebuild import Rebuilder


cdef class FencedMap(CachedMap):
    """As CachedMap; ``slots`` is C, the capacity of the cache. ``fenced``: a crash is recovered from pages, with a
    fence each C updates at most; else from a checkpoint."""

    def __cinit__(self, Engine ssd not None, *_, bint fenced=True, **__):
        self.from_pages = self.made_fences() if fenced else None
        self.store.lasting = fenced
        self.was = <uint32_t*> malloc(ssd.nand.page_bytes)
        if self.was == NULL:
            raise MemoryError
        self.aged_lpas = self.aged_ppas = numpy.empty(0, numpy.uint32)
        self.passed = []
        self.resize(self.cmt.slots)

    def __dealloc__(self):
        free(self.was)

    def resize(self, slots):
        """Also sets a fence each C updates, those of moved pages too, but not so often that fences cost more than the
        writes between. Cleaning ends with its block before a fence comes: a block less keeps the scan to 2 C."""
        cdef uint32_t block = self.ssd.nand.pages_per_block
        super().resize(slots)
        if self.from_pages is not None:
            self.from_pages.limit(max(self.cmt.slots, 5 * block) - block)

    def made_fences(self):
        """The checkpointer: each checkpoint is a fence."""
        return Fences(self.ssd, map=self)

    def device_ready(self):
        """Marks the entries that were dirty at the last fence as AGED in the cache too; those that a scan found later
        are not."""
        cdef uint32_t slot
        super().device_ready()
        for lpa, ppa in zip(self.aged_lpas.tolist(), self.aged_ppas.tolist(), strict=True):
            slot = self.cmt.find(lpa)
            if slot != NONE and self.cmt.is_dirty(slot) and self.cmt.ppa[slot] == ppa:
                self.cmt.flags[slot] |= AGED

    def recovery_base(self):
        return Rebuilder(self.ssd) if self.from_pages is not None else None

    # --- pages

    cdef int rebuild(self, uint32_t page) except -1 nogil:
        """Also makes a fence due, which writes the page: until then a recovery from pages would take an older version.
        """
        CachedMap.rebuild(self, page)
        if self.from_pages is not None and not self.strict:
            with gil:
                self.passed.append(page)
            self.ssd.checkpoint_due = True
        return 0

    cdef int replaces(self, uint32_t page) except -1 nogil:
        if self.mistaken:
            memcpy(self.was, self.image, self.ssd.nand.page_bytes)
        return 0

    cdef bint same_image(self, uint32_t page) except -1 nogil:
        """Whether flash has this content already. That is so for entries that a recovery took for dirty though they
        were not (Appendix C.3.1); none is left two fences after the recovery."""
        if not self.mistaken or self.outdoing or memcmp(self.was, self.image, self.ssd.nand.page_bytes):
            return False
        self.spared_writes += 1
        return True

    cdef int housekeep(self) except -1 nogil:
        """Superseded translation pages die after a sync."""
        if self.from_pages is not None:
            self.store.let_ripe_go()
            if self.store.ripe.size() == 0 and self.store.kept.size():
                self.store.ripen()
        return CachedMap.housekeep(self)

    cdef bint release_superseded(self) except -1 nogil:
        if self.from_pages is None or self.store.kept.size() + self.store.ripe.size() == 0:
            return False
        self.store.let_all_go()
        return True

    # --- fences

    def write_aged(self):
        """A fence begins: every entry that was newer than its translation page at the last one, and has not changed
        since, is written now. It may clean. Section 4.3, *Checkpoints*. The paper's symbol in the LRU queue misses
        dirty entries that are read again and again; here each entry has a flag instead."""
        cdef uint32_t page
        cdef int64_t at
        while self.passed:
            self.outdoing = True
            try:
                self.write_back(self.passed[len(self.passed) - 1])
            finally:
                self.outdoing = False
            self.passed.pop()
        for page in range(self.gtd.n):
            if self.has_aged(page):
                self.write_back(page)
                self.fence_writes += 1
        for lpa, ppa in zip(self.aged_lpas.tolist(), self.aged_ppas.tolist(), strict=True):
            at = self.pending.find(lpa)
            if at >= 0 and self.pending.ppa[at] == ppa:
                self.write_back(self.page_of(lpa))
                self.fence_writes += 1
        self.mistaken -= self.mistaken > 0

    cdef int checkpoint_begins(self) except -1:
        """After all cleaning: the entries dirty now are of pages that were programmed before the place where the next
        fence's scan begins."""
        if self.from_pages is not None:
            self.age()
        return CachedMap.checkpoint_begins(self)

    cdef bint has_aged(self, uint32_t page) noexcept nogil:
        cdef uint32_t slot = self.cmt.first_dirty[page]
        while slot != NONE:
            if self.cmt.flags[slot] & AGED:
                return True
            slot = self.cmt.next_dirty[slot]
        return False

    cdef int age(self) except -1:
        """Marks the entries dirty now: the next fence writes them, unless they change."""
        cdef uint32_t page, slot
        cdef uint64_t n = self.pending.n
        for page in range(self.gtd.n):
            slot = self.cmt.first_dirty[page]
            while slot != NONE:
                self.cmt.flags[slot] |= AGED
                slot = self.cmt.next_dirty[slot]
        self.aged_lpas = numpy.array(array_u32(self.pending.lpa, n)) if n else numpy.empty(0, numpy.uint32)
        self.aged_ppas = numpy.array(array_u32(self.pending.ppa, n)) if n else numpy.empty(0, numpy.uint32)
        return 0

    # --- recovery from pages

    def distrust(self):
        """Marks what was found, so that it is in translation pages as soon as the recovery ends, and a later loss is
        noticed."""
        self.age()

    def base_from_pages(self, versions):
        """{section: bytes} as a checkpoint would have them, from ``versions``, all whole translation pages: (numbers,
        sequence numbers, PPAs), arrays, by number and the oldest version first. Step 2: the directory. The scan finds
        what is newer. Under a late store the number of mapped LPAs is not known; else ``counted`` sets it."""
        ids, _, ppas = versions
        self.ssd.map_ns = self.ssd.now_ns
        sections = self.gtd.from_versions(ids, ppas)
        self.ssd.now_ns = max(self.ssd.now_ns, self.ssd.map_ns)
        return {**sections, "newer": b"", "mapped": struct.pack("<q", -1 if self.ssd.validity.late else 0)}

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """What was found may be in its translation page already."""
        if self.from_pages is not None:
            self.mistaken = 2
        return CachedMap.recovered(self, lpa, ppa, scheme_oob)

    def counted(self, n):
        """After the entries of a recovery: ``n`` LPAs are mapped, each at a page of its own."""
        self.found.into(self.pending)
        self.saved_n = n
        self.exact = True
        self.strays = False

    def load(self, sections):
        cdef uint32_t first = self.gtd.first_id
        super().load(sections)
        self.age()
        self.passed = [page - first for page in numpy.frombuffer(sections.get("passed", b""), "<u4").tolist()
                       if first <= page < first + self.gtd.n]

    def figures(self):
        return {**super().figures(), "fence_writes": self.fence_writes, "spared_writes": self.spared_writes}

    def forget_counts(self):
        self.fence_writes = self.spared_writes = 0
        super().forget_counts()
