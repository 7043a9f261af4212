cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.device.move cimport Move, MoveLists


cdef enum:
    GROUPS = 255             # moves of groups that a recovery can distinguish: after so many, a checkpoint is due
    KINDS = 8                # of pages


@cython.final
cdef class Mover(MoveLists):
    cdef readonly uint64_t lost_pages      # live pages that could not be read when they were moved
    cdef uint64_t[KINDS] moved_reads       # pages that moves read and programmed, by kind
    cdef uint64_t[KINDS] moved_programs
    cdef uint32_t groups                   # moves of groups since the last checkpoint
    cdef readonly uint64_t moves           # completed moves
    cdef readonly int64_t sort_ns          # wall time of sorting; not among the figures, because it varies between runs
    cdef bint moved_metadata               # metadata pages were moved since the last sync whose notes are durable
    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil
    cdef int begin(self, Move* move, int stream, int cause) noexcept nogil
    cdef bint has_left(self, uint32_t block, uint64_t order) noexcept nogil
    cdef int end_move(self, const Move* move) except -1 nogil
    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil
    cdef uint32_t pick_group(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except? 0xFFFFFFFE nogil
    cdef bint fits_group(self, uint32_t block) noexcept nogil
    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
    cdef int move_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
    cdef uint32_t gather_names(self, Move* move, uint32_t block, uint32_t live,
                               uint32_t n) except? 0xFFFFFFFE nogil
    cdef uint32_t sort_group(self, Move* move, uint32_t n) except? 0xFFFFFFFE nogil
    cdef int read_again(self, Move* move, uint32_t first, uint32_t n) except -1 nogil
    cdef uint32_t collect(self, Move* move, uint32_t block) except? 0xFFFFFFFE nogil
    cdef int confirm(self, const Move* move, uint32_t block, uint32_t first, uint32_t n) except -1 nogil
    cdef bint is_late(self, const Move* move, uint32_t block, uint32_t i) except -1 nogil
    cdef bint is_readable(self, uint32_t block, uint32_t i, uint64_t order) except -1 nogil
    cdef bint is_named(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef bint poison(self, Move* move, uint32_t ppa, uint8_t* at) except -1 nogil
    cdef int sort_keys(self, const Move* move, uint32_t n) noexcept nogil
    cdef int copy_out(self, Move* move, uint32_t n) except -1 nogil
    cdef uint32_t copy_run(self, Move* move, uint32_t first, Extent* ext, uint32_t before,
                           uint32_t behind) except? 0xFFFFFFFE nogil
    cdef int commit_move(self, const Move* move, uint32_t n) except -1 nogil
    cdef int let_left_die(self, const Move* move) except -1 nogil
