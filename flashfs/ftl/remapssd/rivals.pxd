# The rivals of Remap-SSD; see rivals.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.ftl.remapssd.flashlog cimport FlashLog
from flashfs.ftl.remapssd.rmm cimport Claim, Rmm


cdef class IdealRmm(Rmm):
    pass


cdef class GlobalLog(Rmm):
    cdef readonly uint64_t log_entries     # entries that the log has room for
    cdef readonly uint64_t log_n           # entries since the log was last rewritten
    cdef int reclaim(self, bint reads) except -1 nogil
    cdef int write_anew(self) except -1 nogil


cdef class GlobalLogInFlash(GlobalLog):
    cdef readonly FlashLog flog
