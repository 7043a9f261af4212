# A mount that needs no recovery; see clean_start.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.mend cimport Mender


cdef class CleanStart:
    cdef Ssd ssd
    cdef Found found
    cdef Mender mender
    cdef readonly bint done
    cdef take_clean(self)
    cdef bint untouched_since(self, uint32_t ppa) except -1
    cdef take_pool(self, uint64_t order)
