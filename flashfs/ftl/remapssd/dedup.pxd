# In-line deduplication; see dedup.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.extensions cimport Deduplication
from flashfs.engine.device.ssd cimport Ssd
from flashfs.ftl.remapssd.fingerprints cimport Prints
from flashfs.ftl.remapssd.mapping cimport RemapTable


cdef class TableDeduplication(Deduplication):
    cdef Ssd ssd
    cdef RemapTable map
    cdef readonly Prints prints
    cdef bint verifies                     # a page of the same fingerprint is read and compared
    cdef uint8_t* page                     # the page read for a comparison
    cdef uint8_t* oob
    cdef readonly uint64_t found, reads, differed  # pages not written; reads to compare; pages that differed
    cdef int64_t write_between(self, const uint32_t* lpas, uint32_t first, uint32_t end, const uint8_t* data,
                               int64_t t_ns) except -1 nogil
    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil
    cdef int point_at(self, uint32_t lpa, uint32_t ppa, uint64_t seq, int64_t* t_ns, uint32_t* old) except -1 nogil
    cdef bint has_room(self, uint32_t ppa) except -1 nogil
    cdef bint is_same(self, uint32_t ppa, const uint8_t* page, int64_t* t_ns) except -1 nogil
