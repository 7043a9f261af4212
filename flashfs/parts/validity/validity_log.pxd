# A page validity log; see validity_log.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from flashfs.parts.validity.flash_validity cimport FlashValidity


cdef enum:
    ENTRY = 12               # bytes of an entry in its page
    FREE_SLOTS = 4           # numbers that are kept free
    FAR = 1 << 30            # of clocks: more blocks than are opened while an entry is in the log


cdef struct Logged:                        # an entry of the log, as it lies in its page
    uint32_t ppa                           # of the page that died; NONE: no entry
    uint32_t time                          # the erase clock when that was logged
    uint32_t before                        # position of the block's previous entry; NONE: there is none


cdef class ValidityLog(FlashValidity):
    cdef readonly uint32_t per_page        # entries of a page
    cdef readonly uint32_t slots           # numbers for pages: page ``n`` has number ``n % slots``
    cdef readonly uint64_t entries_most    # X: beyond that the oldest page is reclaimed
    cdef readonly uint64_t pages_most      # ... in pages
    cdef readonly uint64_t first_n, next_n  # the pages of the log: the oldest, and the one after the newest
    cdef uint32_t* heads                   # of each block: position of its newest entry
    cdef uint32_t* stamps                  # ... the least erase clock of entries that count
    cdef uint16_t* tops                    # ... one after the last page that lived since the block was opened
    cdef uint32_t time                     # the erase clock
    cdef uint8_t* read_image               # the page that was read last, if the chip does not have it in memory
    cdef const Logged* looked              # where that is
    cdef uint8_t* write_image
    cdef uint32_t announced_most           # reports that ``prepare`` makes room for
    cdef bint spoilt                       # a page of the log is lost: all of it must be rewritten
    cdef readonly uint64_t flushes, logged, reinserted, discarded, rebuilds, chain_reads, queries
    cdef uint64_t number_of(self, uint32_t slot) noexcept nogil
    cdef const Logged* look(self, uint32_t slot) except? NULL nogil
    cdef bint counts(self, const Logged* entry) noexcept nogil
    cdef bint is_below(self, uint32_t clock, uint32_t other) noexcept nogil
    cdef int raise_stamps(self) noexcept nogil
    cdef int forget_block(self, uint32_t block, uint32_t stamp) noexcept nogil
    cdef uint32_t tick(self, uint32_t least) noexcept nogil
    cdef int log_again(self, uint32_t block, const uint64_t* words, uint32_t stamp) except -1 nogil
    cdef int revive(self) except -1 nogil
    cdef int flush(self, uint32_t most) except -1 nogil
    cdef int take_out(self, const Logged* entries, uint32_t n) noexcept nogil
    cdef int drop(self, uint32_t slot) except -1 nogil
    cdef int reclaim(self) except -1 nogil
    cdef int walk(self, uint32_t block, uint64_t* words, uint32_t dead) except -1 nogil
    cdef int take_entries(self, uint32_t slot) except -1 nogil
    cdef int rebuild(self) except -1 nogil
    cdef int write_touched(self) except -1
    cdef bint has_numbers(self) noexcept nogil
