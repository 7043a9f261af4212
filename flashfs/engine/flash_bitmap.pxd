# A page validity bitmap in flash pages; see flash_bitmap.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.parts cimport Engine, Validity
from flashfs.engine.translation cimport Directory, TranslationPages


cdef class FlashBitmap(Validity)


cdef class BitmapDirectory(Directory):
    cdef FlashBitmap bitmap
    cdef uint32_t* page_ppas
    cdef uint8_t* missing                  # of each page, whether it has to be made again
    cdef readonly uint32_t n, missing_n


cdef class BitmapPages(TranslationPages):
    pass


cdef struct Frame:                         # of the cache
    uint32_t id                            # NONE: empty
    bint dirty
    uint64_t used


cdef class FlashBitmap(Validity):
    cdef readonly TranslationPages pages_in_flash
    cdef readonly BitmapDirectory directory
    cdef readonly uint64_t hits, misses, rebuilds
    cdef uint32_t pages_per_block, words_a_block, blocks_a_page, page_bytes
    cdef Frame* frames
    cdef uint8_t* images                   # a page each; behind them one for queries, and one for what is written
    cdef readonly uint32_t frames_n
    cdef uint32_t looked_of, looked_ppa   # what is in the one for queries
    cdef uint64_t clock
    cdef uint64_t* log                     # reports that are in no frame yet: PPA << 1 | lives, by PPA
    cdef readonly uint32_t log_n, log_room, log_spare
    cdef bint recovering                   # between a load and ``opens``
    cdef uint64_t* bits                    # the whole bitmap, in a recovery and until what it found is in flash; NULL
    cdef uint8_t* touched                  # ... of each page, whether flash has to be told
    cdef uint8_t* forgotten                # ... of each block, whether the checkpoint's word counts no more
    cdef bint filled
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil
    cdef uint64_t bit_of(self, uint32_t ppa) noexcept nogil
    cdef bint is_own(self, uint32_t block) noexcept nogil
    cdef uint8_t* image(self, uint32_t frame) noexcept nogil
    cdef uint32_t frame_of(self, uint32_t id) noexcept nogil
    cdef uint32_t log_from(self, uint64_t key) noexcept nogil
    cdef int note(self, uint32_t ppa, bint lives) except -1 nogil
    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil
    cdef bint put_bit(self, uint32_t ppa, bint lives) except -1 nogil
    cdef int bring(self, uint32_t id) except -1 nogil
    cdef int write_back(self, uint32_t frame) except -1 nogil
    cdef int program(self, uint32_t id, const uint8_t* data) except -1 nogil
    cdef int read_page(self, uint32_t id, uint8_t* into) except -1 nogil
    cdef int rebuild(self, uint32_t id, uint8_t* into) except -1 nogil
    cdef uint32_t most_reported(self, uint32_t* n) noexcept nogil
    cdef int apply_log(self, uint32_t id, uint8_t* image) noexcept nogil
    cdef uint8_t* look(self, uint32_t id) except NULL nogil
    cdef int own_bitmap(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef int begin_bits(self) except -1 nogil
    cdef int fill(self) except -1 nogil
    cdef int write_touched(self) except -1
    cdef int end_bits(self) noexcept nogil
