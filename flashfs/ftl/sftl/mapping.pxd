# S-FTL's mapping; see mapping.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.paged.cache_map cimport CacheMap
from flashfs.ftl.sftl.condensed cimport CondensedPages


cdef class SftlMap(CacheMap):
    cdef readonly CondensedPages cmt
    cdef readonly uint64_t buffer_most     # entries of evicted pages that may wait in the dirty buffer
    cdef readonly uint64_t buffered, buffer_writes
    cdef uint32_t buffer_share             # of the cache, per cent
    cdef uint32_t* kept                    # a translation page that waits for room
    cdef uint32_t* leaving                 # two lists of ``per_page``: LPAs and PPAs of an evicted page
    cdef bint load(self, uint32_t page, uint32_t spare, bint may_write) except -1 nogil
    cdef int absorb(self, uint32_t unit) except -1 nogil
    cdef bint make_room(self, uint32_t units, bint may_write) except -1 nogil
    cdef bint try_room(self, uint32_t page, uint32_t spare, bint writing) except -1 nogil
    cdef bint buffers(self, uint32_t unit, bint may_write) except -1 nogil
    cdef int spill(self, uint32_t unit) except -1 nogil
    cdef uint32_t newest_dirty(self, uint32_t unit) noexcept nogil
    cdef uint32_t fullest(self, uint64_t* most) noexcept nogil
    cdef int take_back(self) except -1
    cdef uint32_t growth(self, uint32_t page, bint first) noexcept nogil
    cdef bint says(self, uint32_t lpa) noexcept nogil
    cdef int wait_for(self, const uint32_t* lpas, uint32_t n, uint32_t page, int64_t* ready) noexcept nogil
