# Entries of a mapping that wait for their translation page; see pending_entries.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define FLASHFS_UNSEEN 0xFFFFFFFEu
    """
    const uint32_t UNSEEN "FLASHFS_UNSEEN"  # in place of the PPA that a translation page must have: it may have any


cdef class PendingEntries:
    cdef readonly uint64_t n, room
    cdef readonly uint64_t moved_n         # from cleaning, not yet compared with flash
    cdef uint32_t* lpa                     # ascending
    cdef uint32_t* ppa
    cdef uint32_t* expected                # the PPA that the translation page must have for it to count; UNSEEN: any
    cdef uint32_t* place                   # of each in the battery, NONE if it has none; NULL: there is no battery
    cdef readonly bint placed
    cdef int reserve(self, uint64_t more, bint exactly=*) except -1 nogil
    cdef int shrink(self, uint64_t room) except -1
    cdef int64_t find(self, uint32_t lpa) noexcept nogil
    cdef uint64_t first_from(self, uint32_t lpa) noexcept nogil
    cdef int merge(self, const uint32_t* lpas, const uint32_t* ppas, const uint32_t* expected,
                   uint32_t n) except -1 nogil
    cdef int move_up(self, uint64_t first, uint64_t end, uint64_t to) noexcept nogil
    cdef int settle(self, uint64_t at) noexcept nogil
    cdef int erase(self, uint64_t first, uint64_t end) noexcept nogil
    cdef int clear(self) noexcept nogil


cdef class Found:
    cdef uint32_t* lpa
    cdef uint32_t* ppa
    cdef uint64_t n, room
    cdef int add(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int release(self) noexcept nogil
