# A validity store in flash pages; see flash_validity.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.validity cimport Validity
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages


cdef class FlashValidity(Validity)


cdef class ValidityDirectory(DramDirectory):
    cdef FlashValidity store
    cdef uint8_t* missing                  # of each page, whether it must be rebuilt
    cdef readonly uint32_t missing_n


cdef class ValidityPages(TranslationPages):
    pass


cdef class FlashValidity(Validity):
    cdef readonly TranslationPages pages_in_flash
    cdef readonly ValidityDirectory directory
    cdef uint32_t pages_per_block, words_a_block, page_bytes
    cdef uint32_t looked_of, looked_ppa   # the page that was read for a query last; NONE: none
    cdef uint64_t* log                     # reports that wait: PPA << 1 | lives, by PPA
    cdef readonly uint32_t log_n, log_room, log_spare
    cdef bint recovering                   # between a load and ``device_ready``
    cdef uint64_t* bits                    # the whole bitmap, from a recovery until its changes are in flash; or NULL
    cdef uint8_t* touched                  # ... of each part, whether it changed, and must be written to flash
    cdef uint32_t touched_n
    cdef uint8_t* forgotten                # ... of each block, whether the checkpoint's state of it is void
    cdef bint filled
    cdef int set_up(self, uint32_t ids, uint32_t log_room, uint32_t touched_n) except -1
    # implemented by a store
    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil
    cdef int touch(self, uint32_t block) noexcept nogil
    cdef int fill(self) except -1 nogil
    # called by a store
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil
    cdef uint64_t bit_of(self, uint32_t ppa) noexcept nogil
    cdef bint is_own(self, uint32_t block) noexcept nogil
    cdef uint32_t log_from(self, uint64_t key) noexcept nogil
    cdef int note(self, uint32_t ppa, bint lives) except -1 nogil
    cdef int noted(self, uint32_t at, bint fresh) except -1 nogil
    cdef int replaced(self, uint32_t id, uint32_t old, uint32_t ppa) except -1 nogil
    cdef int page_moves(self) except -1 nogil
    cdef int page_moved(self, uint32_t id, uint32_t ppa) except -1 nogil
    cdef bint put_bit(self, uint32_t ppa, bint lives) except -1 nogil
    cdef int program(self, uint32_t id, const uint8_t* data) except -1 nogil
    cdef int own_bitmap(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef int begin_bits(self) except -1 nogil
    cdef int end_bits(self) noexcept nogil
