# Calls of recovery and checkpoints to a mapping.
from flashfs.engine.contract.owner cimport Owner


cdef class RecoveryWishes(Owner):
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
