# Recovery as a table of named steps; see recovery.pyx.
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.block_states cimport BlockStates
from flashfs.engine.recovery.clean_start cimport CleanStart
from flashfs.engine.recovery.follow cimport Follower
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.log_reader cimport LogReader
from flashfs.engine.recovery.mend cimport Mender
from flashfs.engine.recovery.records cimport RecordTaker
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from flashfs.engine.recovery.resolve cimport Resolver
from flashfs.engine.recovery.scan cimport Scanner


cdef class Steps:
    cdef Ssd ssd
    cdef readonly Found found
    cdef RecoveryBase rebuilder              # of a whole checkpoint, where the mapping has none
    cdef LogReader log
    cdef Scanner scanner
    cdef RecordTaker records
    cdef Resolver resolver
    cdef Mender mender
    cdef Follower follower
    cdef CleanStart start
    cdef BlockStates states
    cdef list back                         # (seq, LPA, page) that the NVRAM saved
    cdef bint hint_late(self) except -1
    cdef clean_if_full(self)
