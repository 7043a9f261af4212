# The mapping of an FTL written in Python.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.python.python_ftl cimport Plugin
from flashfs.engine.contract.extensions cimport Runs, Sharing
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.blocks.pool cimport Oob


cdef class PyRuns(Runs):
    cdef PyMapping map


cdef class PySharing(Sharing):
    cdef PyMapping map


cdef class PyMapping(Mapping):
    cdef readonly Plugin plugin
    cdef bint guesses, saves, rebuilds
    cdef uint64_t save_most
    cdef uint8_t* raw                      # one page's OOB
    cdef uint8_t* bound                    # a bit for each LPA: whether it is bound
    cdef uint32_t run_at, run_n            # pages just programmed, not live yet, while their LPAs are bound
    cdef uint32_t miss_lpa, misses
    cdef object half_erased                # blocks in which a guess found a live page erased
    cdef list unread                       # pages live at the checkpoint whose owner a rebuild could not read
    cdef uint64_t unreadable               # how many of them were still live
    cdef bint judged(self)
    cdef object wrong(self, uint32_t lpa, said)
    cdef object misbound(self, uint32_t lpa, uint32_t ppa)
    cdef bint is_bound(self, uint32_t lpa)
    cdef int mark(self, uint32_t lpa, bint is_bound)
    cdef bint alive(self, uint32_t ppa)
    cdef str holds(self, uint32_t ppa)
    cdef int spare(self, uint32_t ppa, Oob* oob) except -1
    cdef int names(self, uint32_t ppa, uint32_t lpa) except -1
    cdef uint32_t where(self, uint32_t lpa) except? 0xFFFFFFFE
    cdef uint32_t settled(self, uint32_t lpa) except? 0xFFFFFFFE
    cdef bint claims(self, uint32_t lpa, uint32_t ppa) except -1
    cdef uint32_t next_guess(self, uint32_t lpa, uint32_t ppa) except? 0xFFFFFFFE
    cdef uint32_t sure(self, uint32_t lpa) except? 0xFFFFFFFE
    cdef uint32_t leaves(self, uint32_t lpa) except? 0xFFFFFFFE
    cdef int must_find(self, uint32_t lpa, uint32_t ppa, call) except -1
    cdef int put(self, uint32_t lpa, uint32_t ppa) except -1
    cdef int take_back(self, uint32_t lpa) except -1
    cdef int restored(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1
    cdef list sharers(self, uint32_t ppa)
    cdef uint32_t copied(self, uint32_t lpa, uint64_t seq, uint32_t ppa, bint* own) except? 0xFFFFFFFE
    cdef int move_shared(self, uint32_t old, uint32_t new) except -1
    cdef int drop_unread(self) except -1
    cdef rebuild(self, sections, uint64_t order)
    cdef missed(self, uint32_t lpa)
