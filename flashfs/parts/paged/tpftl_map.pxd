# TPFTL's mapping; see tpftl_map.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.paged.cache_map cimport CacheMap
from flashfs.parts.paged.two_level_cache cimport TwoLevelCache


cdef class TpMap(CacheMap):
    cdef readonly TwoLevelCache cmt
    cdef readonly uint64_t prefetched      # entries cached before they were needed
    cdef bint request_level, selective_level
    cdef uint64_t* marked                  # a bit for each entry of one page: it need not be prefetched
    cdef uint32_t giving                   # the translation page whose entries are evicted for prefetched ones
    cdef bint bring(self, const uint32_t* lpas, uint32_t i, uint32_t n, bint writing,
                    int64_t* ready) except -1 nogil
    cdef int make_room(self, uint32_t page) except -1 nogil
    cdef int make_room_to_read(self, uint32_t page) except -2 nogil
    cdef int prefetch(self, const uint32_t* lpas, uint32_t i, uint32_t n, int64_t* ready) except -1 nogil
    cdef bint prefetch_one(self, uint32_t page, uint32_t offset, bint there) except -1 nogil
    cdef bint room_for_prefetch(self, uint32_t page) except -1 nogil
    cdef int mark_known(self, uint32_t page) noexcept nogil
    cdef bint is_marked(self, uint32_t offset) noexcept nogil
    cdef int take_back(self) except -1
