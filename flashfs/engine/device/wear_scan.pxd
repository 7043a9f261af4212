from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.device.wear cimport WearLevel

cdef struct Round:                         # of the scan through all blocks: what it found
    uint32_t blocks                        # that said anything
    uint32_t erases_least, erases_most
    uint64_t order_least, order_most       # when the block that was erased longest ago, and last, was opened
    double erases_mean, order_mean


cdef class WearScan(WearLevel):
    cdef readonly uint32_t reads           # spare areas read for each page programmed
    cdef readonly uint32_t rounds          # through all blocks, since the mount
    cdef Round now, whole                  # the one under way, and the one before it
    cdef uint32_t cursor, left             # the next block, and how many are left of the round
    cdef uint32_t turn                     # the die of which a block is emptied next, if one stands out there
    cdef uint64_t seen                     # pages programmed for which spare areas were read
    cdef uint8_t* spare                    # one page's
    cdef int begin_round(self) noexcept nogil
    cdef bint look(self, uint32_t block) except -1 nogil
    cdef bint comes_before(self, uint32_t block, uint32_t other) noexcept nogil
    cdef int note(self, uint32_t erases, uint64_t order) noexcept nogil
    cdef bint stands_out(self, uint32_t block, uint32_t erases, uint64_t order) noexcept nogil
