# What a recovery asks that scans nothing; see follow.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found


cdef class Follower:
    cdef Ssd ssd
    cdef Found found
    cdef object slots                      # (LPA, seq, page) of the NVRAM slots, once read
    cdef follow_moves(self, uint64_t order)
    cdef all_die(self, uint32_t block)
    cdef revive(self, uint32_t block)
    cdef follow(self, uint32_t lpa, list copies, set erased)
    cdef bint doubts_slots(self, uint64_t trimmed) except -1
    cdef bint is_from_before(self, uint32_t ppa, uint64_t seq) except -1
