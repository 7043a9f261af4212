# distutils: language = c++
"""TPFTL's mapping (Y. Zhou et al., An Efficient Page-level FTL to Optimize Address Translation in Flash Memory, EuroSys
2015), which LearnedFTL uses too: a cache of entries in nodes, one per translation page, with prefetching and eviction.

The pages, their directory, cleaning's updates, trims and recovery are those of every demand-paged mapping
(flashfs.parts.paged.demand_map).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.parts.paged.cache_map cimport CacheMap
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE
from flashfs.parts.paged.two_level_cache cimport UNIT_BYTES, Spot, TwoLevelCache

from collections import Counter

from flashfs.errors import DeviceFullError

UNITS_LEAST = 8              #: units of the cache: a node and a chunk for four translation pages
UNIT_TAKES = UNIT_BYTES + 2  #: bytes of a unit, with its part of the heap


def units_in(room):
    """How many units of the cache fit into ``room`` bytes; at least UNITS_LEAST."""
    return max(UNITS_LEAST, room // UNIT_TAKES)


cdef class TpMap(CacheMap):
    """A cache of ``cache_bytes`` bytes: UNITS_LEAST units at least, and no more than the entries of all LPAs can take.
    ``fixed``: this size does not depend on the DRAM budget. ``request_level``: a miss also caches the other entries of
    the request in its translation page. ``selective_level``: while the workload seems sequential, a miss also caches as
    many entries after it as are cached right before it. Further keywords are ignored. MemoryError."""

    def __cinit__(self, Engine ssd not None, uint64_t cache_bytes, bint fixed=False, *, bint request_level=True,
                  bint selective_level=True, **_):
        self.fixed = fixed
        self.request_level = request_level
        self.selective_level = selective_level
        self.marked = <uint64_t*> malloc((self.per_page + 63) // 64 * 8)
        if self.marked == NULL:
            raise MemoryError
        self.resize(units_in(cache_bytes))

    def __dealloc__(self):
        free(self.marked)

    def resize(self, units):
        """A new, empty cache, with no more units than entries for all LPAs can take."""
        most = UNITS_LEAST + 4 * self.gtd.n + self.ssd.lpas // 4
        self.cmt = TwoLevelCache(min(units, most), self.gtd.n, self.per_page)

    # --- the host's requests: all reads, writes and cleaning happen here

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """Caches the entries of the first LPAs; returns of how many. A miss waits for the write-back that makes room,
        then for its own translation page; misses of different pages do not wait for each other, and prefetched entries
        are there with their page."""
        cdef uint32_t i
        self.cmt.next_batch()
        for i in range(n):
            if not self.bring(lpas, i, n, writing, ready):
                return i
        return n

    cdef bint bring(self, const uint32_t* lpas, uint32_t i, uint32_t n, bint writing,
                    int64_t* ready) except -1 nogil:
        """Caches LPA ``i``; False if the whole cache is of this batch."""
        cdef uint32_t page = self.page_of(lpas[i]), offset = lpas[i] - page * self.per_page, ppa
        cdef uint64_t reads
        cdef int room
        cdef bint dirty = False
        if self.cmt.use(page, offset):
            self.lookups += 1
            self.hits += 1
            return True
        self.ssd.map_ns = ready[i]
        room = self.make_room(page) if writing else self.make_room_to_read(page)
        if room == 0:
            return False
        self.lookups += 1
        if room < 0:
            self.look(page)
            ready[i] = self.ssd.map_ns
            return True
        reads = self.store.reads
        self.image_of = NONE
        ppa = self.entry(lpas[i], &dirty)
        self.loads += self.store.reads != reads
        self.cmt.insert(page, offset, ppa, dirty, True)
        ready[i] = self.ssd.map_ns
        self.prefetch(lpas, i, n, ready)
        return True

    cdef uint64_t idle_bytes(self) noexcept nogil:
        return self.cmt.free_bytes()

    cdef int make_room(self, uint32_t page) except -1 nogil:
        """Makes room for another entry of the page: 1; 0 if the whole cache is of this batch. Clean entries of the
        coldest node leave first. If it has none, its dirty ones go to their translation page together, and stay, clean
        (batch update, section 4.4)."""
        cdef uint32_t node
        cdef Spot spot
        while self.cmt.units_for(page) > self.cmt.free_n:
            node = self.cmt.coldest()
            if node == NONE:
                return 0
            if self.cmt.leaver(node, &spot):
                self.cmt.remove(node, &spot)
                self.evictions += 1
            else:
                self.evict_dirty(self.cmt.node(node).page)
        return 1

    cdef int make_room_to_read(self, uint32_t page) except -2 nogil:
        """As ``make_room``; -1 if that would write, and the image is full or read-only. The read bypasses the cache
        then, as a read must not fail because nothing can be written."""
        cdef uint32_t node
        cdef Spot spot
        if self.could_write():
            with gil:
                try:
                    return self.make_room(page)
                except (OSError, DeviceFullError):
                    return -1
        while self.cmt.units_for(page) > self.cmt.free_n:
            node = self.cmt.coldest()
            if node == NONE or not self.cmt.leaver(node, &spot):
                return -1
            self.cmt.remove(node, &spot)
            self.evictions += 1
        return 1

    # --- prefetching: further entries of the page that was read

    cdef int prefetch(self, const uint32_t* lpas, uint32_t i, uint32_t n, int64_t* ready) except -1 nogil:
        """LPA ``i`` was not cached. The others of the request in its translation page are cached too; and if the
        workload seems sequential, as many after it as are cached right before it (section 4.3). Nothing is written to
        make room for these."""
        cdef uint32_t page = self.page_of(lpas[i]), first = page * self.per_page, offset = lpas[i] - first, k
        cdef uint32_t behind = 0, end = self.entries_of(page)
        cdef bint there = self.image_of == page
        cdef bint selective = self.selective_level and self.cmt.selective
        if not (there or self.gtd.absent(page)) or not (selective or (self.request_level and i + 1 < n)):
            return 0                        # the entry was pending: nothing was read
        self.mark_known(page)
        self.giving = NONE
        for k in range(i + 1, n if self.request_level else i + 1):
            if self.page_of(lpas[k]) == page and not self.is_marked(lpas[k] - first):
                if not self.prefetch_one(page, lpas[k] - first, there):
                    return 0
                ready[k] = max(ready[k], self.ssd.map_ns)
        while selective and behind < offset and self.is_marked(offset - behind - 1):
            behind += 1
        for k in range(offset + 1, min(end, offset + 1 + behind)):
            if not self.is_marked(k) and not self.prefetch_one(page, k, there):
                return 0
        return 0

    cdef int mark_known(self, uint32_t page) noexcept nogil:
        """Sets a bit in ``marked`` for each entry of the page that needs no prefetching: those that are cached."""
        return self.cmt.list_cached(page, self.marked, NULL)

    cdef inline bint is_marked(self, uint32_t offset) noexcept nogil:
        return self.marked[offset >> 6] >> (offset & 63) & 1

    cdef bint prefetch_one(self, uint32_t page, uint32_t offset, bint there) except -1 nogil:
        """Caches one entry from ``image`` if the page is ``there``, else a hole. False if there is no room. A pending
        entry is newer than the page, and stays pending."""
        if self.pending.n and self.pending.find(page * self.per_page + offset) >= 0:
            return True
        if not self.room_for_prefetch(page):
            return False
        self.cmt.insert(page, offset, self.image[offset] if there else NONE, False, False)
        self.marked[offset >> 6] |= <uint64_t> 1 << (offset & 63)
        self.prefetched += 1
        return True

    cdef bint room_for_prefetch(self, uint32_t page) except -1 nogil:
        """Makes room for a prefetched entry. One miss may evict only clean entries of one node, the coldest, for this.
        """
        cdef uint32_t node
        cdef Spot spot
        while self.cmt.units_for(page) > self.cmt.free_n:
            if self.giving == NONE:
                node = self.cmt.coldest()
                if node == NONE or self.cmt.node(node).page == page:
                    return False
                self.giving = self.cmt.node(node).page
            node = self.cmt.node_of[self.giving]
            if node == NONE or not self.cmt.leaver(node, &spot):
                return False
            self.cmt.remove(node, &spot)
            self.evictions += 1
        return True

    # --- the rest of the mapping's interface

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if not self.cached(lpas[i], ppas + i):
                self.peek(lpas + i, 1, ppas + i)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i, page
        cdef Spot spot
        self.changes()
        for i in range(n):
            page = self.page_of(lpas[i])
            self.cmt.find(page, lpas[i] - page * self.per_page, &spot)
            olds[i] = self.cmt.chunk(spot.chunk).ppa[spot.place]
            self.cmt.put(page, &spot, ppa + i)
            self.mapped_n += olds[i] == NONE
        return self.drop_strays(lpas, 0, n, olds) if self.strays else 0

    # --- the cache's answers to the base class

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        cdef uint32_t page = self.page_of(lpa)
        cdef Spot spot
        if not self.cmt.find(page, lpa - page * self.per_page, &spot):
            return False
        ppa[0] = self.cmt.chunk(spot.chunk).ppa[spot.place]
        return True

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        cdef uint32_t page = self.page_of(lpa)
        cdef Spot spot
        if not self.cmt.find(page, lpa - page * self.per_page, &spot):
            return False
        self.cmt.put(page, &spot, ppa)
        return True

    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil:
        cdef uint32_t page = self.page_of(first)
        return self.cmt.dirty_of(page, first - page * self.per_page, n, image)

    cdef int cleaned(self, uint32_t page) except -1 nogil:
        return self.cmt.clean_page(page)

    cdef int uncache(self, uint32_t page) except -1 nogil:
        return self.cmt.forget_page(page)

    cdef int uncache_all(self) noexcept nogil:
        return self.cmt.clear()

    def device_ready(self):
        super().device_ready()
        self.take_back()

    cdef int take_back(self) except -1:
        """Moves pending entries to the cache: before the mount they were dirty there, and as pending entries they would
        take DRAM beyond the budget. Not after damage, when entries must go to their pages first, which checks them."""
        cdef uint64_t i = 0
        cdef uint32_t page, ppa = NONE
        while i < self.pending.n and self.pending.moved_n == 0 and not self.strays:
            page = self.page_of(self.pending.lpa[i])
            if self.cmt.units_for(page) > self.cmt.free_n:
                break
            if not self.cached(self.pending.lpa[i], &ppa):
                self.cmt.insert(page, self.pending.lpa[i] - page * self.per_page, self.pending.ppa[i], True, True)
            i += 1
        self.pending.erase(0, i)
        return self.pending.shrink(self.pending_room)

    def dirty_entries(self):
        return self.cmt.dirty_entries()

    # --- the DRAM ledger, and for users

    def cache_bounds(self):
        return self.cmt.units_take(), UNITS_LEAST * UNIT_TAKES

    def in_use(self):
        return self.cmt.used > 0

    def resize_cache(self, room):
        """As CacheMap's: ``room`` in bytes, UNITS_LEAST units at least. MemoryError: then the old cache is still there.
        """
        self.resize(units_in(room))

    def tables(self):
        marks = (self.per_page + 63) // 64 * 8
        packed, allocated = self.cmt.sizes()
        return {"cmt": (packed + marks - self.lent, allocated + marks), **super().tables()}

    def figures(self):
        return {
            "units": self.cmt.units,
            "nodes": self.cmt.nodes_n,
            "cached": self.cmt.used,
            "dirty": self.cmt.dirty_n,
            "prefetched": self.prefetched,
            "selective": int(self.cmt.selective),
            **super().figures(),
        }

    def forget_counts(self):
        self.prefetched = 0
        super().forget_counts()

    def cached_of_pages(self):
        return Counter({node["page"]: node["entries"] for node in self.cmt.nodes()})

    def cache_facts(self):
        """As CacheMap's: "cached" entries, "nodes" (translation pages that have any), "dirty" entries."""
        return {"cached": self.cmt.used, "nodes": self.cmt.nodes_n, "dirty": self.cmt.dirty_n}

    def check(self):
        return super().check() + self.cmt.check()
