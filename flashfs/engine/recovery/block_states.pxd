# The states of the blocks after a recovery; see block_states.pyx.
from libc.stdint cimport uint32_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.log_reader cimport LogReader
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from flashfs.engine.recovery.resolve cimport Resolver


cdef class BlockStates:
    cdef Ssd ssd
    cdef Found found
    cdef LogReader log
    cdef Resolver resolver
    cdef RecoveryBase rebuilder
    cdef int reopen_one(self) except -1
    cdef bint takes_more(self, uint32_t block) except -1 nogil
    cdef int free_more(self, uint32_t enough) except -1
    cdef mark_log(self)
    cdef mark_in_log(self, uint32_t block)
    cdef int tell_blocks(self, bint reopens) except -1 nogil
    cdef int mark_unread(self, uint32_t block) except -1 nogil
