# The page bitmap; see page_bitmap.pyx.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.contract.validity cimport Validity


cdef class PageBitmap(Validity):
    cdef uint64_t* bits
    cdef uint32_t pages_per_block, words_a_block, shift
    cdef uint64_t n_words

    @cython.final
    cdef uint32_t bits_of(self, uint32_t block) noexcept nogil

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil

    @cython.final
    cdef int come(self, uint32_t ppa) noexcept nogil
