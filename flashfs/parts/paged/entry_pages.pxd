# Entries in translation pages; see entry_pages.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.parts.battery.map_battery cimport MapBattery
from flashfs.parts.paged.paged_map cimport PageDirectory, PagedMapping
from flashfs.parts.paged.pending_entries cimport PendingEntries
from flashfs.parts.paged.part_pages cimport TranslationPages


cdef class EntryPages(PagedMapping)


cdef class Gtd(PageDirectory):
    cdef uint32_t* page_ppas
    cdef readonly uint32_t n               # translation pages there can be
    cdef readonly uint32_t first_id        # of page 0: lower numbers are the directory's own pages
    cdef EntryPages mapping
    cdef uint32_t where(self, uint32_t page) except? 0xFFFFFFFE nogil
    cdef uint32_t known(self, uint32_t page) noexcept nogil
    cdef bint absent(self, uint32_t page) noexcept nogil
    cdef int replaced(self, uint32_t old, uint32_t ppa) noexcept nogil
    cdef int housekeep(self) except -1 nogil
    cdef int quiet(self, bint on) noexcept nogil
    cdef int save_in(self, MapBattery battery) except -1


cdef class KeptPages(TranslationPages):
    pass


cdef class EntryPages(PagedMapping):
    cdef readonly Gtd gtd
    cdef readonly PendingEntries pending
    cdef readonly uint32_t per_page        # entries of a translation page
    cdef readonly uint64_t pending_most    # entries that wait between requests
    cdef readonly uint64_t pending_room    # ... that there is room for then
    cdef int wait_for_most(self, uint64_t entries, uint32_t blocks) except -1
    cdef int give_room_back(self) except -1 nogil
    cdef readonly uint64_t writebacks, entries_written
    cdef uint32_t watched                  # a page that is watched for a new version
    cdef bint outdated                     # ... and whether it got one
    cdef uint32_t* image                   # the translation page being read, changed and written
    cdef uint32_t image_of, image_ppa     # which page that is, and which version of it; NONE: none
    cdef uint32_t* looked                  # the translation page read last by ``look``, not for the host
    cdef uint32_t looked_of, looked_ppa
    cdef readonly MapBattery saved         # the battery that keeps all this; None: there is none
    cdef readonly bint strays              # after damage: several LPAs may name a page, or a page may be another LPA's
    # implemented by a cache of entries
    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil
    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil
    cdef int cleaned(self, uint32_t page) except -1 nogil
    cdef int uncache(self, uint32_t page) except -1 nogil
    cdef int uncache_all(self) noexcept nogil
    # called by a cache
    cdef uint32_t page_of(self, uint32_t lpa) noexcept nogil
    cdef uint32_t entries_of(self, uint32_t page) noexcept nogil
    cdef int fetch(self, uint32_t page) except -1 nogil
    cdef int write_back(self, uint32_t page) except -1 nogil
    cdef int write_page(self, uint32_t page) except -1 nogil
    cdef uint32_t entry(self, uint32_t lpa, bint* dirty) except? 0xFFFFFFFE nogil
    # the battery
    cdef bint keeps(self) noexcept nogil
    cdef int changes(self) except -1 nogil
    cdef int doubts(self) except -1 nogil
    cdef int save_pages(self) except -1
    cdef int save_pending(self, uint64_t at) except -1 nogil
    cdef int put_newer(self, const uint32_t* lpas, const uint32_t* ppas, const uint32_t* expected,
                       uint32_t n) except -1 nogil
    cdef int drop_pending(self, uint64_t first, uint64_t end) except -1 nogil
    # the rest
    cdef bint newest(self, uint32_t lpa, uint32_t* ppa) except -1 nogil
    cdef bint agrees(self, uint64_t at) except -1 nogil
    cdef int judge(self, uint64_t at) except -1 nogil
    cdef int disown(self, uint64_t at) except -1 nogil
    cdef int put_pending(self, uint32_t page) except -1 nogil
    cdef int replaces(self, uint32_t page) except -1 nogil
    cdef bint same_image(self, uint32_t page) except -1 nogil
    cdef int set_ppa(self, uint32_t page, uint32_t ppa) except -1 nogil
    cdef int replace(self, uint32_t page, uint32_t old, uint32_t ppa) except -1 nogil
    cdef int find_pages_by(self, Gtd gtd, uint32_t ids) except -1
    cdef int look(self, uint32_t page) except -1 nogil
