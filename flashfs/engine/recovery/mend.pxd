# Repair of a mapping after damage; see mend.pyx.
from libc.stdint cimport uint8_t, uint32_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found


cdef class Mender:
    cdef Ssd ssd
    cdef Found found
    cdef misfit(self, bint whole)
    cdef bint forget_homeless(self) except -1
    cdef mend(self, why)
    cdef doubt_of_all(self)
    cdef displaced(self)
    cdef bint is_of_another_kind(self, uint32_t ppa, int kind) except -1
    cdef int keep_owned(self) except -1
    cdef bint is_rotten(self, uint32_t ppa) except -1
    cdef resolve_disputes(self, set ppas)
    cdef int bury(self, const uint8_t* owned) except -1
    cdef ask_pages(self)
