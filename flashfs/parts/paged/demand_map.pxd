# A mapping whose entries lie in translation pages; see demand_map.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.paged.pending_entries cimport Found


cdef class DemandMapping(EntryPages):
    cdef int64_t saved_n                   # LPAs that are mapped by the checkpoint that was loaded; < 0: unknown
    cdef readonly uint32_t moved_share     # entries of moved pages that may wait, per cent of the cache's; 0: none
    cdef uint32_t turn                     # pending entries of LPAs below it go to flash next
    cdef public bint syncs_first           # a recovery writes its entries back before the host is served
    cdef bint scanned                      # the mount was not clean
    cdef Found found                       # by a recovery
    cdef uint64_t stamp                    # of the battery region that belongs to the loaded checkpoint; 0: none
    cdef object known                      # from the battery: the newest sequence number, word TRIMMED, order; or None
    cdef uint32_t* lists                   # three of ``list_room``: LPAs, PPAs, what flash should say
    cdef uint32_t* twins
    cdef uint32_t list_room
    cdef int confirm_late(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n,
                          uint8_t* answers) except -1 nogil
    cdef int mark_twins(self, const uint32_t* lpas, uint32_t n, uint8_t* twins) noexcept nogil
    cdef int settle_moved(self) except -1
    cdef int make_room_for_moved(self) except -1 nogil
    cdef int let_moved_wait(self, uint64_t entries, uint64_t most, uint32_t blocks) except -1
    cdef uint32_t next_page(self) noexcept nogil
    cdef int unbind_all(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
    cdef int unbind_strays(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
    cdef int unbind_part(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
