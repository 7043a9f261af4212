# Where is LPA x?
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.explained cimport Explained
from flashfs.engine.contract.extent cimport Extent


cdef class Mapping(Explained):
    cdef readonly Engine ssd
    cdef readonly uint32_t scheme_oob      # bytes of OOB that the scheme stamps on its pages
    cdef readonly bint shares_pages        # several LPAs may be at one page: see the class
    cdef readonly bint whole_runs          # ``run_ends`` is to tell it what was written together
    cdef readonly uint32_t own_reports     # reports of its own pages that validity may get for each page it is told of
    cdef readonly bint demand              # parts of it are in flash: ``prepare`` reads, and may write and clean
    cdef readonly bint fenced              # a crash is recovered from its pages: see rebuild.pyx
    cdef readonly uint64_t fence_every     # pages programmed between two checkpoints, at most
    cdef readonly bint remaps              # an LPA can be pointed at another's page: ``remap_run``
    cdef readonly bint atomic              # ... and a command of the host is remapped in one piece, or refused
    cdef readonly bint dedups              # a page that the host writes may be there already: ``sift``
    cdef readonly bint names_sharers       # it knows all who are at a page, each by its own number: see resolve.pyx
    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing, int64_t* ready) except? 0xFFFFFFFF nogil
    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil
    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil
    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef int expect(self, uint32_t lpa) noexcept nogil
    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef bint accepts(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil
    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil
    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil
    cdef int run_ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int moves_end(self) except -1 nogil
    cdef int dropped(self, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef bint notice(self) except -1 nogil
    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil
    cdef int tend(self) except -1 nogil
    cdef int fence_begins(self) except -1
    cdef int reports_kept(self) except -1 nogil
    cdef bint has(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t remap_room(self, uint32_t target, uint32_t source, uint32_t n,
                             bint move) except? 0xFFFFFFFF nogil
    cdef bint sift(self, uint32_t lpa, const uint8_t* page, uint64_t word, int64_t* t_ns) except -1 nogil
    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil
    cdef int sifted(self) noexcept nogil
    cdef int remap_run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                       uint32_t* olds) except -1 nogil
