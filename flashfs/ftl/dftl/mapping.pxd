# DFTL's mapping; see mapping.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.demand cimport DemandMapping
from flashfs.ftl.dftl.cmt cimport Cmt


cdef class CachedMap(DemandMapping):
    cdef readonly Cmt cmt
    cdef readonly uint32_t batch           # LPAs that are prepared at a time: none of them pushes another out
    cdef readonly uint64_t lookups, hits, loads, evictions, dirty_evictions, evicted_entries
    cdef readonly uint32_t protected_share
    cdef readonly bint fixed               # the CMT's size was given
    cdef int make_slot(self) except -1 nogil
    cdef bint could_make_slot(self) except -1 nogil
    cdef int save_bound(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, const uint32_t* olds) except -1 nogil
    cdef int put(self, uint32_t slot, uint32_t ppa) except -1 nogil
    cdef int clear_slots(self, uint32_t page) except -1 nogil
