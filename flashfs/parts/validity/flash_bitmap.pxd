# A page validity bitmap in flash pages; see flash_bitmap.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.validity.flash_validity cimport FlashValidity
from flashfs.parts.validity.bitmap_battery cimport BitmapBattery


cdef struct Frame:                         # of the cache
    uint32_t id                            # NONE: empty
    bint dirty
    uint64_t used


cdef class FlashBitmap(FlashValidity):
    cdef readonly uint64_t hits, misses, rebuilds
    cdef uint32_t blocks_a_page
    cdef Frame* frames
    cdef uint8_t* images                   # a page each; after them one for queries, and one for writing
    cdef readonly uint32_t frames_n
    cdef readonly uint32_t waiting         # reports that may wait between requests
    cdef uint64_t clock
    cdef dict making                       # page that is being rebuilt -> PPAs known to count
    cdef BitmapBattery kept                   # keeps the state in DRAM in a battery; None: there is none
    cdef uint32_t* log_place               # ... the place of each report there
    cdef uint8_t* image(self, uint32_t frame) noexcept nogil
    cdef uint32_t frame_of(self, uint32_t id) noexcept nogil
    cdef int forget_frame(self, uint32_t frame) noexcept nogil
    cdef bint waits_too_much(self) noexcept nogil
    cdef int bring(self, uint32_t id) except -1 nogil
    cdef int drop_reports(self, uint32_t first, uint32_t end) except -1 nogil
    cdef int write_back(self, uint32_t frame) except -1 nogil
    cdef int mask(self, uint32_t id, uint64_t* words) noexcept nogil
    cdef int read_page(self, uint32_t id, uint8_t* into) except -1 nogil
    cdef int set_bit(self, uint8_t* image, uint32_t ppa, uint32_t first) noexcept nogil
    cdef int recount(self, uint32_t id, uint8_t* image) noexcept nogil
    cdef int take_named(self, uint32_t first, uint8_t* image) except -1 nogil
    cdef int rebuild(self, uint32_t id, uint8_t* into) except -1 nogil
    cdef uint32_t most_reported(self, uint32_t* n) noexcept nogil
    cdef int apply_log(self, uint32_t id, uint8_t* image) noexcept nogil
    cdef uint8_t* look(self, uint32_t id) except NULL nogil
    cdef int write_touched(self) except -1
