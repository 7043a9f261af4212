# What tools and reports ask of a map.
from flashfs.engine.contract.recovery_wishes cimport RecoveryWishes


cdef class Shown(RecoveryWishes):
    pass
