# Calls of tools and reports to a mapping.
from flashfs.engine.contract.recovery_wishes cimport RecoveryWishes


cdef class Shown(RecoveryWishes):
    pass
