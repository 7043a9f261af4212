# What a recovery asks and tells a map, and what checkpoints take of it.
from flashfs.engine.contract.owner cimport Owner


cdef class RecoveryWishes(Owner):
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
