# The flash log of a rival of Remap-SSD; see flashlog.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages

cdef struct Logged:          # an entry as it is in a page
    uint32_t lpa, ppa
    uint64_t word            # 48 bits of the sequence number; bit 48: the source was unmapped


cdef class LogDirectory(DramDirectory):
    cdef readonly uint32_t most
    cdef bint broken                       # a page of the log is lost


cdef class LogPages(TranslationPages):
    pass


cdef class FlashLog:
    cdef Engine ssd
    cdef readonly LogPages pages
    cdef readonly LogDirectory directory
    cdef readonly uint32_t per_page        # entries
    cdef Logged* waiting                   # entries not in a page yet, a ring
    cdef uint64_t room, first
    cdef readonly uint64_t waiting_n
    cdef uint8_t* page
    cdef uint8_t* oob
    cdef bint again                        # the log is not whole: it must be rewritten
    cdef int add(self, uint32_t lpa, uint32_t ppa, uint64_t seq, bint move) noexcept nogil
    cdef int64_t read_all(self, int cause, int64_t t_ns) except -1 nogil
    cdef int drop_all(self) except -1 nogil
    cdef int write_next(self) except -1 nogil
    cdef bint is_whole(self) noexcept nogil
