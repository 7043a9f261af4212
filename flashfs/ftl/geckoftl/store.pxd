# Logarithmic Gecko as a validity store; see store.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libcpp.unordered_map cimport unordered_map

from flashfs.engine.contract.validity cimport Validity
from flashfs.ftl.geckoftl.gecko cimport Gecko


cdef class GeckoStore(Validity):
    cdef readonly Gecko gecko
    cdef uint32_t pages_per_block, words_a_block
    cdef unordered_map[uint32_t, uint64_t*] aside    # bitmap of live pages of each block of metadata that has any
    cdef unordered_map[uint32_t, uint32_t] partial   # of each block that is not full, its programmed pages
    cdef unordered_map[uint32_t, uint64_t*] touched  # of blocks that a recovery changes: bitmap now, and in the runs
    cdef uint8_t* forgotten                # of each block, in a recovery: what Gecko has is void
    cdef uint8_t* told                     # of each block: UNTOLD, OF_USER or OF_METADATA; overrides its stream
    cdef bint recovering                   # reports go to ``touched``
    cdef bint outdo                        # ... that ignored some runs: a newer run must be written
    cdef bint rebuilt                      # ... whose runs may be newer than its entries
    cdef bint settled                      # ... the mapping is final: Gecko may be rebuilt from it
    cdef bint waited                       # some reports were kept in the buffer at the last fence
    cdef bint lost                         # a page of a run cannot be read: all runs must be rewritten
    cdef readonly uint64_t rebuilds
    cdef readonly uint64_t waits           # checkpoints at which reports were kept in the buffer
    cdef uint32_t asked                    # the block whose bitmap is in ``answer``, or NONE
    cdef uint64_t* answer
    cdef bint is_aside(self, uint32_t block) noexcept nogil
    cdef int put_aside(self, uint32_t block, uint32_t page, bint lives) except -1 nogil
    cdef int drop_aside(self, uint32_t block) noexcept nogil
    cdef int invalid(self, uint32_t block, uint32_t page) except -1 nogil
    cdef uint64_t* touch(self, uint32_t block) except NULL nogil
    cdef int in_gecko(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef int write_buffer(self) except -1 nogil
    cdef int make_space(self, uint32_t n, bint may_clean) except -1 nogil
    cdef int write_anew(self, bint may_clean) except -1 nogil
    cdef int reports_kept(self) except -1 nogil
    cdef bint may_wait(self) except -1
    cdef int settle_partial(self) except -1
    cdef int commit_touched(self) except -1
    cdef int say_something(self) except -1
    cdef int commit_block(self, uint32_t block, uint64_t* words) except -1
    cdef bint has_pages(self, uint32_t block) noexcept nogil
    cdef int rebuild(self) except -1

    @cython.final
    cdef int clear_touched(self) noexcept nogil
