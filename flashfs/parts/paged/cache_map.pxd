# The cache figures that every demand-paged mapping counts; see cache_map.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.paged.demand_map cimport DemandMapping


cdef class CacheMap(DemandMapping):
    cdef readonly uint64_t lookups, hits, loads, evictions, dirty_evictions, evicted_entries
    cdef readonly bint fixed               # the cache's size was given
    cdef uint64_t growth_most              # bytes that a budget leaves for what the store knows of; 0: no budget
    cdef int evict_dirty(self, uint32_t page) except -1 nogil
    cdef bint could_write(self) noexcept nogil
    cdef int64_t least_growth(self) noexcept
    cdef int bound_growth(self) noexcept nogil
