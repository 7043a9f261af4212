# What checkpoints hold, and when what is older may go.
from libc.stdint cimport uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef class Checkpointer:
    cdef readonly Engine ssd
    cdef readonly uint64_t every           # pages programmed between two checkpoints, at most
    cdef readonly bint needs_room          # something is programmed for each of them: cleaning makes room before
    cdef readonly bint trusts_notes        # a page of metadata counts only by the chip's note of a sync: see sync_moves
    cdef int begins(self) except -1
    cdef int reports_kept(self) except -1 nogil
