# distutils: language = c++
"""S-FTL's mapping (S. Jiang et al., S-FTL: An Efficient Address Translation for Flash Memory by Exploiting Spatial
Locality, MSST 2011): whole translation pages are cached, condensed, and a buffer takes the dirty entries of evicted
pages.

The buffer consists of the *pending* entries of every demand-paged mapping (flashfs.parts.paged.pending_entries), so
trims and entries found by a recovery wait there too. Here a pending entry takes precedence over a cached page: an LPA
with a pending entry is changed there. ``cached`` follows that, and lists of dirty entries leave out pending LPAs.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.paged.cache_map cimport CacheMap
from flashfs.parts.paged.pending_entries cimport UNSEEN
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.sftl.condensed cimport CondensedPages, Node

import numpy

from flashfs.errors import DeviceFullError
from flashfs.ftl.sftl.condensed import most_units, unit_size

SPARE = 4                    #: least units beyond those of one page
BUFFERED_BYTES = 12          #: bytes of a pending entry


def least_units(per_page):
    """The least units of a cache: one page of any content, and what a batch of writes may add."""
    return most_units(per_page) + SPARE


def shares_of(room, per_page, share):
    """(units of the cache, entries of the buffer) for so many bytes."""
    buffer = room * share // 100
    return max(least_units(per_page), (room - buffer) // unit_size(per_page)), buffer // BUFFERED_BYTES


cdef class SftlMap(CacheMap):
    """A cache of ``cache_bytes``, of which ``buffer_share`` per cent are for the dirty buffer; ``fixed``: this size
    does not depend on the DRAM budget."""

    def __cinit__(self, Engine ssd not None, uint64_t cache_bytes, uint32_t buffer_share, bint fixed=False):
        self.fixed = fixed
        self.buffer_share = buffer_share
        self.kept = <uint32_t*> malloc(<uint64_t> self.per_page * 4)
        self.leaving = <uint32_t*> malloc(<uint64_t> self.per_page * 8)
        if not (self.kept and self.leaving):
            raise MemoryError
        self.resize(cache_bytes)

    def __dealloc__(self):
        free(self.kept)
        free(self.leaving)

    def resize(self, cache_bytes):
        """Make a new, empty cache, of at most the units that all pages can take, and room for the buffer."""
        units, buffer = shares_of(cache_bytes, self.per_page, self.buffer_share)
        self.cmt = CondensedPages(min(units, SPARE + self.gtd.n * most_units(self.per_page)), self.gtd.n, self.per_page)
        self.buffer_most = min(buffer, self.ssd.lpas)
        self.wait_for_most(2 * self.per_page + self.buffer_most, 1)

    # --- what the host asks: everything that reads, writes and cleans happens here

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """Cache the pages of the first LPAs, as many as fit together, unless an LPA is in the buffer. A miss waits for
        the write-backs that make room, then for its page; misses do not wait for each other. A page to be written needs
        room for two more heads, and for its dirty bits."""
        cdef uint32_t i, page, unit, spare = 0
        cdef uint64_t reads
        self.cmt.next_batch()
        if writing:
            self.pending.reserve(n + self.per_page)
        for i in range(n):
            page = self.page_of(lpas[i])
            unit = self.cmt.node_of[page]
            if unit != NONE or self.pending.find(lpas[i]) >= 0:
                self.hits += 1
                if unit != NONE:
                    self.cmt.use(unit)
            else:
                self.ssd.map_ns = ready[i]
                reads = self.store.reads
                if not self.try_room(page, spare + 2 * writing, writing):
                    if i:
                        return i
                    self.look(page)
                ready[i] = self.ssd.map_ns
                self.loads += self.store.reads != reads
                self.wait_for(lpas + i, n - i, page, ready + i)
            self.lookups += 1
            if writing:
                spare += self.growth(page, i == 0 or self.page_of(lpas[i - 1]) != page)
                self.ssd.map_ns = ready[i]
                self.make_room(spare, True)
                ready[i] = self.ssd.map_ns
        return n

    cdef uint32_t growth(self, uint32_t page, bint first) noexcept nogil:
        """Units that a page may need in addition when an LPA of it is written: the ``first`` LPA of the page in a
        request counts for those that follow, which seldom break more runs."""
        cdef uint32_t unit = self.cmt.node_of[page]
        cdef Node* node
        if unit == NONE or not first:
            return 0
        node = self.cmt.node(unit)
        return (node.dirty == NONE) + self.cmt.units_for(node.runs + 2) - self.cmt.units_for(node.runs)

    cdef int wait_for(self, const uint32_t* lpas, uint32_t n, uint32_t page, int64_t* ready) noexcept nogil:
        """Other LPAs of the page are ready when its first one is."""
        cdef uint32_t i
        for i in range(1, n):
            if self.page_of(lpas[i]) == page:
                ready[i] = max(ready[i], ready[0])
        return 0

    cdef bint try_room(self, uint32_t page, uint32_t spare, bint writing) except -1 nogil:
        """Load the page; False if there is no room for it beside the pages that this batch uses. A read also gets False
        if making room needs a write, and the image takes no more or must not be changed: then it bypasses the cache."""
        if writing:
            return self.load(page, spare, True)
        if not self.could_write():
            return self.load(page, spare, False)
        with gil:
            try:
                return self.load(page, spare, True)
            except (OSError, DeviceFullError):
                return False

    cdef bint load(self, uint32_t page, uint32_t spare, bint may_write) except -1 nogil:
        """Cache the page, with its pending entries. Making room may write, which overwrites ``image``, and may clean,
        which may change the page: then it is read again. The same PPA does not prove that it is unchanged: its newest
        version may be where an older one was."""
        cdef uint32_t runs = 1, units, ppa, pending
        cdef uint32_t* image = self.kept
        while True:
            ppa = self.gtd.where(page)
            if ppa != NONE:
                self.fetch(page)
                memcpy(self.kept, self.image, self.ssd.nand.page_bytes)
                runs = self.cmt.runs_in(image)
                ppa = self.gtd.where(page)  # it may have been rebuilt
            else:
                memset(image, 0xFF, self.ssd.nand.page_bytes)
                runs = 1
            pending = <uint32_t> (self.pending.first_from(page * self.per_page + self.entries_of(page))
                                  - self.pending.first_from(page * self.per_page))
            units = self.cmt.units_for(min(self.per_page, runs + 2 * pending)) + spare
            if pending:
                units += 1
            units = min(units, self.cmt.units)
            self.watched = page
            self.outdated = False
            if not self.make_room(units, may_write):
                return False
            if self.gtd.where(page) == ppa and not self.outdated:
                break
        return self.absorb(self.cmt.insert(page, image, runs)) == 0

    cdef int absorb(self, uint32_t unit) except -1 nogil:
        """Make the page's pending entries dirty entries of the cached page, as far as there is room; entries of moved
        pages that are not yet proved against flash stay pending."""
        cdef uint32_t first = self.cmt.node(unit).page * self.per_page
        cdef uint64_t at = self.pending.first_from(first), begun = at
        while (self.pending.moved_n == 0 and at < self.pending.n and self.pending.lpa[at] - first < self.per_page
               and self.cmt.put(unit, self.pending.lpa[at] - first, self.pending.ppa[at])):
            at += 1
        if at > begun:
            self.drop_pending(begun, at)
        return 0

    cdef uint64_t idle_bytes(self) noexcept nogil:
        return self.cmt.free_bytes()

    cdef bint make_room(self, uint32_t units, bint may_write) except -1 nogil:
        """Evict until so many units are free; False if that needs a page of this batch, or a write that is not
        allowed."""
        cdef uint32_t unit
        while self.cmt.free_n < units:
            unit = self.cmt.victim()
            if unit == NONE:
                return False
            if self.cmt.node(unit).dirty_n and not self.buffers(unit, may_write):
                if not may_write:
                    return False
                continue
            self.cmt.drop(unit)
            self.evictions += 1
        return True

    cdef bint buffers(self, uint32_t unit, bint may_write) except -1 nogil:
        """Before a page with dirty entries is evicted: put them into the buffer, if that has room. Else write the page
        with the most entries there, or the evicted one if it has more, and return False."""
        cdef uint32_t page = self.cmt.node(unit).page, n = self.newest_dirty(unit)
        cdef uint64_t most = 0
        if self.pending.n + n <= self.buffer_most:
            self.put_newer(self.leaving, self.leaving + self.per_page, NULL, n)
            self.buffered += n
            return True
        if not may_write:
            return False
        unit = self.fullest(&most)
        if most > n:
            self.buffer_writes += 1
            page = unit
        self.evict_dirty(page)
        return False

    cdef uint32_t fullest(self, uint64_t* most) noexcept nogil:
        """The translation page with the most entries in the buffer; sets how many. NONE if the buffer is empty."""
        cdef uint64_t at = 0, end
        cdef uint32_t page, best = NONE
        while at < self.pending.n:
            page = self.page_of(self.pending.lpa[at])
            end = at
            while end < self.pending.n and self.page_of(self.pending.lpa[end]) == page:
                end += 1
            if end - at > most[0]:
                most[0] = end - at
                best = page
            at = end
        return best

    cdef uint32_t newest_dirty(self, uint32_t unit) noexcept nogil:
        """List a cached page's dirty entries, except pending LPAs, in ``leaving``; returns how many."""
        cdef uint32_t first = self.cmt.node(unit).page * self.per_page, i, n, kept = 0
        cdef uint64_t at = self.pending.first_from(first) if self.pending.n else 0
        n = self.cmt.list_dirty(unit, self.leaving, self.leaving + self.per_page)
        for i in range(n):
            while at < self.pending.n and self.pending.lpa[at] < first + self.leaving[i]:
                at += 1
            if at < self.pending.n and self.pending.lpa[at] == first + self.leaving[i]:
                continue
            self.leaving[kept] = first + self.leaving[i]
            self.leaving[self.per_page + kept] = self.leaving[self.per_page + i]
            kept += 1
        return kept

    cdef int spill(self, uint32_t unit) except -1 nogil:
        """Make the page's dirty entries pending, so that it can be evicted."""
        cdef uint32_t n = self.newest_dirty(unit)
        return self.put_newer(self.leaving, self.leaving + self.per_page, NULL, n)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if not self.cached(lpas[i], ppas + i):
                self.peek(lpas + i, 1, ppas + i)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """Entries in the buffer are changed there. So are entries without room in the cache, even if they were
        prepared: entries moved by cleaning may have taken the room."""
        cdef uint32_t i, now
        self.changes()
        for i in range(n):
            now = ppa + i
            self.lookup(lpas + i, 1, olds + i)
            self.mapped_n += olds[i] == NONE
            if not self.recache(lpas[i], now):
                self.put_newer(lpas + i, &now, NULL, 1)
        return self.drop_strays(lpas, 0, n, olds) if self.strays else 0

    # --- what the base asks of the cache

    cdef bint says(self, uint32_t lpa) noexcept nogil:
        """Whether a cached page has the LPA's current entry: not if one is pending."""
        return self.cmt.node_of[self.page_of(lpa)] != NONE and not (self.pending.n and self.pending.find(lpa) >= 0)

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        cdef uint32_t page = self.page_of(lpa)
        if not self.says(lpa):
            return False
        ppa[0] = self.cmt.get(self.cmt.node(self.cmt.node_of[page]), lpa - page * self.per_page)
        return True

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """If there is no room for the change, the page is evicted, and its dirty entries become pending."""
        cdef uint32_t page = self.page_of(lpa), unit = self.cmt.node_of[page]
        if not self.says(lpa):
            return False
        if self.cmt.put(unit, lpa - page * self.per_page, ppa):
            return True
        self.spill(unit)
        self.cmt.drop(unit)
        self.evictions += 1
        return False

    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil:
        cdef uint32_t unit = self.cmt.node_of[self.page_of(first)], i, dirty, found = 0
        if unit == NONE or self.cmt.node(unit).dirty_n == 0:
            return 0
        dirty = self.newest_dirty(unit)
        for i in range(dirty):
            if self.leaving[i] - first < n:
                found += 1
                if image != NULL:
                    image[self.leaving[i] - first] = self.leaving[self.per_page + i]
        return found

    cdef int replaces(self, uint32_t page) except -1 nogil:
        """Pending entries of a cached page leave the buffer with this write, so put them into the cached page."""
        cdef uint32_t unit = self.cmt.node_of[page], first = page * self.per_page, offset
        cdef uint64_t at = self.pending.first_from(first)
        while unit != NONE and at < self.pending.n and self.pending.lpa[at] - first < self.per_page:
            offset = self.pending.lpa[at] - first
            if self.pending.expected[at] == self.image[offset]:
                self.pending.settle(at)
            if self.pending.expected[at] == UNSEEN and not self.cmt.put(unit, offset, self.pending.ppa[at]):
                self.spill(unit)
                self.cmt.drop(unit)
                return 0
            at += 1
        return 0

    cdef int cleaned(self, uint32_t page) except -1 nogil:
        if self.cmt.node_of[page] != NONE:
            self.cmt.clean(self.cmt.node_of[page])
        return 0

    cdef int uncache(self, uint32_t page) except -1 nogil:
        return self.cmt.drop(self.cmt.node_of[page]) if self.cmt.node_of[page] != NONE else 0

    cdef int uncache_all(self) noexcept nogil:
        return self.cmt.clear()

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        self.pending.reserve(n + self.per_page)  # a page that grows may be evicted
        return CacheMap.prepare_unbind(self, lpa, n)

    cdef int fetch(self, uint32_t page) except -1 nogil:
        """As for every mapping; a cached page is not read."""
        cdef uint32_t unit = self.cmt.node_of[page]
        if unit == NONE:
            return CacheMap.fetch(self, page)
        self.cmt.expand(unit, self.image)
        self.image_of = page
        self.image_ppa = self.gtd.where(page)
        return 0

    cdef int remade(self, uint32_t page, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil:
        """If the page is cached, mark all its entries as dirty, so that it is rewritten when it is evicted."""
        cdef uint32_t unit = self.cmt.node_of[page]
        if unit == NONE or not self.cmt.mark_all(unit, self.entries_of(page)):
            return CacheMap.remade(self, page, lpas, ppas, n)
        return self.set_ppa(page, NONE)

    cdef bint write_next(self) except -1 nogil:
        """Write the page with the most entries in the buffer."""
        cdef uint64_t most = 0
        cdef uint32_t page = self.fullest(&most)
        if page == NONE:
            return False
        self.write_back(page)
        return True

    def dirty_entries(self):
        cdef uint32_t unit = self.cmt.oldest, n, at = 0
        lpas = numpy.empty(self.cmt.dirty_n, numpy.uint32)
        ppas = numpy.empty(self.cmt.dirty_n, numpy.uint32)
        while unit != NONE:
            n = self.newest_dirty(unit) if self.cmt.node(unit).dirty_n else 0
            if n:
                lpas[at : at + n] = array_u32(self.leaving, n)
                ppas[at : at + n] = array_u32(self.leaving + self.per_page, n)
            at += n
            unit = self.cmt.node(unit).newer
        return lpas[:at], ppas[:at]

    # --- dirty pages of the cache are restored at a mount

    def newer(self):
        """As for every mapping, plus all other entries of each cached page with dirty ones: so it can be cached again
        without a read."""
        found = [super().newer()]
        for one in self.cmt.entries():
            if one["dirty"]:
                page, n = one["page"], self.entries_of(one["page"])
                lpas = numpy.arange(one["first_lpa"], one["first_lpa"] + n, dtype=numpy.uint32)
                found.insert(0, (lpas, self.cmt.image_of(page)[:n]))
        lpas, ppas = (numpy.concatenate([pair[at] for pair in found]) for at in range(2))
        order = numpy.argsort(lpas, kind="stable")
        lpas, ppas = lpas[order], ppas[order]
        last = numpy.append(numpy.diff(lpas) != 0, True) if len(lpas) else numpy.empty(0, bool)
        return lpas[last], ppas[last]

    def device_ready(self):
        super().device_ready()
        if self.pending.moved_n == 0 and not self.strays:
            self.take_back()

    cdef int take_back(self) except -1:
        """Cache pages of which every entry is pending: otherwise they would take room beyond that of the cache, which
        stays empty."""
        cdef uint64_t at = 0, end
        cdef uint32_t page, n, runs, unit
        while at < self.pending.n:
            page = self.page_of(self.pending.lpa[at])
            n = self.entries_of(page)
            end = self.pending.first_from(page * self.per_page + n)
            memset(self.kept, 0xFF, self.ssd.nand.page_bytes)
            memcpy(self.kept, self.pending.ppa + at, (end - at) * 4)
            runs = self.cmt.runs_in(self.kept)
            if end - at < n or self.cmt.units_for(runs) >= self.cmt.free_n:
                at = end
                continue
            unit = self.cmt.insert(page, self.kept, runs)
            self.cmt.mark_all(unit, n)
            self.pending.erase(at, end)
        return self.pending.shrink(self.pending_room)

    # --- the ledger, and for people

    def cache_bounds(self):
        """As CacheMap's, of the cache and its buffer together."""
        least = least_units(self.per_page) * unit_size(self.per_page) * 100 // (100 - self.buffer_share) + 1
        return self.cmt.sizes()[0] - 4 * self.gtd.n + BUFFERED_BYTES * self.buffer_most, least + 4 * self.per_page

    def in_use(self):
        return self.cmt.pages_n > 0

    def resize_cache(self, room):
        """As CacheMap's: ``room`` in bytes, of which 4 for each entry of a translation page are set aside. MemoryError.
        """
        self.resize(room - 4 * self.per_page)

    def tables(self):
        packed, allocated = self.cmt.sizes()
        lists = 12 * self.per_page
        return {"cmt": (packed + lists - self.lent, allocated + lists), **super().tables()}

    def figures(self):
        return {
            "units": self.cmt.units,
            "pages": self.cmt.pages_n,
            "runs": self.cmt.runs,
            "condensed_bytes": self.cmt.condensed_bytes(),
            "dirty": self.cmt.dirty_n,
            "buffer_most": self.buffer_most,
            "buffered": self.buffered,
            "buffer_writes": self.buffer_writes,
            **super().figures(),
        }

    def forget_counts(self):
        self.buffered = self.buffer_writes = 0
        super().forget_counts()

    def cached_of_pages(self):
        return {one["page"]: self.entries_of(one["page"]) for one in self.cmt.entries()}

    def cache_facts(self):
        return {
            "cached_pages": self.cmt.pages_n,
            "cached_runs": self.cmt.runs,
            "condensed_bytes": self.cmt.condensed_bytes(),
            "dirty": self.cmt.dirty_n,
            "buffer_most": self.buffer_most,
        }

    def check(self):
        return super().check() + self.cmt.check()
