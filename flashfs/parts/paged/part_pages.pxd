# Pages of a mapping in flash; see part_pages.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libcpp.unordered_set cimport unordered_set

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.owner cimport Owner
from nandimg._chip cimport Chip


cdef struct Witness:                       # the newest page of an LPA
    uint64_t next_seq                      # its newest page's sequence number and one; 0: there is none
    uint32_t ppa


cdef class Directory:
    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil
    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil
    cdef uint32_t find(self, uint32_t id) except? 0xFFFFFFFE nogil
    cdef int move_to(self, uint32_t id, uint32_t ppa) except -1 nogil
    cdef int lost(self, uint32_t ppa) except -1 nogil


cdef class DramDirectory(Directory):
    cdef uint32_t* page_ppas
    cdef readonly uint32_t n
    cdef int hold(self, uint32_t n) except -1
    cdef uint32_t drop(self, uint32_t ppa) noexcept nogil


cdef class TranslationPages(Owner):
    cdef readonly Engine ssd
    cdef readonly Directory directory
    cdef readonly int kind, cause
    cdef readonly uint64_t programs, reads, unreadable
    cdef unordered_set[uint32_t] fresh     # PPAs programmed since the last checkpoint
    cdef unordered_set[uint32_t] kept      # PPAs superseded that the last checkpoint needs
    cdef Chip chip                         # the chip if nothing is between it and the engine, or None
    cdef uint8_t* oob
    cdef uint64_t let_go_n                 # superseded pages that the checkpoint being written says are dead
    cdef bint reports                      # births and deaths are reported to a store that needs room for them
    cdef bint lasting                      # superseded pages live until their successors are durable: ``ripen``
    cdef unordered_set[uint32_t] ripe      # PPAs superseded that die with the next sync
    cdef uint64_t ripe_at                  # the number of syncs when the newest of them became ripe
    cdef uint8_t flags                     # in the OOB of the page that is programmed
    # a bit for each id whose newest version was found sound in this mount, or written in it; NULL: nobody asks. The
    # host's own guard: a controller believes what its ECC proves
    cdef uint8_t* proved
    cdef bint of_ppas                      # a page is an array of PPAs, NONE among them; what is not cannot be read
    cdef int ensure(self, uint32_t pages) except -1 nogil
    cdef uint32_t program(self, uint32_t id, const uint8_t* data) except? 0xFFFFFFFF nogil
    cdef int program_all(self, uint32_t id, const uint8_t* data, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef int leaves(self, uint32_t ppa) noexcept nogil
    cdef int hold_proofs(self) except -1
    cdef bint is_proved(self, uint32_t id) noexcept nogil
    cdef int prove(self, uint32_t id) noexcept nogil
    cdef bint read(self, uint32_t ppa, uint32_t id, uint8_t* into) except -1 nogil
    cdef const uint8_t* see(self, uint32_t ppa, uint32_t id, uint8_t* into) except? NULL nogil
    cdef bint is_that(self, uint8_t status, uint32_t ppa, uint32_t id, const uint8_t* data) noexcept nogil
    cdef int forget(self) noexcept nogil
    cdef int supersede(self, uint32_t ppa) except -1 nogil
    cdef int ripen(self) except -1 nogil
    cdef int let_ripe_go(self) except -1 nogil
    cdef int make_way(self) except -1 nogil
    cdef int let_all_go(self) except -1 nogil
    cdef uint64_t waiting(self) noexcept nogil
    cdef bint keeps(self, uint32_t ppa) noexcept nogil
    cdef bint holds(self, uint32_t id, uint32_t ppa) except -1 nogil
    cdef uint64_t known(self) noexcept nogil
    cdef int reset(self) except -1
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1


cdef list newest_pages(Engine ssd, list ranges)
cdef int take_witnesses(Engine ssd, uint32_t first, uint32_t n, Witness* seen, uint32_t* nobody) except -1 nogil
