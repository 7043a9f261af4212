# distutils: language = c++
# cython: wraparound=True
"""A page validity log that needs no checkpoint of itself: after a crash it is rebuilt from its pages, and compared with
what the mapping names (rebuild.pyx).

The paper says that the log is scanned (N. Dayan et al., GeckoFTL, SIGMOD 2016, 5.3), but not what becomes of reports
that waited in DRAM. Stamps are the orders of blocks, which each of their pages says; the last four bytes of a log page
say how long the log was. The mapping says which pages live, block by block: a block keeps its chain if the log agrees.
"""
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport NONE
from flashfs.parts.validity.validity_log cimport ENTRY, FAR, FREE_SLOTS, Logged, ValidityLog

import struct

import numpy

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil


cdef class FencedLog(ValidityLog):
    """As ValidityLog, but set from the mapping after a recovery from pages."""

    def __cinit__(self, *_, **__):
        self.by_map = True

    def load(self, sections):
        super().load(sections)
        self.unread = "pvlunread" in sections

    def reset(self):
        super().reset()
        self.unread = False

    def recovery_reads(self):
        return "later, when it is known what lives" if self.unread else super().recovery_reads()

    cdef int fill(self) except -1 nogil:
        return self.fill_up() if self.unread else ValidityLog.fill(self)

    cdef int fill_up(self) except -1 nogil:
        """Takes all pages below ``tops`` for live until it is known which are."""
        cdef uint32_t block, page
        for block in range(self.ssd.nand.blocks):
            for page in range(0 if self.forgotten[block] else self.tops[block]):
                self.bits[<uint64_t> block * self.words_a_block + (page >> 6)] |= <uint64_t> 1 << (page & 63)
        self.filled = True
        return 0

    def base_from_pages(self, versions, last):
        """Finds the log's pages by their spare areas: from the newest back, as long as numbers and sequence numbers
        descend. Some may have been reclaimed."""
        newest = {}
        for slot, seq, ppa in zip(*(array.tolist() for array in versions), strict=True):
            newest[slot] = (seq, ppa)       # by number, the oldest first
        page_ppas = numpy.full(self.slots, NONE, "<u4")
        start = at = max(newest, key=lambda slot: newest[slot][0], default=0)
        n, before = 0, 1 << 48
        most = self.said_length(start, newest[start][1]) if newest else 0
        while at in newest and newest[at][0] < before and n < most:
            before, page_ppas[at] = newest[at]
            n += 1
            at = (at - 1) % self.slots
        end = start + 1 + self.slots if n else 0
        return {"pvl": struct.pack("<QQII", end - n, end, 0, 0) + page_ppas.tobytes()}, 0, f"{n} pages of the log"

    def said_length(self, slot, ppa):
        """How many pages the log had when that one was programmed; the most it can have, if the page does not say."""
        cdef uint32_t most = self.slots - FREE_SLOTS
        self.looked_of = NONE
        if self.page_bytes - self.per_page * ENTRY < 4 or not self.pages_in_flash.read(ppa, slot, self.read_image):
            return most
        return min(most, (<uint32_t*> (self.read_image + self.page_bytes - 4))[0])

    def counts_from_pages(self, sections, ends):
        """All programmed pages count as live; heads and stamps are found when the log is read."""
        blocks = self.ssd.nand.blocks
        pages = numpy.asarray(ends).astype("<u2").tobytes()
        return {"pvlheads": numpy.full(blocks, NONE, "<u4").tobytes(), "pvlstamp": bytes(4 * blocks), "pvltops": pages,
                "bvc": pages, "pvlwaits": b"", "pvlunread": b"1"}

    def take_named(self, bits):
        """Reads the whole log, and links its chains again. A block keeps its chain if the log agrees with the mapping,
        with each page once and in one chain. The others are logged anew: some of their reports waited in DRAM, or are
        from before an erase."""
        cdef uint64_t[::1] named = bits
        cdef uint64_t newest = 0
        cdef uint32_t block
        before = self.pages_in_flash.reads
        for block in range(self.ssd.nand.blocks):
            newest = max(newest, self.ssd.pool.order[block])
        self.time = <uint32_t> newest
        for block in range(self.ssd.nand.blocks):
            self.stamps[block] = <uint32_t> max(self.ssd.pool.order[block], newest - min(newest, <uint64_t> FAR))
        self.begin_bits()
        self.filled = True
        self.unread = False
        dead = numpy.zeros(self.ssd.nand.blocks * self.words_a_block, numpy.uint64)
        self.spoilt = not self.lead_chains(dead)
        memcpy(self.bits, &named[0], <uint64_t> self.ssd.nand.blocks * self.words_a_block * 8)
        for ppa in self.live_own():
            self.bits[self.bit_of(ppa) >> 6] |= <uint64_t> 1 << (self.bit_of(ppa) & 63)
        n = self.hold_against(dead)
        if not self.has_numbers():
            self.spoilt = True
            n = self.hold_against(dead)
        return f"; the log's {self.pages_in_flash.reads - before} pages, {n} blocks to be logged anew"

    def live_own(self):
        """PPAs of the log's own pages."""
        return [ppa for ppa in self.page_ppas() if ppa is not None]

    cdef bint lead_chains(self, uint64_t[::1] dead) except -1:
        """Finds ``heads``, and in ``dead`` the pages that entries are about, from the oldest log page on. A block is
        ``touched`` if a page has two entries, or its chain misses one. False if a log page cannot be read."""
        cdef uint64_t number, bit
        cdef uint32_t i, slot, block
        cdef const Logged* entries
        memset(self.touched, 0, self.touched_n)
        for number in range(self.first_n, self.next_n):
            slot = <uint32_t> (number % self.slots)
            entries = self.look(slot)
            if entries == NULL:
                return False
            for i in range(self.per_page):
                block = self.block_of(entries[i].ppa)
                if not self.counts(entries + i):
                    continue
                if self.is_below(self.time, entries[i].time):
                    self.time = entries[i].time
                bit = self.bit_of(entries[i].ppa)
                if dead[bit >> 6] >> (bit & 63) & 1 or not self.leads_on(block, entries[i].before):
                    self.touched[block] = 1
                dead[bit >> 6] |= <uint64_t> 1 << (bit & 63)
                self.heads[block] = slot * self.per_page + i
        return True

    cdef bint leads_on(self, uint32_t block, uint32_t before) noexcept nogil:
        """Whether a link leads to the block's head; if it has none, out of the log."""
        cdef uint64_t number
        if self.heads[block] != NONE or before == NONE:
            return self.heads[block] == before
        number = self.number_of(before // self.per_page)
        return number < self.first_n or number >= self.next_n

    cdef uint32_t hold_against(self, const uint64_t[::1] dead) except? 0xFFFFFFFF:
        """Compares the log's dead pages with those that do not live. Returns how many blocks must be logged anew."""
        cdef uint32_t block, w, page, top, live, anew = 0
        cdef uint64_t* words
        cdef const uint64_t* died
        for block in range(self.ssd.nand.blocks):
            words = self.bits + <uint64_t> block * self.words_a_block
            died = &dead[<uint64_t> block * self.words_a_block]
            live = top = 0
            for page in range(self.pages_per_block):
                if words[page >> 6] >> (page & 63) & 1:
                    live += 1
                if (words[page >> 6] | died[page >> 6]) >> (page & 63) & 1:
                    top = page + 1
            if live == 0 or self.is_own(block):
                self.forget_block(block, self.time + 1)
                self.touched[block] = 0
            else:
                self.tops[block] = <uint16_t> top
                for w in range(self.words_a_block):
                    live += popcount64(died[w])
                    self.touched[block] |= self.spoilt or words[w] & died[w] != 0
                self.touched[block] |= live != top
                live = self.count_bits(words)
            anew += self.touched[block]
            self.victims.set_count(block, live)
        return anew

    cdef uint32_t count_bits(self, const uint64_t* words) noexcept nogil:
        cdef uint32_t w, n = 0
        for w in range(self.words_a_block):
            n += popcount64(words[w])
        return n
