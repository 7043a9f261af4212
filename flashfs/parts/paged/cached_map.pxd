# A cache of entries over translation pages; see cached_map.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.paged.cmt cimport Cmt
from flashfs.parts.paged.cache_map cimport CacheMap


cdef class CachedMap(CacheMap):
    cdef readonly Cmt cmt
    cdef readonly uint32_t batch           # LPAs that are prepared at a time: none of them evicts another
    cdef readonly uint32_t protected_share
    cdef readonly uint32_t dirty_share     # of the slots that may be dirty, per cent
    cdef readonly bint bounded             # whether that is less than all
    cdef readonly uint32_t dirty_most      # in slots
    cdef readonly uint32_t dirty_batch     # LPAs that are prepared to be written at a time
    cdef readonly uint64_t bound_writes    # translation pages written for the bound
    cdef int make_slot(self) except -1 nogil
    cdef bint could_make_slot(self) except -1 nogil
    cdef int make_clean(self, const uint32_t* lpas, uint32_t n) except -1 nogil
    cdef int save_bound(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, const uint32_t* olds) except -1 nogil
    cdef int put(self, uint32_t slot, uint32_t ppa) except -1 nogil
    cdef int take_back(self) except -1
    cdef int taken_back(self, uint32_t slot) except -1 nogil
    cdef int clear_slots(self, uint32_t page) except -1 nogil
