# distutils: language = c++
"""The log in flash of Remap-SSD-FLog, a rival in Remap-SSD's paper (sections 3.3 and 5.1): one log of all entries, in
the order in which remaps and moves made them, in pages on parallel dies.

A page is programmed between requests, when there are entries to fill it. Cleaning a superblock reads the whole log.
When the log is full it is *reclaimed*: it is read, and its valid entries are logged again. Its pages are live pages
like any other: cleaning moves them, a failed program goes elsewhere, they take room.

An entry is 16 bytes: u32 LPA, u32 PPA, and a u64 with the sequence number in its lowest 48 bits; bit 48 says whether
the source was unmapped.

This models the cost of the log; its content is not needed: entries are also in NVRAM (rmm.pyx), by superblock, so
validity is known without the log, and a recovery uses NVRAM. So no page of the log outlasts a mount: the log is
rewritten from the valid entries then, and entries that do not fill a page yet are not lost.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.errors import BindError

cdef uint64_t SEQ_MASK = (<uint64_t> 1 << 48) - 1
LOGGED = numpy.dtype([("lpa", "<u4"), ("ppa", "<u4"), ("word", "<u8")])


def pages_for(uint64_t entries, uint32_t page_bytes):
    """The most pages of a log of so many entries."""
    return entries // (page_bytes // sizeof(Logged)) + 1


cdef class LogDirectory(DramDirectory):
    """The PPA of each page of the log, the oldest first: ``n`` of at most ``most``."""

    def __cinit__(self, uint32_t most):
        self.most = most
        self.hold(most)
        self.n = 0

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        self.drop(ppa)
        self.broken = True
        return 0


cdef class LogPages(TranslationPages):
    """No checkpoint needs a page of the log: a superseded one is dead at once."""

    cdef int supersede(self, uint32_t ppa) except -1 nogil:
        self.fresh.erase(ppa)
        self.ssd.validity.dead(&ppa, 1)
        return 0


cdef class FlashLog:
    """A log with room for ``entries``, of which at most ``waiting`` are not in a page yet."""

    def __cinit__(self, Engine ssd not None, uint64_t entries, uint64_t waiting):
        cdef uint64_t most = pages_for(entries, ssd.nand.page_bytes)
        if most >= NONE:
            raise BindError(f"remapssd: rival=flog: a log of {most} pages; use fewer bytes of nvram")
        self.ssd = ssd
        self.per_page = ssd.nand.page_bytes // sizeof(Logged)
        self.room = max(waiting, <uint64_t> self.per_page)
        self.directory = LogDirectory(most)
        self.pages = LogPages(ssd, self.directory, most)
        self.waiting = <Logged*> malloc(self.room * sizeof(Logged))
        self.page = <uint8_t*> malloc(ssd.nand.page_bytes)
        self.oob = <uint8_t*> malloc(ssd.nand.oob_bytes)
        if not (self.waiting and self.page and self.oob):
            raise MemoryError
        ssd.keep_pages(most)
        ssd.reserve_for(2)                 # a cleaned block's pages go to one stream or the other

    def __dealloc__(self):
        free(self.waiting)
        free(self.page)
        free(self.oob)

    cdef bint is_whole(self) noexcept nogil:
        """Whether the pages and the waiting entries are all that was logged."""
        return not (self.again or self.directory.broken)

    cdef int add(self, uint32_t lpa, uint32_t ppa, uint64_t seq, bint move) noexcept nogil:
        """Log an entry."""
        cdef Logged* at
        if self.waiting_n == self.room:
            self.again = True
            return 0
        at = self.waiting + (self.first + self.waiting_n) % self.room
        at.lpa = lpa
        at.ppa = ppa
        at.word = seq | <uint64_t> move << 48
        self.waiting_n += 1
        return 0

    cdef int write_next(self) except -1 nogil:
        """Program a page of the oldest waiting entries; there must be a page of them. May clean, which logs entries."""
        cdef uint32_t i, ppa
        self.ssd.make_room()               # rewriting the log opens many blocks in a row
        self.pages.ensure(1)
        if self.directory.n == self.directory.most:
            self.again = True
            return 0
        memset(self.page, 0, self.ssd.nand.page_bytes)
        for i in range(self.per_page):
            (<Logged*> self.page)[i] = self.waiting[(self.first + i) % self.room]
        ppa = self.pages.program(self.directory.n, self.page)
        self.directory.page_ppas[self.directory.n] = ppa
        self.directory.n += 1
        self.first = (self.first + self.per_page) % self.room
        self.waiting_n -= self.per_page
        return 0

    cdef int64_t read_all(self, int cause, int64_t t_ns) except -1 nogil:
        """Read the log, all pages at once, each from its die; returns the virtual end time. An unreadable page causes
        the log to be rewritten."""
        cdef uint32_t id, ppa
        cdef uint8_t status = 0
        cdef int64_t end = t_ns, one
        cdef int _
        for id in range(self.directory.n):
            ppa = self.directory.page_ppas[id]
            one = t_ns
            for _ in range(2 if ppa != NONE else 0):
                one = self.ssd.nand.read(ppa // self.ssd.nand.pages_per_block, ppa % self.ssd.nand.pages_per_block, 1,
                                         self.page, self.oob, &status, cause, one)
                self.pages.reads += 1
                if status == PAGE_OK:
                    break
            else:
                self.again = True
            end = max(end, one)
        return end

    cdef int drop_all(self) except -1 nogil:
        """Drop the log: every page dies, and no entry waits."""
        cdef uint32_t id
        for id in range(self.directory.n):
            if self.directory.page_ppas[id] != NONE:
                self.pages.supersede(self.directory.page_ppas[id])
                self.directory.page_ppas[id] = NONE
        self.directory.n = 0
        self.waiting_n = self.first = 0
        self.again = self.directory.broken = False
        return 0

    def reset(self):
        """A load or a recovery begins: drop all pages. The valid entries must be logged again."""
        self.directory.n = 0
        self.directory.broken = False
        self.pages.reset()
        self.waiting_n = self.first = 0
        self.again = True

    def entries(self):
        """All entries since the log was rewritten, the oldest first: an array of LOGGED."""
        cdef uint32_t id
        cdef uint64_t i
        parts = []
        for id in range(self.directory.n):
            if self.directory.page_ppas[id] != NONE and self.pages.read(self.directory.page_ppas[id], id, self.page):
                raw = (<const uint8_t*> self.page)[:self.per_page * sizeof(Logged)]
                parts.append(numpy.frombuffer(raw, LOGGED))
        rows = [(self.waiting[(self.first + i) % self.room].lpa, self.waiting[(self.first + i) % self.room].ppa,
                 self.waiting[(self.first + i) % self.room].word) for i in range(self.waiting_n)]
        return numpy.concatenate([*parts, numpy.array(rows, LOGGED)])

    def tables(self):
        """(as a controller packs it, as allocated): the PPAs of its pages, a page of waiting entries, and one that is
        read; room for further waiting entries counts as allocated only, since NVRAM has them."""
        cdef uint64_t pages = 2 * <uint64_t> self.ssd.nand.page_bytes
        return 4 * self.directory.most + pages, 4 * self.directory.most + pages + self.room * sizeof(Logged)
