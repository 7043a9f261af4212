# What a recovery is based on instead of a whole checkpoint; see recovery_base.pyx.
from libc.stdint cimport uint32_t

from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.resolve cimport Resolver
from flashfs.engine.recovery.scan cimport Scanner


cdef class RecoveryBase:
    cdef Found found
    cdef Scanner scanner
    cdef Resolver resolver
    cdef int take(self, checkpoint) except -1
    cdef bint is_collected(self, uint32_t block) noexcept nogil
