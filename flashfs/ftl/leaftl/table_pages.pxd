# The groups of a SegmentTable in translation pages; see table_pages.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.paged.paged_map cimport PagedMapping
from flashfs.engine.contract.engine cimport Engine
from flashfs.ftl.leaftl.gmd cimport Gmd
from flashfs.ftl.leaftl.segments cimport Pager, SegmentTable


cdef class TablePages(Pager):
    cdef readonly Engine ssd
    cdef readonly PagedMapping mapping
    cdef readonly SegmentTable table
    cdef readonly Gmd gmd
    cdef readonly uint64_t limit           # most bytes of groups in memory; 0: no limit
    cdef readonly uint64_t clean_bytes     # of groups that can be evicted
    cdef readonly uint64_t most_bytes      # most bytes of groups in memory after a request
    cdef readonly uint64_t loads, evictions
    cdef uint32_t capacity                 # bytes of a translation page
    cdef uint8_t* changed                  # a bit a group: its translation page is not clean
    cdef uint8_t* buffer                   # one translation page
    cdef uint32_t hand_region, hand_page   # the clock's hand
    cdef uint32_t back_region              # where writing back continues
    cdef int clear(self) noexcept nogil
    cdef uint32_t id_of(self, uint32_t region, uint32_t at) noexcept nogil
    cdef bint load(self, uint32_t region, uint32_t at) except -1 nogil
    cdef bint parse(self, uint32_t first, uint32_t n) except -1 nogil
    cdef bint plausible(self, const uint8_t* block, uint32_t bytes) noexcept nogil
    cdef int remade(self, uint32_t id, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int forget(self, uint32_t first, uint32_t n) noexcept nogil
    cdef bint names_live_pages(self, uint32_t first, uint32_t n) except -1 nogil
    cdef int evict(self, uint32_t region, uint32_t at) noexcept nogil
    cdef bint evict_one(self) noexcept nogil
    cdef bint was_used(self, uint32_t first, uint32_t n) noexcept nogil
    cdef int borrow(self, uint32_t group) except -1 nogil
    cdef int give_back(self, uint32_t group) noexcept nogil
    cdef int shrink(self, uint64_t more) noexcept nogil
    cdef uint64_t dirty_bytes(self) noexcept nogil
    cdef uint64_t share(self) noexcept nogil
    cdef bint write_next(self) except -1 nogil
    cdef bint write_one(self, uint32_t region) except -1 nogil
    cdef uint32_t first_changed(self, uint32_t number) noexcept nogil
    cdef bint written(self, uint32_t number, uint32_t first, uint32_t n, const uint32_t* ppas) except -1 nogil
    cdef uint32_t gather(self, uint32_t first, uint32_t end, uint32_t* bytes) noexcept nogil
    cdef bint is_sound(self, uint32_t id) except -1
    cdef int load_all(self) except -1 nogil
