from libc.stdint cimport uint8_t, uint32_t, uint64_t

from nandimg._nand cimport Nand


cdef class DataCache:
    cdef readonly Nand nand
    cdef readonly uint32_t room, slots, held      # ever; at present; in use
    cdef readonly uint64_t hits, misses
    cdef uint32_t page_bytes, mask, newest, oldest, spare
    cdef readonly uint32_t warm            # spare slots that have memory: the first ones
    cdef uint32_t* lpa_of
    cdef uint32_t* older                   # next older slot in use; of a spare slot, the next spare one
    cdef uint32_t* newer
    cdef uint32_t* chain                   # the next slot of the same bucket
    cdef uint32_t* bucket
    cdef uint8_t* data
    cdef uint64_t data_bytes
    cdef int release(self) noexcept
    cdef int reserve(self, uint32_t room) except -1
    cdef uint8_t* page(self, uint32_t slot) noexcept nogil
    cdef uint32_t find(self, uint32_t lpa) noexcept nogil
    cdef uint32_t use(self, uint32_t lpa) noexcept nogil
    cdef uint32_t put(self, uint32_t lpa) noexcept nogil
    cdef int put_run(self, const uint32_t* lpas, uint32_t n, const uint8_t* data) noexcept nogil
    cdef bint drop(self, uint32_t lpa) noexcept nogil
    cdef int limit(self, uint32_t slots) noexcept nogil
    cdef int to_front(self, uint32_t slot) noexcept nogil
    cdef int unlink(self, uint32_t slot) noexcept nogil
    cdef int unchain(self, uint32_t slot) noexcept nogil
