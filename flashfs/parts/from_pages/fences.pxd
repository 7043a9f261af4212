# Checkpoints of a mapping that is recovered from its pages; see fences.pyx.
from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.parts.paged.paged_map cimport PagedMapping


cdef class Fences(Checkpointer):
    cdef readonly PagedMapping map
    cdef readonly bint clean               # the newest checkpoint holds everything
    cdef object mark                       # where a scan would begin after the next fence; None: it reads all pages
    cdef object now                        # the same for the checkpoint that is being written
    cdef list log_before                   # blocks of the metadata log whose trims still count after the last fence
