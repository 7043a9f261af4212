# The scan of a recovery; see scan.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found


cdef class Scanner:
    cdef Ssd ssd
    cdef Found found
    cdef int scan_all(self) except -1 nogil
    cdef int scan_block(self, uint32_t block, uint32_t page) except -1 nogil
    cdef bint is_headed(self, uint64_t order) noexcept nogil
    cdef bint is_displaced(self, uint32_t block, uint32_t page, const Oob* says, uint32_t durable) except -1 nogil
    cdef int disown_first(self, uint32_t block, const Oob* says) except -1 nogil
    cdef int as_before(self, uint32_t block) except -1 nogil
    cdef bint take(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef int untake(self, const Oob* oob) except -1 nogil
    cdef int spoilt(self, const Oob* oob, uint32_t block, uint32_t page) except -1 nogil
    cdef int miss(self, uint32_t block, uint32_t page, uint32_t durable) except -1 nogil
