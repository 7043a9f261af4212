"""The engine's default mapping: a page table in DRAM."""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from flashfs.engine.arrays cimport array_u32
from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.parts.defaults.map_check cimport MapCheck

import numpy


cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)
    void zero_memory(void* at, size_t bytes)
    void copy_into_zeros(void* into, const void* of, size_t bytes)
    size_t zeros_from(const void* at, size_t bytes)

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    PASSED = 4096            # entries that a pass over the table takes before it looks for the next one that is mapped
    AHEAD = 12               # entries prefetched ahead: a table of gigabytes misses the cache at every random page

TABLE = "table"     #: the section of the page table: as in DRAM
OLDER_TABLE = "map"  #: of an image without flashfs.checkpoint-fills: the PPAs themselves


cdef class PageTable(Mapping):
    """One 4-byte PPA per LPA, in DRAM. Lookup O(1).

    An entry has the bits of its PPA inverted, so that zero says that nothing is mapped: of a large device, what nobody
    wrote to takes no memory of the host, and no page of a checkpoint."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.ssd = ssd
        self.table = <uint32_t*> calloc(ssd.lpas, sizeof(uint32_t))
        if self.table == NULL:
            raise MemoryError
        want_huge_pages(self.table, ssd.lpas * sizeof(uint32_t))

    def __dealloc__(self):
        free(self.table)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            ppas[i] = self.at(lpas[i])
        return 0

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        prefetch(self.table + lpa, 1)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(min(n, <uint32_t> AHEAD)):
            prefetch(self.table + lpas[i], 1)
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            olds[i] = self.at(lpas[i])
            self.put(lpas[i], ppa + i)
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
            self.put(lpas[i], news[i])
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n and lpas[i + AHEAD] < self.ssd.lpas:
                prefetch(self.table + lpas[i + AHEAD], 1)
            answers[i] = LIVE if lpas[i] < self.ssd.lpas and self.at(lpas[i]) == ppas[i] else FOREIGN
            if answers[i] == FOREIGN and self.ssd.validity.late and lpas[i] < self.ssd.lpas:
                answers[i] = SUPERSEDED
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            olds[i] = self.at(lpa + i)
        memset(self.table + lpa, 0, n * sizeof(uint32_t))
        return 0

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        self.put(lpa, ppa)
        return 0

    def save(self):
        """{section: buffer}. ``table``: the entries as they are in DRAM, u32 each, the bits of the PPA inverted, 0 if
        unmapped; a view of the table, not a copy. An image without ``flashfs.checkpoint-fills`` gets ``map`` instead: a
        copy, u32 PPAs whose bits are not inverted, NONE if unmapped."""
        if not self.ssd.fills():
            return {OLDER_TABLE: (~array_u32(self.table, self.ssd.lpas)).tobytes()}
        return {TABLE: <const uint8_t[:self.ssd.lpas * 4]> <uint8_t*> self.table}

    def places(self):
        """The table itself, so that no second copy is needed: at 2 TiB it has 2.1 GB."""
        return dict.fromkeys((TABLE, OLDER_TABLE), memoryview(<uint8_t[:self.ssd.lpas * 4]> <uint8_t*> self.table))

    def load(self, sections):
        name = TABLE if TABLE in sections else OLDER_TABLE
        cdef const uint8_t[::1] saved = sections[name]
        cdef uint64_t size = <uint64_t> self.ssd.lpas * 4
        if <uint64_t> saved.shape[0] != size:
            raise ValueError(f"{name} section of {saved.shape[0]} bytes: {size} are needed")
        if &saved[0] != <uint8_t*> self.table:
            zero_memory(self.table, size)
            copy_into_zeros(self.table, &saved[0], size)
        if name == OLDER_TABLE:
            entries = array_u32(self.table, self.ssd.lpas)
            numpy.invert(entries, out=entries)
        self.require_range()

    cdef int require_range(self) except -1:
        """ValueError for the first LPA whose entry is no page of this chip; the table stays as it was loaded."""
        cdef uint32_t lpa = self.next_mapped(0), pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        while lpa < self.ssd.lpas:
            if self.at(lpa) >= pages:
                raise ValueError(f"LPA {lpa} is at PPA {self.at(lpa)}: the chip has {pages} pages")
            lpa = self.next_mapped(lpa + 1)
        return 0

    @cython.final
    cdef uint32_t next_mapped(self, uint32_t lpa) noexcept nogil:
        """The first LPA from ``lpa`` on that is mapped, or the number of LPAs."""
        return PageTable.next_named(self, lpa, self.ssd.lpas)

    def verify(self, bint whole=True):
        """Each mapped page is live, no two LPAs share one, and no other page is live. One pass over the table, and one
        over validity; only if they disagree, validity is asked about each LPA, and ValueError names the first that does
        not fit. If validity is in flash, only counts are compared unless ``whole``."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa = self.next_mapped(0), n
        cdef bint apart = True
        if self.ssd.validity.in_flash and not whole:
            wrong = agreement.fault_of_counts(self.table, self.ssd.lpas, NONE)
            if wrong is not None:
                raise ValueError(wrong)
            return
        while lpa < self.ssd.lpas and apart:
            n = min(<uint32_t> PASSED, self.ssd.lpas - lpa)
            apart = agreement.enter_all(self.table + lpa, n, NONE)
            lpa = self.next_mapped(lpa + n)
        if apart and agreement.is_whole():
            return
        agreement.clear()
        lpa = self.next_mapped(0)
        while lpa < self.ssd.lpas:
            agreement.require(lpa, self.at(lpa))
            lpa = self.next_mapped(lpa + 1)
        wrong = agreement.fault_of_all(0)
        if wrong is not None:
            raise ValueError(wrong)

    cdef int64_t pages_named(self) except -2 nogil:
        cdef uint32_t lpa = self.next_mapped(0), n = 0, end
        while lpa < self.ssd.lpas:
            end = lpa + min(<uint32_t> PASSED, self.ssd.lpas - lpa)
            for lpa in range(lpa, end):
                n += self.table[lpa] != 0
            lpa = self.next_mapped(end)
        return n

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        if lpa < end and self.table[lpa] == 0:
            lpa += <uint32_t> (zeros_from(self.table + lpa, <uint64_t> (end - lpa) * 4) // 4)
        return lpa

    def named(self):
        """How many LPAs hold something."""
        return PageTable.pages_named(self)  # a subclass whose LPAs share pages counts those in pages_named

    def reset(self):
        zero_memory(self.table, <uint64_t> self.ssd.lpas * 4)

    def tables(self):
        return {"page_table": (self.ssd.lpas * 4, self.ssd.lpas * sizeof(uint32_t))}
