# GeckoFTL's mapping; see mapping.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from libcpp.unordered_set cimport unordered_set

from flashfs.parts.from_pages.fenced_map cimport FencedMap
from flashfs.parts.from_pages.fences cimport Fences

cdef enum:                   # in addition to the CMT's own flags of a slot
    UIP = 16                 # the translation page may name an old page that is not reported yet
    UNSURE = 64              # ... or was reported before this mount: check that page first
    VOID = 32                # a slot for an LPA that is about to be written: it has no PPA yet


cdef class GeckoFences(Fences):
    pass


cdef class GeckoMap(FencedMap):
    cdef unordered_set[uint32_t] owed      # LPAs of pending entries with the UIP flag, from a checkpoint
    cdef uint32_t* gone                    # PPAs to be reported
    cdef uint32_t* said_lpa                # LPAs that ``confirm`` recently found superseded, a ring
    cdef uint32_t* said_ppa
    cdef uint32_t said_n, said_room
    cdef readonly uint64_t identified, identified_early
    cdef readonly uint32_t uip_n           # entries with the flag
    cdef uint32_t slot_of(self, uint32_t lpa) noexcept nogil
    cdef int set_flags(self, uint32_t slot, uint8_t some, uint8_t no) noexcept nogil
    cdef int fill(self, uint32_t slot) except -1 nogil
    cdef int take_place(self, uint32_t lpa) except -1 nogil
    cdef int take_owed(self, uint32_t slot) except -1 nogil
    cdef bint is_before(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int identify_owed(self, uint32_t page) except -1 nogil
    cdef bint has_uip(self, uint32_t page) noexcept nogil
    cdef int identify(self, uint32_t page) except -1 nogil
    cdef int settled(self, uint32_t slot) noexcept nogil
    cdef int report_lost(self, uint32_t page, const uint32_t* before, const uint32_t* after,
                         const uint32_t* newest, object in_scan) except -1
