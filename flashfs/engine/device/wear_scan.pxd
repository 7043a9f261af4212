from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.device.wear cimport WearLevel

cdef struct Round:                         # statistics of one scan of all blocks
    uint32_t blocks                        # blocks that had a readable page
    uint32_t erases_least, erases_most
    uint64_t order_least, order_most       # orders of the blocks opened longest ago and last
    double erases_mean, order_mean


cdef class WearScan(WearLevel):
    cdef readonly uint32_t reads           # spare areas read per page programmed
    cdef readonly uint32_t rounds          # complete scans since the mount
    cdef Round now, whole                  # the current round and the last complete one
    cdef uint32_t cursor, left             # the next block, and the number of blocks left in the round
    cdef uint32_t turn                     # the die that is preferred for the next block to empty
    cdef uint64_t pace, due_at             # programs from one block emptied to the next; when one may be
    cdef bint may_empty(self, uint32_t block) noexcept nogil
    cdef uint64_t seen                     # programmed pages whose spare reads are done
    cdef uint8_t* spare                    # of one page
    cdef int begin_round(self) noexcept nogil
    cdef bint look(self, uint32_t block) except -1 nogil
    cdef bint comes_before(self, uint32_t block, uint32_t other) noexcept nogil
    cdef int note(self, uint32_t erases, uint64_t order) noexcept nogil
    cdef bint stands_out(self, uint32_t block, uint32_t erases, uint64_t order) noexcept nogil
