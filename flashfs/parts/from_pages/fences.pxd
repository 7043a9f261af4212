# Checkpoints of a mapping that is recovered from its pages; see fences.pyx.
from libc.stdint cimport uint32_t

from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.parts.paged.paged_map cimport PagedMapping


cdef class Fences(Checkpointer):
    cdef readonly PagedMapping map
    cdef readonly bint clean               # the newest checkpoint holds everything
    cdef readonly bint reaches             # validity may keep its reports at a fence
    cdef uint32_t aside                    # blocks that are kept free for the log that then stays
    cdef readonly bint far                 # the scan begins two fences before the newest one: reports were kept in DRAM
    cdef object found                      # where a scan would begin after this mount's first fence; None: all pages
    cdef list marks                        # ... after the last two fences of this mount at most, the newest last
    cdef object now                        # the mark of the checkpoint that is being written
    cdef list logs                         # blocks of the metadata log whose trims still count, a list for each fence
