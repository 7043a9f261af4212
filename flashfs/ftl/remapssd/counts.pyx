"""The RC table of Remap-SSD (section 4.4): how many LPAs are at each page, four bits a page. A page without an LPA is
dead.

The counts follow from the page table, so no checkpoint has them: a mount counts (section 4.5, "as the latest L2P
mapping table has been recovered, the RC-table is also acquired"), and so does each half of a recovery.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.blocks.victims cimport gained, lost_one

import numpy as np

cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)
    void zero_memory(void* at, size_t bytes)
    size_t zeros_from(const void* at, size_t bytes)

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    AHEAD = 12


cdef class ReferenceCounts(Validity):
    """``live_run`` and ``dead`` report pages that get their first LPA and lose their last; the mapping updates counts
    in between."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.pages_per_block = ssd.nand.pages_per_block
        self.shift = 0 if self.pages_per_block & (self.pages_per_block - 1) else lowest_bit(self.pages_per_block)
        self.pages_n = <uint64_t> ssd.nand.blocks * self.pages_per_block
        self.nibbles = <uint8_t*> calloc(self.pages_n // 2 + 1, 1)
        if self.nibbles == NULL:
            raise MemoryError
        want_huge_pages(self.nibbles, self.pages_n // 2)

    def __dealloc__(self):
        free(self.nibbles)

    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        return ppa >> self.shift if self.shift else ppa // self.pages_per_block

    cdef uint32_t get(self, uint32_t ppa) noexcept nogil:
        """The number of LPAs at that page."""
        return self.nibbles[ppa >> 1] >> (4 * (ppa & 1)) & COUNT_MOST

    cdef int put(self, uint32_t ppa, uint32_t count) noexcept nogil:
        """Set the count of a page; changes no block's count of live pages."""
        cdef int shift = 4 * (ppa & 1)
        self.nibbles[ppa >> 1] = <uint8_t> (self.nibbles[ppa >> 1] & ~(COUNT_MOST << shift) | count << shift)
        return 0

    cdef int carry(self, uint32_t old, uint32_t new) noexcept nogil:
        """Move the count of ``old`` to ``new``, which had none. The caller reports ``old`` dead."""
        if self.prints is not None:
            self.prints.move(old, new)
        if self.get(new) == 0:
            gained(self.victims, self.block_of(new), 1)
        return self.put(new, max(<uint32_t> 1, self.get(old)))

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t i, fresh = 0
        for i in range(ppa, ppa + n):
            if self.get(i) == 0:
                self.put(i, 1)
                fresh += 1
        return gained(self.victims, self.block_of(ppa), fresh) if fresh else 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n and ppas[i + AHEAD] != NONE:
                prefetch(self.nibbles + (ppas[i + AHEAD] >> 1), 1)
                prefetch(self.victims.valid + self.block_of(ppas[i + AHEAD]), 1)
            if ppas[i] == NONE or self.get(ppas[i]) == 0:
                continue
            self.put(ppas[i], 0)
            if self.prints is not None:
                self.prints.drop(ppas[i])
            lost_one(self.victims, self.block_of(ppas[i]))
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        return self.get(ppa) != 0

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        cdef uint32_t page, first = block * self.pages_per_block
        memset(words, 0, (self.pages_per_block + 63) // 64 * 8)
        for page in range(self.pages_per_block):
            words[page >> 6] |= <uint64_t> (self.get(first + page) != 0) << (page & 63)
        return 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        cdef uint32_t page
        for page in range(block * self.pages_per_block, (block + 1) * self.pages_per_block):
            self.put(page, 0)
        return self.victims.set_count(block, 0)

    cdef uint32_t drop(self, uint32_t ppa) noexcept nogil:
        """One LPA leaves that page, and the table no longer maps it there. Returns how many are left, and stores that
        count unless it is 0: then the caller reports the page dead. A page that is being written may have count 0: its
        only LPA comes again in the same run."""
        cdef uint32_t n = self.get(ppa), lpa
        if n == 0:
            return 0
        if n == COUNT_MOST and self.over_n:  # there may be more than can be counted
            n = 1
            for lpa in range(self.lpas):
                n += self.at(lpa) == ppa
            self.over_n -= n > COUNT_MOST
        if n > 1:
            self.put(ppa, min(<uint32_t> COUNT_MOST, n - 1))
        return n - 1

    cdef uint64_t extra(self) noexcept nogil:
        """References beyond the first of each page."""
        cdef uint64_t i = 0, n = self.over_n, bytes = self.pages_n // 2 + 1
        cdef uint8_t low, high
        while i < bytes:
            if self.nibbles[i] == 0:
                i += zeros_from(self.nibbles + i, bytes - i)
                continue
            low = self.nibbles[i] & COUNT_MOST
            high = self.nibbles[i] >> 4
            n += low - (low != 0) + high - (high != 0)
            i += 1
        return n

    cdef uint32_t next_lpa(self, uint32_t lpa) noexcept nogil:
        """The first LPA from ``lpa`` on that is mapped, or the number of LPAs."""
        if lpa < self.lpas and self.table[lpa] == 0:
            lpa += <uint32_t> (zeros_from(self.table + lpa, <uint64_t> (self.lpas - lpa) * 4) // 4)
        return lpa

    def recount(self):
        """Count the references in the page table. A device never puts more LPAs at a page than can be counted; but if
        the only checkpoint is lost, and its trims with it, there may be more (``over_n``)."""
        cdef uint32_t lpa, ppa, next = self.next_lpa(0)
        cdef uint32_t[::1] live = memoryview(bytearray(4 * self.ssd.nand.blocks)).cast("I")
        zero_memory(self.nibbles, self.pages_n // 2 + 1)
        self.over_n = 0
        self.shared = False
        with nogil:
            while next < self.lpas:
                lpa = next
                next = self.next_lpa(lpa + 1)
                if lpa + AHEAD < self.lpas and self.at(lpa + AHEAD) < self.pages_n:
                    prefetch(self.nibbles + (self.at(lpa + AHEAD) >> 1), 1)
                ppa = self.at(lpa)
                if ppa >= self.pages_n:
                    continue
                if self.get(ppa) == 0:
                    live[self.block_of(ppa)] += 1
                else:
                    self.shared = True
                if self.get(ppa) < COUNT_MOST:
                    self.put(ppa, self.get(ppa) + 1)
                else:
                    self.over_n += 1
            for ppa in range(self.ssd.nand.blocks):
                self.victims.set_count(ppa, live[ppa])

    @staticmethod
    def section_bytes(geometry):
        """{section: bytes} of a checkpoint: none."""
        return {}

    def save(self):
        return {}

    def load(self, sections):
        self.victims.clear()
        self.recount()

    def reset(self):
        zero_memory(self.nibbles, self.pages_n // 2 + 1)
        self.over_n = 0
        self.victims.clear()

    def tables(self):
        return {"rc_table": ((self.pages_n + 1) // 2, self.pages_n // 2 + 1)}

    def count_of(self, uint32_t ppa):
        """The number of LPAs at that page."""
        if ppa >= self.pages_n:
            raise ValueError(f"PPA {ppa}: the chip has {self.pages_n} pages")
        return self.get(ppa)

    def histogram(self):
        """How many pages have each number of references, 0 to 15."""
        cdef uint64_t[16] n
        cdef uint64_t ppa, met = 0
        memset(n, 0, sizeof(n))
        with nogil:
            ppa = self.next_counted(0)
            while ppa < self.pages_n:
                n[self.get(<uint32_t> ppa)] += 1
                met += 1
                ppa = self.next_counted(ppa + 1)
        n[0] += self.pages_n - met
        return [n[i] for i in range(16)]

    cdef uint64_t next_counted(self, uint64_t ppa) noexcept nogil:
        """The first page from ``ppa`` on that may have a reference, or the number of pages."""
        if ppa & 1 or ppa >= self.pages_n or self.nibbles[ppa >> 1]:
            return ppa
        return min(ppa + 2 * zeros_from(self.nibbles + (ppa >> 1), (self.pages_n + 1 - ppa) // 2), self.pages_n)

    def check(self):
        """The count of each page is its number of LPAs, and that of each block its pages with references."""
        cdef uint32_t lpa = self.next_lpa(0), block
        cdef uint64_t ppa
        cdef uint8_t[::1] n = np.zeros(self.pages_n, np.uint8)  # of blank pages it takes no memory of the host
        cdef uint32_t[::1] live = np.zeros(self.ssd.nand.blocks, np.uint32)
        problems = []
        while lpa < self.lpas:
            if self.at(lpa) < self.pages_n:
                n[self.at(lpa)] = min(255, n[self.at(lpa)] + 1)
            lpa = self.next_lpa(lpa + 1)
        for _, ppa in self.ssd.owned_pages():
            n[ppa] = min(255, n[ppa] + 1)
        ppa = self.next_of_either(n, 0)
        while ppa < self.pages_n:
            if min(n[ppa], <uint8_t> COUNT_MOST) != self.get(<uint32_t> ppa):
                problems.append(f"PPA {ppa}: {self.get(<uint32_t> ppa)} references counted, {n[ppa]} LPAs are there")
            live[self.block_of(<uint32_t> ppa)] += self.get(<uint32_t> ppa) != 0
            ppa = self.next_of_either(n, ppa + 1)
        for block in range(self.ssd.nand.blocks):
            if live[block] != self.victims.valid[block]:
                problems.append(f"block {block}: BVC {self.victims.valid[block]} but {live[block]} pages with "
                                "references")
        return problems

    cdef uint64_t next_of_either(self, const uint8_t[::1] n, uint64_t ppa) noexcept:
        """The first page from ``ppa`` on that has a count here or in ``n``, or the number of pages."""
        cdef uint64_t counted = self.next_counted(ppa)
        if ppa >= counted:
            return ppa
        return min(counted, ppa + zeros_from(&n[ppa], self.pages_n - ppa))
