# Which pages of block b are live?
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.victims cimport VictimIndex
from flashfs.engine.contract.engine cimport Engine


cdef uint32_t list_bits(const uint64_t* words, uint32_t n, uint32_t* out) noexcept nogil


cdef class Validity:
    cdef readonly Engine ssd
    cdef readonly VictimIndex victims      # the engine's
    cdef readonly bint late                # a page that it calls live may be superseded
    cdef readonly bint in_flash            # its queries read flash; its reports need room
    cdef readonly bint by_map              # after a recovery from pages, live pages are those the mapping names
    cdef uint64_t* words                   # a block's bitmap
    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil
    cdef uint32_t room(self) noexcept nogil
    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil
    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int opened(self, uint32_t block) except -1 nogil
    cdef int released(self, uint32_t block) except -1 nogil
    cdef bint is_live(self, uint32_t ppa) except -1 nogil
    cdef uint32_t count(self, uint32_t block) noexcept nogil
    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil
    cdef uint64_t pages_named(self) noexcept nogil
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
    cdef int forget(self, uint32_t block) except -1 nogil
    cdef int pages_known(self) except -1 nogil
