# Recovery of NVRAM records of LPAs that share pages; see records.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport FLAG_CLEAN
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found

cdef enum:
    CLAIMED = FLAG_CLEAN     # of an entry that comes from a record, not from a page: no user page has this flag


@cython.final
cdef class RecordTaker:
    cdef Ssd ssd
    cdef Found found
    cdef uint64_t take_claims(self, const uint8_t* at, uint64_t n) except? 0xFFFFFFFFFFFFFFFF nogil
    cdef bint belongs(self, uint32_t block, uint32_t page, uint64_t order) except -1 nogil
    cdef bint is_since(self, uint32_t ppa) noexcept nogil
    cdef int tell_foreign(self, uint32_t block) except -1 nogil
