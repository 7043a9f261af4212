# distutils: language = c++
# cython: wraparound=True
"""A page validity log (PVL) in flash pages: the validity store of IB-FTL, with the cleaning that GeckoFTL's Appendix E
gives it (N. Dayan et al., GeckoFTL, SIGMOD 2016; P.-C. Huang et al., IB-FTL, TODAES 2013).

The log says which pages died, in entries of 12 bytes: {PPA, erase clock, position of the previous entry of the same
block}. So the entries of a block are a chain, whose head is in DRAM, 4 bytes per block. A query reads the log's pages
along the chain, from the newest on, and stops when it has found as many dead pages as the block has. A *position* is
the number of a log page times the entries of a page, plus the index in the page.

When a block is given up its head is cleared, and its entries no longer count. When it is opened again its *stamp*, 4
bytes in DRAM too, is set to the erase clock, which is the block's order modulo 2^32: so each of its pages says it. An
entry counts if its clock is not below its block's stamp. A block that is logged anew without an erase gets a stamp
beyond all entries so far, and the clock is ahead of orders for a while; so does one that is given up. Of two clocks
the lower is the one from which the other is reached in fewer than 2^31 steps: no entry is so old, and a stamp that is
FAR behind the clock follows it.

Reports wait in DRAM; when there is no room for more, a page of them is programmed, sorted by PPA, so that those of one
block lie together. If the log then has more than X entries, X twice what the chip has beyond the logical pages, its
oldest page is *reclaimed*: entries that count become reports again, the others are dropped. A chain ends where it leads
into a reclaimed page, since everything beyond was logged again later.

A page is live if it was programmed since its block was opened, and is not in the log. ``tops``, 2 bytes per block, says
how far that is; pages below it that never lived are logged as dead. If a page that was logged lives again (after a
failed checkpoint, or a move that a recovery undid), its block is logged anew, under a new stamp.

A checkpoint takes heads, stamps, tops, counts, the directory and the waiting reports. A recovery reads the whole log;
blocks in which it found changes are logged anew. If a page of the log cannot be read, everything is logged anew, from
the mapping. fenced_log.pyx has the recovery from fences, without such a checkpoint.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from flashfs.engine.arrays cimport array_u16, array_u32
from flashfs.parts.validity.flash_validity cimport FlashValidity
from flashfs.engine.contract.engine cimport IN_TABLE, Engine
from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.blocks.victims cimport gained

import struct

import numpy

from flashfs.engine.blocks.pool import STREAM_BYTES
from flashfs.errors import BindError

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil

cdef enum:
    RUN = 256                # pages that a request binds at once, at most
    SPARE = 16               # room for reports that were not announced: a mapping that rebuilds its own pages
    RECLAIMED = 2            # log pages reclaimed for each one programmed, at most, while numbers are free


def entries_a_page(geometry):
    """Entries of a page of the log."""
    return geometry.page_bytes // ENTRY


def most_entries(pages, lpas, share=200):
    """X: ``share`` per cent of the pages that the chip has beyond the logical ones."""
    return max(1, share * (pages - lpas) // 100)


def log_slots(geometry):
    """How many numbers for log pages: enough for an entry of each page of the chip, and a quarter more, and 16 for
    pages in progress."""
    pages = geometry.blocks * geometry.pages_per_block
    return -(-5 * pages // (4 * entries_a_page(geometry))) + 16


def reports_at_once(geometry):
    """Reports of a run or a move for which room is made: fewer if pages are small, since a checkpoint holds them."""
    return max(min(3 * RUN, geometry.page_bytes // 5), 2 * geometry.pages_per_block)


def room_for_reports(geometry):
    """The most reports that can wait: a page of them, those that were announced, and others: of a reclaimed log page,
    of a block logged anew, of pages that were programmed and never lived."""
    return reports_at_once(geometry) + 2 * entries_a_page(geometry) + 2 * geometry.pages_per_block + SPARE


cdef class ValidityLog(FlashValidity):
    """The log of a chip, with at most ``share`` per cent as many entries as the chip has spare pages. BindError if a
    page is too small for an entry."""

    def __cinit__(self, Engine ssd, *, uint32_t share=200):
        cdef uint32_t blocks = ssd.nand.blocks
        if entries_a_page(ssd.nand) == 0:
            raise BindError(f"a validity log needs pages of {ENTRY} bytes")
        self.per_page = entries_a_page(ssd.nand)
        self.slots = log_slots(ssd.nand)
        self.entries_most = most_entries(ssd.nand.blocks * ssd.nand.pages_per_block, ssd.lpas, share)
        self.pages_most = min((self.entries_most + self.per_page - 1) // self.per_page + 1, self.slots - 2 * FREE_SLOTS)
        self.set_up(self.slots, room_for_reports(ssd.nand), blocks)
        self.log_spare = SPARE + 2 * self.pages_per_block + self.per_page
        self.announced_most = reports_at_once(ssd.nand)
        ssd.keep_free((blocks + self.per_page - 1) // self.per_page)  # every page of the chip may be logged anew
        ssd.keep_pages(2 * self.pages_most)  # the newest version of each, and the last checkpoint's
        ssd.reserve_for(2)                  # a cleaned block's pages go to one stream or the other
        self.heads = <uint32_t*> malloc(<uint64_t> blocks * 4)
        self.stamps = <uint32_t*> malloc(<uint64_t> blocks * 4)
        self.tops = <uint16_t*> malloc(<uint64_t> blocks * 2)
        self.read_image = <uint8_t*> malloc(self.page_bytes)
        self.write_image = <uint8_t*> malloc(self.page_bytes)
        if not (self.heads and self.stamps and self.tops and self.read_image and self.write_image):
            raise MemoryError
        self.clear_blocks()

    def __dealloc__(self):
        free(self.heads)
        free(self.stamps)
        free(self.tops)
        free(self.read_image)
        free(self.write_image)

    def clear_blocks(self):
        """Forgets all blocks, and the log."""
        memset(self.heads, 0xFF, <uint64_t> self.ssd.nand.blocks * 4)
        memset(self.stamps, 0, <uint64_t> self.ssd.nand.blocks * 4)
        memset(self.tops, 0, <uint64_t> self.ssd.nand.blocks * 2)
        self.first_n = self.next_n = 0
        self.time = 0

    # --- pages of the log

    cdef uint64_t number_of(self, uint32_t slot) noexcept nogil:
        """The page of the log that has that number now; 2^64 - 1 if there is none."""
        cdef uint64_t behind = (self.next_n + self.slots - 1 - slot) % self.slots
        return self.next_n - 1 - behind if behind < self.next_n else <uint64_t> -1

    cdef const Logged* look(self, uint32_t slot) except? NULL nogil:
        """The entries of a page; NULL if it cannot be read. The page read last is cached."""
        if self.looked_of == slot and self.looked_ppa == self.directory.page_ppas[slot]:
            return self.looked
        self.looked_of = NONE
        if self.directory.page_ppas[slot] == NONE:
            return NULL
        self.looked = <const Logged*> self.pages_in_flash.see(self.directory.page_ppas[slot], slot, self.read_image)
        if self.looked != NULL:
            self.looked_of = slot
            self.looked_ppa = self.directory.page_ppas[slot]
        return self.looked

    cdef bint counts(self, const Logged* entry) noexcept nogil:
        """Whether the entry was made since its block was opened."""
        return (entry.ppa != NONE and self.block_of(entry.ppa) < self.ssd.nand.blocks
                and not self.is_below(entry.time, self.stamps[self.block_of(entry.ppa)]))

    cdef bint is_below(self, uint32_t clock, uint32_t other) noexcept nogil:
        """Of two clocks, modulo 2^32."""
        return <int32_t> (clock - other) < 0

    cdef int flush(self, uint32_t most) except -1 nogil:
        """Programs a page of reports, those of the lowest PPAs, at most ``most``; all of them must be of dead pages.
        Returns how many."""
        cdef Logged* entries = <Logged*> self.write_image
        cdef uint32_t n = min(min(self.log_n, most), self.per_page), i, block, last = NONE
        cdef uint32_t slot = <uint32_t> (self.next_n % self.slots)
        memset(self.write_image, 0xFF, self.page_bytes)
        for i in range(n):
            block = self.block_of(<uint32_t> (self.log[i] >> 1))
            entries[i].ppa = <uint32_t> (self.log[i] >> 1)
            entries[i].time = self.time
            entries[i].before = slot * self.per_page + i - 1 if block == last else self.heads[block]
            last = block
        if self.page_bytes - self.per_page * ENTRY >= 4:
            (<uint32_t*> (self.write_image + self.page_bytes - 4))[0] = <uint32_t> (self.next_n + 1 - self.first_n)
        self.program(slot, self.write_image)
        self.next_n += 1
        for i in range(n):                  # opening a block for that page may have dropped reports of the block
            if self.counts(entries + i):
                self.heads[self.block_of(entries[i].ppa)] = slot * self.per_page + i
        self.take_out(entries, n)
        self.flushes += 1
        self.logged += n
        return n

    cdef int take_out(self, const Logged* entries, uint32_t n) noexcept nogil:
        """Removes the reports of these entries, ascending, which are in flash now."""
        cdef uint32_t i, k = 0, kept = 0
        for i in range(self.log_n):
            while k < n and entries[k].ppa < self.log[i] >> 1:
                k += 1
            if k == n or self.log[i] != <uint64_t> entries[k].ppa << 1:
                self.log[kept] = self.log[i]
                kept += 1
        self.log_n = kept
        return 0

    cdef int reclaim(self) except -1 nogil:
        """Reclaims the oldest page: entries that count become waiting reports again."""
        cdef uint32_t slot = <uint32_t> (self.first_n % self.slots), i, block, at
        cdef const Logged* entries = self.look(slot)
        if entries == NULL:
            return self.rebuild()
        for i in range(self.per_page):
            if entries[i].ppa == NONE:
                continue
            if not self.counts(entries + i):
                self.discarded += 1
                continue
            block = self.block_of(entries[i].ppa)
            at = self.log_from(<uint64_t> entries[i].ppa << 1)
            if at == self.log_n or self.log[at] >> 1 != entries[i].ppa:  # else a newer report waits
                self.note(entries[i].ppa, False)
                self.reinserted += 1
            if self.heads[block] // self.per_page == slot:
                self.heads[block] = NONE
        return self.drop(slot)

    cdef int drop(self, uint32_t slot) except -1 nogil:
        """Removes the oldest page from the log."""
        cdef uint32_t old = self.directory.page_ppas[slot]
        cdef int before = self.ssd.stopped
        self.ssd.stopped = IN_TABLE
        self.directory.page_ppas[slot] = NONE
        self.directory.missing_n -= self.directory.missing[slot]
        self.directory.missing[slot] = 0
        self.first_n += 1
        if old != NONE:
            self.pages_in_flash.supersede(old)
        self.ssd.stopped = before
        return 0

    # --- blocks

    cdef int forget_block(self, uint32_t block, uint32_t stamp) noexcept nogil:
        """Forgets a block's reports, head and top: from now on its entries older than ``stamp`` do not count."""
        cdef uint32_t first = self.log_from(<uint64_t> block * self.pages_per_block << 1)
        cdef uint32_t end = self.log_from(<uint64_t> (block + 1) * self.pages_per_block << 1)
        memmove(self.log + first, self.log + end, (self.log_n - end) * 8)
        self.log_n -= end - first
        self.stamps[block] = stamp
        self.heads[block] = NONE
        self.tops[block] = 0
        return 0

    cdef uint32_t tick(self, uint32_t least) noexcept nogil:
        """Advances the erase clock beyond all entries so far, and at least to ``least``; returns it."""
        cdef uint32_t before = self.time
        self.time += 1
        if self.is_below(self.time, least):
            self.time = least
        if (before ^ self.time) // FAR:
            self.raise_stamps()
        return self.time

    cdef int raise_stamps(self) noexcept nogil:
        """Stamps of blocks that were opened long ago follow the clock, or they would be above it at last."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.is_below(self.stamps[block], self.time - FAR):
                self.stamps[block] = self.time - FAR
        return 0

    cdef int log_again(self, uint32_t block, const uint64_t* words, uint32_t stamp) except -1 nogil:
        """Sets the block's live pages to those of ``words``: reports of its dead ones wait to be logged under that
        stamp."""
        cdef uint32_t page, top = 0
        for page in range(self.pages_per_block):
            if words[page >> 6] >> (page & 63) & 1:
                top = page + 1
        self.forget_block(block, stamp)
        self.tops[block] = <uint16_t> top
        for page in range(top):
            if not words[page >> 6] >> (page & 63) & 1:
                self.note(block * self.pages_per_block + page, False)
        return 0

    cdef int revive(self) except -1 nogil:
        """Logs anew each block of which a report says that a dead page lives again."""
        cdef uint32_t i = 0, block
        while i < self.log_n:
            if self.log[i] & 1 and i and self.log_n + self.pages_per_block > self.log_room:
                self.flush(i)
                i = 0
                continue
            if self.log[i] & 1:
                block = self.block_of(<uint32_t> (self.log[i] >> 1))
                self.bitmap(block, self.words)
                if self.bits != NULL:
                    return 0                # the log could not be read: the next checkpoint rewrites it all
                self.log_again(block, self.words, self.tick(0))
                i = self.log_from(<uint64_t> block * self.pages_per_block << 1)
                while i < self.log_n and self.block_of(<uint32_t> (self.log[i] >> 1)) == block:
                    i += 1
                continue
            i += 1
        return 0

    # --- the validity store's interface

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        cdef int64_t start = self.ssd.map_ns
        cdef uint32_t more = 0
        n = min(n, self.announced_most)
        while self.room() < n:
            if may_clean:
                self.pages_in_flash.ensure(1)
                self.ssd.map_ns = start
                if self.room() >= n:
                    break
            self.revive()
            if self.bits != NULL:
                return n
            self.flush(self.per_page)
            more += RECLAIMED
        while self.bits == NULL and self.next_n - self.first_n > self.pages_most and (
                more or self.next_n - self.first_n + FREE_SLOTS >= self.slots):
            more -= more > 0
            self.reclaim()
            if self.room() < n:
                self.revive()
                if self.bits == NULL:
                    self.flush(self.per_page)
        return n

    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa), page = ppa % self.pages_per_block, below
        if self.bits != NULL:
            return self.put_bit(ppa, lives)
        if not lives or page < self.tops[block]:
            return self.note(ppa, lives)
        for below in range(self.tops[block], page):  # pages that were programmed and never lived
            self.note(ppa - page + below, False)
        self.tops[block] = <uint16_t> (page + 1)
        return True

    cdef int touch(self, uint32_t block) noexcept nogil:
        self.touched[block] = 1
        return 0

    cdef int opened(self, uint32_t block) except -1 nogil:
        return self.forget_block(block, self.tick(<uint32_t> self.ssd.pool.order[block]))

    cdef int released(self, uint32_t block) except -1 nogil:
        FlashValidity.released(self, block)
        return self.forget_block(block, self.time + 1)

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        cdef uint32_t page, dead
        if self.recovering and self.bits == NULL:
            self.pages_known()
        if self.bits == NULL and self.is_own(block):
            return self.own_bitmap(block, words)
        if self.bits == NULL:
            memset(words, 0, self.words_a_block * 8)
            if self.victims.valid[block] == 0:
                return 0
            for page in range(self.tops[block]):
                words[page >> 6] |= <uint64_t> 1 << (page & 63)
            dead = self.tops[block] - self.victims.valid[block]
            self.queries += 1
            self.walk(block, words, dead)
        if self.bits != NULL:               # in a recovery, or because the log could not be read
            memcpy(words, self.bits + <uint64_t> block * self.words_a_block, self.words_a_block * 8)
        return 0

    cdef int walk(self, uint32_t block, uint64_t* words, uint32_t dead) except -1 nogil:
        """Removes the block's dead pages from ``words``: those of waiting reports, then those of the chain, until
        ``dead`` are found. A link that does not lead backwards leads into a reclaimed page."""
        cdef uint32_t i = self.log_from(<uint64_t> block * self.pages_per_block << 1), page, found = 0
        cdef uint32_t at = self.heads[block], slot, first = i, behind = NONE
        cdef uint64_t end = <uint64_t> (block + 1) * self.pages_per_block, number, last = <uint64_t> -1
        cdef bint revived = False
        cdef const Logged* entries
        while i < self.log_n and self.log[i] >> 1 < end:
            page = <uint32_t> (self.log[i] >> 1) - block * self.pages_per_block
            if self.log[i] & 1:
                revived = True
            else:
                words[page >> 6] &= ~(<uint64_t> 1 << (page & 63))
                found += 1
            i += 1
        while at != NONE and (found < dead or revived):
            slot = at // self.per_page
            number = self.number_of(slot)
            if number < self.first_n or number > last or (number == last and at >= behind):
                break
            self.chain_reads += self.looked_of != slot
            entries = self.look(slot)
            if entries == NULL:
                return self.rebuild()
            entries += at % self.per_page
            if not self.counts(entries) or self.block_of(entries.ppa) != block:
                break
            page = entries.ppa - block * self.pages_per_block
            found += words[page >> 6] >> (page & 63) & 1
            words[page >> 6] &= ~(<uint64_t> 1 << (page & 63))
            last = number
            behind = at
            at = entries.before
        for i in range(first, i if revived else first):
            page = <uint32_t> (self.log[i] >> 1) - block * self.pages_per_block
            if self.log[i] & 1:
                words[page >> 6] |= <uint64_t> 1 << (page & 63)
        return 0

    # --- checkpoints

    cdef int checkpoint_begins(self) except -1:
        """Writes a recovery's changes to flash; waiting reports go with the checkpoint."""
        if self.bits != NULL:
            self.write_touched()
        return self.pages_in_flash.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.pages_in_flash.checkpoint_ended(whole)

    @staticmethod
    def section_bytes(geometry):
        """{section: most bytes} of a checkpoint; the pool's section names its stream."""
        return {"pvl": 24 + 4 * log_slots(geometry), "pvlheads": 4 * geometry.blocks, "pvlstamp": 4 * geometry.blocks,
                "pvltops": 2 * geometry.blocks, "bvc": 2 * geometry.blocks,
                "pvlwaits": 8 * room_for_reports(geometry), "stream": STREAM_BYTES}

    def save(self):
        """``pvl``: the oldest page of the log and the one after the newest, u64, the erase clock, u32, 0, u32, and the
        PPA of the page of each number, u32. ``pvlheads`` and ``pvlstamp``, u32 per block, ``pvltops`` and ``bvc``, u16
        per block (``bvc`` is 0 for the log's own). ``pvlwaits``: reports, u64 each, PPA << 1 | lives, ascending."""
        cdef uint32_t block, blocks = self.ssd.nand.blocks
        counts = numpy.zeros(blocks, "<u2")
        for block in range(blocks):
            counts[block] = 0 if self.is_own(block) else self.victims.valid[block]
        return {
            "pvl": struct.pack("<QQII", self.first_n, self.next_n, self.time, 0)
            + array_u32(self.directory.page_ppas, self.slots).tobytes(),
            "pvlheads": array_u32(self.heads, blocks).tobytes(),
            "pvlstamp": array_u32(self.stamps, blocks).tobytes(),
            "pvltops": array_u16(self.tops, blocks).tobytes(),
            "bvc": counts.tobytes(),
            "pvlwaits": struct.pack(f"<{self.log_n}Q", *(self.log[i] for i in range(self.log_n))),
        }

    def load(self, sections):
        """The inverse; ValueError if a section is impossible. No page is read: a clean mount needs none."""
        cdef uint32_t block, i, ppa, blocks = self.ssd.nand.blocks, pages = blocks * self.pages_per_block
        if len(sections["pvl"]) != 24 + 4 * self.slots:
            raise ValueError(f"pvl section of {len(sections['pvl'])} bytes: {24 + 4 * self.slots} are needed")
        first, behind, time, _ = struct.unpack_from("<QQII", sections["pvl"])
        page_ppas = numpy.frombuffer(sections["pvl"], "<u4", offset=24)
        parts = {name: numpy.frombuffer(sections[name], size) for name, size in
                 (("pvlheads", "<u4"), ("pvlstamp", "<u4"), ("pvltops", "<u2"), ("bvc", "<u2"), ("pvlwaits", "<u8"))}
        log = parts.pop("pvlwaits")
        named = page_ppas[page_ppas != NONE]
        if any(len(part) != blocks for part in parts.values()) or len(log) > self.log_room:
            raise ValueError(f"pvl sections of {[len(part) for part in parts.values()]} blocks, {len(log)} reports: "
                             f"{blocks}, and {self.log_room} at most, are needed")
        if not first <= behind <= first + self.slots or len(named) > behind - first or behind >= 1 << 48:
            raise ValueError(f"pvl section: pages {first} to {behind}, and {len(named)} are said to be somewhere")
        if (len(named) and int(named.max()) >= pages) or len(numpy.unique(named)) != len(named):
            raise ValueError("pvl section: two pages at one PPA, or one beyond the chip")
        if int(parts["pvltops"].max()) > self.pages_per_block or (parts["bvc"] > parts["pvltops"]).any():
            raise ValueError("pvltops or bvc section: more than a block has")
        heads = parts["pvlheads"][parts["pvlheads"] != NONE]
        if len(heads) and int(heads.max()) >= self.slots * self.per_page:
            raise ValueError("pvlheads section: a position that there is not")
        ppas = log >> numpy.uint64(1)
        if len(log) and (int(ppas.max()) >= pages or (ppas[1:] <= ppas[:-1]).any()):
            raise ValueError("pvlwaits section: its PPAs do not ascend, or are beyond the chip")
        self.reset()
        self.first_n, self.next_n, self.time = first, behind, time
        array_u32(self.heads, blocks)[:] = parts["pvlheads"]
        array_u32(self.stamps, blocks)[:] = parts["pvlstamp"]
        for block in range(blocks):         # as earlier versions wrote it for blocks that were given up
            if self.stamps[block] == NONE:
                self.stamps[block] = self.time + 1
        array_u16(self.tops, blocks)[:] = parts["pvltops"]
        for block in range(blocks):
            self.victims.set_count(block, int(parts["bvc"][block]))
            if parts["bvc"][block] == 0:    # it may have been opened again since; a scan does not show when
                self.tops[block] = 0
        for i in range(self.slots):
            ppa = page_ppas[i]
            self.directory.page_ppas[i] = ppa
            if ppa != NONE:
                gained(self.victims, self.block_of(ppa), 1)
        for block in range(blocks):
            if self.victims.valid[block] > self.pages_per_block:
                raise ValueError(f"block {block}: {self.victims.valid[block]} live pages")
        for i in range(<uint32_t> len(log)):
            self.log[i] = log[i]
        self.log_n = <uint32_t> len(log)

    def reset(self):
        """Nothing is live."""
        self.end_bits()
        self.victims.clear()
        memset(self.directory.page_ppas, 0xFF, self.directory.n * 4)
        memset(self.directory.missing, 0, self.directory.n)
        self.directory.missing_n = 0
        self.spoilt = False
        memset(self.forgotten, 0, self.ssd.nand.blocks)
        self.clear_blocks()
        self.log_n = 0
        self.looked_of = NONE
        self.pages_in_flash.reset()
        self.recovering = True

    # --- recovery

    def recovery_steps(self):
        return (("pvl", "scan", "read the validity log as the checkpoint left it", self.recovery_reads),)

    def recovery_reads(self):
        before = self.pages_in_flash.reads
        self.pages_known()
        return f"{self.pages_in_flash.reads - before} pages"

    cdef int fill(self) except -1 nogil:
        """Sets the bits of all pages below ``tops``, except those dead by the log or by waiting reports."""
        cdef uint32_t block, page, w, i
        cdef uint64_t number, n, bit
        cdef bint done = False
        self.filled = True                  # ``rebuild`` asks the mapping, which asks what lives
        try:
            for block in range(self.ssd.nand.blocks):
                for page in range(0 if self.forgotten[block] else self.tops[block]):
                    self.bits[<uint64_t> block * self.words_a_block + (page >> 6)] |= <uint64_t> 1 << (page & 63)
            for number in range(self.first_n, self.next_n):
                if not self.take_entries(<uint32_t> (number % self.slots)):
                    self.rebuild()
                    break
            else:
                for i in range(self.log_n):
                    block = self.block_of(<uint32_t> (self.log[i] >> 1))
                    bit = self.bit_of(<uint32_t> (self.log[i] >> 1))
                    if self.forgotten[block] or (self.log[i] >> 1) % self.pages_per_block >= self.tops[block]:
                        continue
                    if self.log[i] & 1:
                        self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
                        self.touched[block] = 1
                    else:
                        self.bits[bit >> 6] &= ~(<uint64_t> 1 << (bit & 63))
            done = True
        finally:
            self.filled = done
        for block in range(self.ssd.nand.blocks):
            n = 0
            for w in range(self.words_a_block):
                n += popcount64(self.bits[<uint64_t> block * self.words_a_block + w])
            self.victims.set_count(block, <uint32_t> n)
        return 0

    cdef int take_entries(self, uint32_t slot) except -1 nogil:
        """Clears the bits of the dead pages in one page of the log; returns 0 if it cannot be read."""
        cdef uint32_t i, block
        cdef uint64_t bit
        cdef const Logged* entries = self.look(slot)
        if entries == NULL:
            return 0
        for i in range(self.per_page):
            if not self.counts(entries + i):
                continue
            block = self.block_of(entries[i].ppa)
            bit = self.bit_of(entries[i].ppa)
            if not self.forgotten[block] and entries[i].ppa % self.pages_per_block < self.tops[block]:
                self.bits[bit >> 6] &= ~(<uint64_t> 1 << (bit & 63))
        return 1

    cdef int rebuild(self) except -1 nogil:
        """A page of the log cannot be read: the live pages are those that the mapping and the owners of other pages
        name. All of the log is rewritten before the next checkpoint, and until then the bitmap is in DRAM."""
        cdef uint32_t lpa, ppa = NONE, block, w
        cdef uint64_t bit, n
        self.begin_bits()
        self.filled = True
        if not self.recovering:
            memset(self.forgotten, 0, self.ssd.nand.blocks)
        for block in range(self.ssd.nand.blocks):
            if not self.forgotten[block]:
                memset(self.bits + <uint64_t> block * self.words_a_block, 0, self.words_a_block * 8)
        self.spoilt = True
        self.rebuilds += 1
        with gil:                           # before the mapping asks which of them live
            for at in self.ssd.mapping.pages_of_lost():
                ppa = at
                if not self.forgotten[self.block_of(ppa)]:
                    bit = self.bit_of(ppa)
                    self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
        for lpa in range(self.ssd.lpas):
            self.ssd.mapping.peek(&lpa, 1, &ppa)
            if ppa != NONE and not self.forgotten[self.block_of(ppa)]:
                bit = self.bit_of(ppa)
                self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
        with gil:
            for _, at in self.ssd.owned_pages():
                ppa = at
                if not self.forgotten[self.block_of(ppa)]:
                    bit = self.bit_of(ppa)
                    self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
        for block in range(self.ssd.nand.blocks):
            self.touched[block] = 1
            n = 0
            for w in range(self.words_a_block):
                n += popcount64(self.bits[<uint64_t> block * self.words_a_block + w])
            self.victims.set_count(block, <uint32_t> n)
        return 0

    cdef int write_touched(self) except -1:
        """Logs the changed blocks anew, then frees the bitmap. If this is cut anywhere, the next recovery does it again
        from the checkpoint."""
        cdef uint32_t block, stamp = self.tick(0)
        if not self.spoilt and not self.has_numbers():
            if not self.filled:
                self.fill()
            memset(self.touched, 1, self.ssd.nand.blocks)
            self.spoilt = True
        if self.spoilt:
            while self.first_n < self.next_n:
                self.drop(<uint32_t> (self.first_n % self.slots))
            self.spoilt = False
        for block in range(self.ssd.nand.blocks):
            if self.touched[block]:         # before any report goes to flash: some may say that a page lives
                self.forget_block(block, stamp)
        for block in range(self.ssd.nand.blocks):
            if not self.touched[block] or self.is_own(block):
                continue
            while self.log_n + self.pages_per_block > self.log_room - self.log_spare:
                self.flush(self.per_page)
            self.log_again(block, self.bits + <uint64_t> block * self.words_a_block, stamp)
        return self.end_bits()

    cdef bint has_numbers(self) noexcept nogil:
        """Whether there are enough numbers for the pages of the log, the waiting reports, and what must be logged anew:
        nothing is reclaimed meanwhile. If not, the whole log is rewritten."""
        cdef uint32_t block
        cdef uint64_t entries = self.log_n
        for block in range(self.ssd.nand.blocks):
            if self.touched[block]:
                entries += self.tops[block] - min(<uint32_t> self.tops[block], self.victims.valid[block])
        return self.next_n - self.first_n + entries // self.per_page + 2 * FREE_SLOTS <= self.slots

    # --- for users

    def chain(self, uint32_t block):
        """The log's entries of a block, the newest first: {"position", "page" (of the block), "clock"}; waiting reports
        have no position."""
        cdef uint32_t at = self.heads[block], slot
        cdef uint64_t number, last = <uint64_t> -1
        cdef const Logged* entries
        out = [{"position": None, "page": int(report >> 1) % self.pages_per_block, "clock": None}
               for report in [self.log[i] for i in range(self.log_n)]
               if int(report >> 1) // self.pages_per_block == block]
        while at != NONE:
            slot = at // self.per_page
            number = self.number_of(slot)
            entries = self.look(slot) if self.first_n <= number <= last else NULL
            if entries == NULL or not self.counts(entries + at % self.per_page):
                break
            entries += at % self.per_page
            if self.block_of(entries.ppa) != block or (number == last and at >= out[-1]["position"]):
                break
            out.append({"position": at, "page": entries.ppa % self.pages_per_block, "clock": entries.time})
            last = number
            at = entries.before
        return out

    def problems_in_flash(self):
        """A line for each page of the log that cannot be read."""
        cdef uint32_t slot, ppa
        problems = []
        self.looked_of = NONE
        for slot in range(self.slots):
            ppa = self.directory.page_ppas[slot]
            if ppa != NONE and not self.pages_in_flash.read(ppa, slot, self.read_image):
                problems.append(f"PPA {ppa}: page {slot} of the validity log cannot be read")
        return problems

    def tables(self):
        blocks = self.ssd.nand.blocks
        packed, allocated = self.pages_in_flash.tables()
        waits = 8 * self.log_room + 2 * self.page_bytes
        bits = 0 if self.bits == NULL else blocks * self.words_a_block * 8
        return {
            "pvl_heads": (4 * blocks, 4 * blocks),
            "pvl_stamps": (4 * blocks, 4 * blocks),
            "pvl_tops": (2 * blocks, 2 * blocks),
            "pvl_buffer": (waits + bits, waits + bits + 2 * blocks),
            "pvl_directory": (4 * self.slots + packed, 5 * self.slots + allocated),
        }

    def figures(self):
        return {
            "log_pages": self.next_n - self.first_n,
            "log_pages_most": self.pages_most,
            "log_waits": self.log_n,
            "log_reads": self.pages_in_flash.reads,
            "log_programs": self.pages_in_flash.programs,
            "log_entries": self.logged,
            "log_reinserted": self.reinserted,
            "log_discarded": self.discarded,
            "log_queries": self.queries,
            "log_rebuilds": self.rebuilds,
        }

    def forget_counts(self):
        self.flushes = self.logged = self.reinserted = self.discarded = 0
        self.rebuilds = self.chain_reads = self.queries = 0
        self.pages_in_flash.forget_counts()
