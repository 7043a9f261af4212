# Where an LPA is, by LeaFTL's table; see lookup.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.paged.paged_map cimport PagedMapping
from flashfs.ftl.leaftl.group cimport LEVELS_MOST
from flashfs.ftl.leaftl.segments cimport SegmentTable
from flashfs.ftl.leaftl.table_pages cimport TablePages

cdef enum:
    PART = 256               # LPAs looked up at once: a group
    SPARE_MOST = 2048        # bytes of the largest OOB


cdef class LearnedPlaces(PagedMapping):
    cdef readonly SegmentTable table
    cdef readonly TablePages pages
    cdef readonly uint32_t gamma
    cdef readonly uint64_t mispredictions, probes, settled_by_live, settled_by_list, settled_by_read
    cdef uint64_t[LEVELS_MOST + 1] by_level
    cdef uint32_t[PART] part_lpas
    cdef uint32_t[PART] part_ppas
    cdef uint8_t[PART] part_levels
    cdef uint8_t[PART] part_about
    cdef uint32_t named_lpa, named_ppa     # the last result of ``after_miss``, until the next look-up
    cdef uint32_t list_at                  # the page whose OOB is in ``spare``; NONE: no valid one
    cdef uint8_t[SPARE_MOST] spare
    cdef set half_erased                   # blocks that lost a page of a run: their erase had begun
    cdef uint32_t named(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) noexcept nogil
    cdef bint in_reach(self, uint32_t ppa, uint32_t predicted) noexcept nogil
    cdef uint32_t next_probe(self, uint32_t predicted, uint32_t ppa) noexcept nogil
    cdef int places(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef uint32_t settle(self, uint32_t lpa, uint32_t predicted) except? 0xFFFFFFFE nogil
    cdef uint32_t only_live(self, uint32_t predicted) except? 0xFFFFFFFE nogil
    cdef uint32_t listed(self, uint32_t lpa, uint32_t predicted) except? 0xFFFFFFFE nogil
    cdef bint read_list(self, uint32_t ppa) except -1 nogil
    cdef uint32_t claimed(self, uint32_t ppa) except? 0xFFFFFFFE nogil
