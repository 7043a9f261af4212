# Logarithmic Gecko as a validity store; see store.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libcpp.unordered_map cimport unordered_map

from flashfs.engine.contract.validity cimport Validity
from flashfs.ftl.geckoftl.gecko cimport Gecko


cdef class GeckoStore(Validity):
    cdef readonly Gecko gecko
    cdef uint32_t pages_per_block, words_a_block
    cdef unordered_map[uint32_t, uint64_t*] aside    # of each block of metadata with live pages, those
    cdef unordered_map[uint32_t, uint32_t] partial   # of each block that is not full, pages it has so far
    cdef unordered_map[uint32_t, uint64_t*] touched  # of blocks that a recovery changes: as they are, and as they were
    cdef uint8_t* forgotten                # of each block, in a recovery: nothing that is in Gecko holds
    cdef uint8_t* told                     # ... what its pages are, if that is known, whatever its first page says
    cdef bint recovering                   # what is reported goes to ``touched``
    cdef bint outdo                        # ... that passed over runs: a newer one is to be written
    cdef bint rebuilt                      # ... that began with runs newer than its entries
    cdef bint settled                      # ... and is sure of the mapping: what is lost may be made again from it
    cdef bint lost                         # a page of a run cannot be read: all runs are to be written anew
    cdef readonly uint64_t rebuilds
    cdef uint32_t asked                    # the block whose bitmap is in ``answer``, or NONE
    cdef uint64_t* answer
    cdef bint is_aside(self, uint32_t block) noexcept nogil
    cdef int put_aside(self, uint32_t block, uint32_t page, bint lives) except -1 nogil
    cdef int drop_aside(self, uint32_t block) noexcept nogil
    cdef int invalid(self, uint32_t block, uint32_t page) except -1 nogil
    cdef uint64_t* touch(self, uint32_t block) except NULL nogil
    cdef int in_gecko(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef int make_space(self, uint32_t n, bint may_clean) except -1 nogil
    cdef int write_anew(self, bint may_clean) except -1 nogil
    cdef int reports_kept(self) except -1 nogil
    cdef int settle_partial(self) except -1
    cdef int commit_touched(self) except -1
    cdef int say_something(self) except -1
    cdef int commit_block(self, uint32_t block, uint64_t* words) except -1
    cdef int rebuild(self) except -1

    @cython.final
    cdef int clear_touched(self) noexcept nogil
