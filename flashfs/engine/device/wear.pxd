from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef enum:
    PATIENCE = 4             # erases beyond the spread that a block in use may lag before it is emptied anyway


cdef class WearLevel:
    cdef readonly Engine ssd
    cdef readonly uint32_t spread
    cdef uint64_t levelled_at              # erases of the whole chip at the last levelling
    cdef uint64_t scan_at                  # erases of the whole chip after which the next scan may find something
    cdef uint32_t[64] queue
    cdef uint32_t queued
    cdef int level(self) except -1 nogil
    cdef bint level_one(self) except -1 nogil
    cdef int scan(self) noexcept nogil
    cdef bint lags(self, uint32_t block) noexcept nogil
    cdef bint may_rest(self, uint32_t block) noexcept nogil
    cdef bint has_room(self) noexcept nogil
