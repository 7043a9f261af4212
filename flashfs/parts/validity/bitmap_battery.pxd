# Battery-backed state of a validity bitmap in flash; see bitmap_battery.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.battery.map_battery cimport KeptValidity, Places


cdef class BitmapBattery(KeptValidity):
    cdef EntryPages mapping
    cdef object store                      # the bitmap
    cdef uint32_t pages, frames, frame_words
    cdef uint64_t heads_at, deltas_at
    cdef Places reports
    cdef bint keeps(self) noexcept nogil
    cdef int changes(self) except -1 nogil
    cdef int doubts(self) except -1 nogil
    cdef int put(self, uint64_t word, uint64_t value) except -1 nogil
    cdef int opened(self, uint32_t block) except -1 nogil
    cdef int put_page(self, uint32_t id, uint32_t ppa, uint32_t kept) except -1 nogil
    cdef uint32_t kept_of(self, uint32_t id) noexcept nogil
    cdef int put_head(self, uint32_t frame, uint32_t id, uint32_t ppa) except -1 nogil
    cdef int flip(self, uint32_t frame, uint64_t bit) except -1 nogil
    cdef int clean(self, uint32_t frame, uint32_t id, uint32_t ppa) except -1 nogil
    cdef uint32_t put_report(self, uint32_t place, uint64_t report) except? 0xFFFFFFFE nogil
    cdef int clear_report(self, uint32_t place) except -1 nogil
