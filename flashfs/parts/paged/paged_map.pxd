# A mapping with parts in translation pages; see paged_map.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from flashfs.engine.contract.mapping cimport Mapping
from flashfs.parts.paged.part_pages cimport Directory, TranslationPages


cdef class PagedMapping(Mapping)


cdef class PageDirectory(Directory):
    cdef PagedMapping owner
    cdef uint32_t id_at(self, uint32_t ppa) noexcept nogil
    cdef uint32_t count(self) noexcept nogil


cdef class PagedMapping(Mapping):
    cdef readonly TranslationPages store
    cdef readonly PageDirectory directory
    cdef readonly uint64_t rebuilds        # translation pages that were rebuilt
    cdef int64_t mapped_n                  # LPAs that are mapped, counted as they are bound and unbound
    cdef bint exact                        # ... and none was lost to damage
    cdef readonly bint strict              # a page that cannot be read is an error, and is not rebuilt
    cdef bint recovering
    cdef uint32_t nobody                   # the ownerless page that the last rebuild used; or NONE
    cdef int own_pages(self, TranslationPages store, PageDirectory directory) except -1
    # a scheme must implement
    cdef int lpas_of(self, uint32_t id, uint32_t* first, uint32_t* n) noexcept nogil
    cdef int remade(self, uint32_t id, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil
    cdef bint is_sound(self, uint32_t id) except -1
    cdef uint64_t dirty(self) noexcept nogil
    cdef bint write_next(self) except -1 nogil
    # a scheme need not override
    cdef int page_gone(self, uint32_t id) except -1 nogil
    cdef int rebuild(self, uint32_t id) except -1 nogil
    cdef int drop_strays(self, const uint32_t* lpas, uint32_t first, uint32_t n, uint32_t* olds) except -1 nogil
    cdef bint strayed(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t stray(self, uint32_t first, uint32_t n) except? 0xFFFFFFFE
    cdef int asked(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1
    cdef uint32_t unmapped_of(self, vector[uint64_t]& named) except? 0xFFFFFFFE
    cdef int write_down(self, uint64_t least, uint32_t pages) except -1 nogil
    cdef str fault_in(self, uint32_t id)
    cdef str misplaced(self, bint whole)
    cdef int64_t lpas_named(self) noexcept nogil
