# What a checkpoint holds, and when older log blocks may be released.
from libc.stdint cimport uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef class Checkpointer:
    cdef readonly Engine ssd
    cdef readonly uint64_t every           # the most pages programmed between two checkpoints
    cdef readonly bint needs_room          # each checkpoint programs pages of its own: cleaning makes room before
    cdef readonly bint trusts_notes        # a metadata page counts only if the chip noted its sync: see sync_moves
    cdef int begins(self, bint clean) except -1
    cdef int reports_kept(self) except -1 nogil
    cdef bint finds_reports(self) except -1
