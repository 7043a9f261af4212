# distutils: language = c++
"""A demand-paged mapping with a cache: the figures that all of them count, and how much DRAM the cache gets.

A scheme brings the cache itself: entries (cached_map.pyx), nodes of entries, condensed pages.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.paged.demand_map cimport DemandMapping

from flashfs.errors import BindError


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

    def room_for_cache(self, uint64_t share, own, least):
        """Bytes for the cache: the ``share`` that the other structures leave plus its ``own``, less 4 bytes per
        translation page, less 1/32 for structures that grow with the work. BindError if that is less than ``least``."""
        room = share + own - min(share, 4 * <uint64_t> self.gtd.n)
        room -= room // 32
        if room < least:
            raise BindError(f"{room} bytes of DRAM are left for the CMT: it needs {least}")
        return room

    def cached_of_pages(self):
        """{translation page: entries of it that are cached}."""
        raise NotImplementedError

    def cache_facts(self):
        """The cache in figures, for ``dump``."""
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
