# distutils: language = c++
"""A demand-paged mapping with a cache: the figures that all of them count, and how much DRAM the cache gets.

A scheme brings the cache itself: entries (cached_map.pyx), nodes of entries, condensed pages.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.paged.demand_map cimport DemandMapping

from flashfs.errors import BindError

PART_THAT_GROWS = 32  #: of a budget, one part in so many is left for structures that grow with the work
OTHERS_GROW = 1024  #: bytes that structures outside the map may grow by, at least


cdef class CacheMap(DemandMapping):
    """``lookups``: pages that the host read and wrote; ``hits``: those whose entry was in DRAM by then; ``loads``:
    translation pages that were read for the others. ``evictions``: entries (or the cache's units) that left the cache;
    ``dirty_evictions``: the write-backs that this took, of ``evicted_entries``."""

    cdef int evict_dirty(self, uint32_t page) except -1 nogil:
        """Makes a dirty entry of that translation page evictable: writes all newer entries there, in one program."""
        cdef uint64_t entries = self.entries_written
        self.dirty_evictions += 1
        self.write_back(page)
        self.evicted_entries += self.entries_written - entries
        return 0

    cdef bint could_write(self) noexcept nogil:
        """Whether a read may make room by writing: not on a read-only image, nor on a device that has stopped."""
        return not (self.ssd.stopped or self.ssd.frozen)

    def limit_tables(self, int64_t share):
        """What the other structures leave is for the cache, unless its size was given: its own bytes and ``share``,
        without what is left for structures that grow with the work until a checkpoint."""
        if self.fixed or self.in_use():
            return
        own, least = self.cache_bounds()
        room = share + own - self.least_growth()
        grows = room // PART_THAT_GROWS
        if room - grows < least:
            raise BindError(f"{room - grows} bytes of DRAM are left for the CMT: it needs {least}")
        self.resize_cache(room - grows)
        self.growth_most = <uint64_t> (grows + 4 * <int64_t> self.gtd.n)

    def least_share(self):
        if self.fixed or self.in_use():
            return 0
        own, least = self.cache_bounds()
        return -(-least * PART_THAT_GROWS // (PART_THAT_GROWS - 1)) + 1 + self.least_growth() - own

    cdef int64_t least_growth(self) noexcept:
        """Bytes: 4 for each translation page, and what other structures may grow by."""
        return 4 * <int64_t> self.gtd.n + OTHERS_GROW

    cdef int housekeep(self) except -1 nogil:
        DemandMapping.housekeep(self)
        self.bound_growth()
        return 0

    cdef int bound_growth(self) noexcept nogil:
        """What a budget leaves for pages programmed and superseded since the last checkpoint is full: the next one
        forgets them."""
        if self.growth_most and 4 * self.store.known() > self.growth_most:
            self.ssd.checkpoint_due = True
        return 0

    def cache_bounds(self):
        """(Bytes that the cache takes now, and at least.)"""
        raise NotImplementedError

    def in_use(self):
        """Whether something is cached: then the cache keeps its size."""
        raise NotImplementedError

    def resize_cache(self, room):
        """A new, empty cache of ``room`` bytes at most, or of the least size that works. Nothing may be cached. The
        caller refuses too little room (BindError, in ``limit_tables``). MemoryError: then the cache is the old or the
        new one, and empty."""
        raise NotImplementedError

    def cached_of_pages(self):
        """{translation page: entries of it that are cached}."""
        raise NotImplementedError

    def cache_facts(self):
        """The cache in figures, for ``dump``: {name: int}. The names are the scheme's; "dirty", the number of dirty
        entries, is always there."""
        raise NotImplementedError

    def figures(self):
        return {
            "lookups": self.lookups,
            "hits": self.hits,
            "misses": self.lookups - self.hits,
            "hit_ratio": round(float(self.hits) / self.lookups, 6) if self.lookups else None,
            "loads": self.loads,
            "evictions": self.evictions,
            "dirty_evictions": self.dirty_evictions,
            "evicted_entries": self.evicted_entries,
            **super().figures(),
        }

    def forget_counts(self):
        self.lookups = self.hits = self.loads = self.evictions = self.dirty_evictions = self.evicted_entries = 0
        super().forget_counts()
