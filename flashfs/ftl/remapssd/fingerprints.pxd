# The fingerprints of pages of flash; see fingerprints.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PENDING_MOST = 256       # pages of a request


cdef class Prints:
    cdef uint64_t* prints                  # two words for each page of flash
    cdef uint32_t* next_of                 # ... the next page of its chain; NONE at its end, ABSENT in no chain
    cdef uint32_t* heads
    cdef uint64_t pages_n, mask
    cdef readonly uint64_t held
    cdef uint64_t[2 * PENDING_MOST] pending  # fingerprints of a request's pages that are not in flash yet
    cdef uint32_t[PENDING_MOST] pending_lpas
    cdef uint32_t pending_n, bound_n       # ... their number; how many of them are in flash by now
    cdef int64_t free_ns                   # when the hash unit is idle
    cdef int64_t hash_ns
    cdef bint add(self, uint32_t lpa, const uint8_t* page, uint32_t page_bytes, uint64_t word,
                  int64_t* t_ns) noexcept nogil
    cdef uint32_t find(self, const uint64_t* prints) noexcept nogil
    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa) noexcept nogil
    cdef int insert(self, uint32_t ppa, const uint64_t* prints) noexcept nogil
    cdef int drop(self, uint32_t ppa) noexcept nogil
    cdef int move(self, uint32_t old, uint32_t new) noexcept nogil
    cdef int begin(self) noexcept nogil
