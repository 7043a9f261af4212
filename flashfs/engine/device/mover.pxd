cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.contract.extent cimport Extent


cdef enum:
    GROUPS = 255             # moves of groups that a recovery can tell apart: then a checkpoint is due
    KINDS = 8                # of pages


@cython.final
cdef class Mover:
    cdef readonly Engine ssd
    cdef readonly uint64_t lost_pages      # live pages that could not be read when they were to move
    cdef uint64_t[KINDS] moved_reads       # pages that moves read and programmed, by what they hold
    cdef uint64_t[KINDS] moved_programs
    cdef uint32_t oob_bytes, page_bytes, pages_per_block
    cdef uint8_t* read_oobs                # the victim's, in page order
    cdef uint8_t* oobs                     # those of the run being programmed
    cdef uint8_t* status
    cdef uint8_t* confirmed
    cdef int kind                          # of the pages being moved
    cdef uint8_t* kinds                    # from here on in LPA order
    cdef uint32_t* pages
    cdef uint32_t* lpas
    cdef uint32_t* olds
    cdef uint32_t* news
    cdef uint32_t* gone                    # PPAs of pages of other kinds that cannot be read
    cdef uint32_t gone_n
    cdef uint32_t* left                    # PPAs of live pages that need no move: superseded, or nobody's
    cdef uint32_t left_n
    cdef uint64_t* keys                    # LPA << 32 | index in page order; of a group LPA << 32 | PPA
    cdef uint64_t* sorted
    cdef int64_t* ready                    # when each page was read, in page order
    cdef uint32_t room                     # pages that one move may carry
    cdef uint32_t* victims                 # the blocks of the group that is being moved
    cdef uint32_t groups                   # moves of groups since the last checkpoint
    cdef int group                         # the number of the move under way; 0: of one block, or of single pages
    cdef bint one_by_one                   # ... and its pages are read when their turn comes
    cdef int64_t names_ns                  # ... and when all of them have said whose they are
    cdef uint32_t total                    # ... and how many they are
    cdef readonly uint64_t moves           # that came to their end
    cdef readonly int64_t sort_ns          # of wall time that sorting took: no figure, for it is never the same twice
    cdef bint moved_metadata               # since the last sync of which the marks are durable too
    cdef bint with_data                    # of the move under way: the chip keeps what these pages hold
    cdef uint8_t* data
    cdef uint8_t* gather
    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil
    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil
    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
    cdef int move_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
    cdef int begin_group(self, uint32_t group) noexcept nogil
    cdef uint32_t pick_group(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except? 0xFFFFFFFE nogil
    cdef bint fits_group(self, uint32_t block) noexcept nogil
    cdef uint32_t gather_names(self, uint32_t block, uint32_t live, uint32_t n, bint whole,
                               int cause) except? 0xFFFFFFFE nogil
    cdef uint32_t sort_group(self, uint32_t n) except? 0xFFFFFFFE nogil
    cdef int read_again(self, uint32_t first, uint32_t n, int cause) except -1 nogil
    cdef int confirm(self, uint32_t block, uint32_t first, uint32_t n) except -1 nogil
    cdef int hold_data(self) except -1 nogil
    cdef uint32_t collect(self, uint32_t block, int cause) except? 0xFFFFFFFE nogil
    cdef bint is_late(self, uint32_t block, uint32_t i, int cause) except -1 nogil
    cdef bint is_readable(self, uint32_t block, uint32_t i, uint64_t order) except -1 nogil
    cdef bint is_named(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef bint poison(self, uint32_t ppa, uint8_t* at, int cause) except -1 nogil
    cdef int sort_keys(self, uint32_t n) noexcept nogil
    cdef int copy_out(self, uint32_t n, int stream, int cause, int64_t* end) except -1 nogil
    cdef uint32_t copy_run(self, uint32_t first, Extent* ext, uint32_t before, uint32_t behind, int stream, int cause,
                           int64_t* end) except? 0xFFFFFFFE nogil
    cdef int commit_move(self, uint32_t n) except -1 nogil
    cdef int let_left_die(self) except -1 nogil
    cdef bint has_left(self, uint32_t block, uint64_t order) noexcept nogil
    cdef int end_move(self) except -1 nogil
