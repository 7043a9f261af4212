# Recovery as a table of named steps; see recovery.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.recovery.follow cimport Follower


cdef class Worker(Follower):
    cdef readonly bint clean
    cdef object fence                      # where the scan begins, from the checkpoint, if it is from_pages
    cdef object doubted                    # the first error of a part's step
    cdef list back                         # (seq, LPA, page) that the NVRAM saved
    cdef bint is_collected(self, uint32_t block) noexcept nogil
    cdef take_clean(self)
    cdef misfit(self, bint whole)
    cdef bint untouched_since(self, uint32_t ppa) except -1
    cdef take_pool(self, uint64_t order)
    cdef int free_more(self, uint32_t enough) except -1
    cdef int reopen_one(self) except -1
    cdef bint takes_more(self, uint32_t block) except -1 nogil
    cdef mark_in_log(self, uint32_t block)
    cdef int tell_blocks(self, bint reopens) except -1 nogil
    cdef int mark_unread(self, uint32_t block) except -1 nogil
    cdef bint hint_late(self) except -1
    cdef clean_if_full(self)
