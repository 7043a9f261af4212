# The second half of a recovery, which decides which pages count; see resolve.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.recovery.found_pages cimport Entry
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.scan cimport Scanner

cdef struct Move:            # a copy and its original
    uint64_t seq
    uint32_t key, old, new, group


@cython.final
cdef class Resolver:
    cdef Ssd ssd
    cdef Found found
    cdef Scanner scanner
    cdef uint64_t winners, undone, undone_groups
    cdef Owner owner                       # the owner of the pages being settled
    cdef bint of_user                      # ... it is the mapping
    cdef bint restamps                     # its copies may be stamped differently from their originals
    cdef SpillArray moves                     # found in the current resolve_entries
    cdef uint8_t* recent                   # per block: look for the originals of copies in it; or NULL
    cdef scan_and_settle(self)
    cdef int resolve_validity(self) except -1
    cdef int resolve_kind(self, int kind) except -1
    cdef resolve_all(self)
    cdef bint newly(self, blocks, uint8_t mark) except -1
    cdef int resolve_entries(self, Entry* at, uint64_t n) except -1 nogil
    cdef int apply_trims(self) except -1 nogil
    cdef int kill_olds(self, uint32_t n) except -1 nogil
    cdef int resolve_versions(self, const Entry* of, uint64_t n) except -1 nogil
    cdef int drop_superseded(self, uint32_t block) except -1 nogil
    cdef uint32_t made_of(self, const Entry* of, uint64_t n, uint32_t before) noexcept nogil
    cdef uint32_t original_of(self, const Entry* copy) except? 0xFFFFFFFE nogil
    cdef bint counts(self, uint32_t lpa, uint64_t seq, uint32_t ppa) except -1 nogil
    cdef bint has_entry(self, uint32_t lpa) noexcept nogil
    cdef uint64_t trimmed_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil
    cdef int resolve_named(self, const Entry* of, uint64_t n) except -1 nogil
    cdef bint was_there(self, const Entry* copy, uint32_t base) except -1 nogil
    cdef bint is_gone(self, uint32_t ppa) except -1 nogil
    cdef bint names_all(self) noexcept nogil
    cdef recount(self)
    cdef int resolve_shared(self, const Entry* of, uint64_t n) except -1 nogil
    cdef int shared_moved(self, const Entry* of, uint32_t before) except -1 nogil
    cdef uint32_t bind_newest(self, const Entry* best, uint32_t before) except? 0xFFFFFFFE nogil
    cdef int note_move(self, const Entry* best, uint32_t old) except -1 nogil
    cdef int undo(self) except -1 nogil
    cdef uint32_t unfinished_group(self) except? 0xFFFFFFFF nogil
    cdef bint is_there(self, const Move* move) except -1 nogil
    cdef int undo_one(self, const Move* move) except -1 nogil
    cdef uint64_t found_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil
