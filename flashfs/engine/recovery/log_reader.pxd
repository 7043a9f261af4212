# The metadata log as a recovery reads it; see log_reader.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.recovery_base cimport RecoveryBase


cdef class LogReader:
    cdef Ssd ssd
    cdef Found found
    cdef RecoveryBase rebuilder
    cdef list descriptors, trim_pages, meta_blocks
    cdef list gaps                         # (block, page) of the metadata log: whole at a sync, unreadable now
    cdef int take_head(self, uint32_t block) except -1 nogil
    cdef int read_log(self, uint32_t block, uint64_t order) except -1 nogil
    cdef int take_log_page(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef int log_gap(self, uint32_t block, uint32_t page) except -1 nogil
    cdef missing_metadata(self)
