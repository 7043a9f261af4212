# distutils: language = c++
"""Logarithmic Gecko as a validity store: what is in DRAM, in a checkpoint, and how it is recovered.

Gecko stores the invalid pages of blocks of user pages. A page is live if it is not invalid and was programmed;
``partial`` has the number of programmed pages of each block that is not full. Blocks of metadata (translation pages,
and Gecko's own) are not in Gecko: their directories say which of their pages live, and a bitmap for each such block
repeats that here. They are one block in a thousand.

A checkpoint takes the run directories, the buffer and the counts. A recovery starts from those runs; the blocks whose
pages it changes have their bitmaps in DRAM until its own checkpoint, which writes all of that in one merge. If a page
of a run cannot be read, all runs are rebuilt from the mapping, for the content of that page is unknown.
"""
from cython.operator cimport dereference, preincrement
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from libcpp.unordered_map cimport unordered_map

from flashfs.parts.paged.cpp_map cimport assign
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport NONE, STATE_BAD, STATE_CLOSED, STATE_OPEN, STREAM_MAP, STREAM_META
from flashfs.engine.blocks.victims cimport gained, lost_one
from flashfs.ftl.geckoftl.entries cimport KEY_BYTES, EntryList
from flashfs.ftl.geckoftl.gecko cimport Gecko
from flashfs.ftl.geckoftl.runs cimport UNANNOUNCED, Run

import struct

import numpy

from flashfs.engine.blocks.pool import STREAM_BYTES
from flashfs.errors import MapLostError
from flashfs.ftl.geckoftl.entries import parts_for
from flashfs.ftl.geckoftl.runs import entries_a_page, page_numbers

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil

cdef enum:                   # GeckoStore.told
    UNTOLD = 0
    OF_USER = 1
    OF_METADATA = 2
    SINGLE_REPORTS = 8       # of pages in blocks of their own, beside those of a block's move

RUN_HEAD = struct.Struct("<QII")  #: number, pages, pages with entries; u32 slot, number and PPA of each page follow


def open_most(geometry):
    """The most blocks of user pages open at a checkpoint: those of the host and of cleaning, and one for wear."""
    return min(geometry.blocks, 2 * geometry.dies + 4)


cdef class GeckoStore(Validity):
    """``parts``, ``ratio``, ``multiway`` and ``entries`` (a page) are Gecko's; ``late``: the mapping reports superseded
    pages late. ``fenced``: as the mapping is."""

    def __cinit__(self, Engine ssd, bint late=False, *, uint32_t parts=0, uint32_t ratio=2, bint multiway=True,
                  uint32_t entries=0, bint fenced=False):
        self.in_flash = True
        self.late = late
        self.gecko = Gecko(ssd, parts, ratio, multiway, entries)
        self.gecko.store.lasting = fenced
        self.pages_per_block = ssd.nand.pages_per_block
        self.words_a_block = (self.pages_per_block + 63) // 64
        self.forgotten = <uint8_t*> calloc(ssd.nand.blocks, 1)
        self.told = <uint8_t*> calloc(ssd.nand.blocks, 1)
        self.answer = <uint64_t*> malloc(self.words_a_block * 8)
        if not (self.forgotten and self.told and self.answer):
            raise MemoryError
        self.asked = NONE
        ssd.keep_free((self.gecko.model_pages + self.gecko.model_pages // 16) // self.pages_per_block + 1)
        ssd.keep_pages(self.gecko.pages_most)
        ssd.reserve_for(2 + 2 * self.gecko.model_pages // self.pages_per_block)  # moved pages, and a merge

    def __dealloc__(self):
        cdef unordered_map[uint32_t, uint64_t*].iterator it = self.aside.begin()
        while it != self.aside.end():
            free(dereference(it).second)
            preincrement(it)
        self.clear_touched()
        free(self.forgotten)
        free(self.told)
        free(self.answer)

    # --- metadata, beside Gecko

    cdef bint is_aside(self, uint32_t block) noexcept nogil:
        cdef int stream = self.ssd.pool.stream[block]
        if self.told[block]:
            return self.told[block] == OF_METADATA
        return stream == STREAM_MAP or stream == STREAM_META or stream == self.gecko.store.stream

    cdef int put_aside(self, uint32_t block, uint32_t page, bint lives) except -1 nogil:
        """Mark a page of metadata as live or dead."""
        cdef uint64_t* words
        cdef uint64_t bit = <uint64_t> 1 << (page & 63)
        if self.aside.count(block) == 0:
            words = <uint64_t*> calloc(self.words_a_block, 8)
            if words == NULL:
                with gil:
                    raise MemoryError
            assign(self.aside, block, words)
        words = self.aside[block]
        if (words[page >> 6] & bit != 0) == lives:
            return 0
        words[page >> 6] ^= bit
        if lives:
            return gained(self.victims, block, 1)
        lost_one(self.victims, block)
        if self.victims.valid[block] == 0:
            self.drop_aside(block)
        return 0

    cdef int drop_aside(self, uint32_t block) noexcept nogil:
        if self.aside.count(block):
            free(self.aside[block])
            self.aside.erase(block)
        return 0

    # --- reports

    cdef uint32_t room(self) noexcept nogil:
        """Near the end of its page the buffer has room up to that end alone: an entry more would cost a page more. A
        block's move reports into few entries, so far from the end only what the buffer can hold at all counts."""
        cdef uint32_t most = self.gecko.buffer.room - UNANNOUNCED, left
        if self.recovering:
            return NONE
        if self.gecko.buffer.n >= self.gecko.per_page:
            return 0
        left = self.gecko.per_page - self.gecko.buffer.n
        if left <= min(self.gecko.per_page // 8, 2 * self.gecko.layout.parts + SINGLE_REPORTS):
            return left
        return most - min(most, self.gecko.buffer.n)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        if self.recovering:
            if self.lost:
                self.write_anew(may_clean)
            return n
        n = min(n, self.gecko.buffer.room - UNANNOUNCED - self.gecko.per_page)
        if self.room() < n:
            self.make_space(n, may_clean)
        return n

    cdef int write_buffer(self) except -1 nogil:
        """Write the buffer, however little it has. What a recovery found is not there, and is written when it ends."""
        return 0 if self.recovering or self.gecko.buffer.n == 0 else self.make_space(NONE, False)

    cdef int make_space(self, uint32_t n, bint may_clean) except -1 nogil:
        """Write the buffer. The caller does not wait for it to end: only the dies are busy."""
        cdef int64_t start = self.ssd.map_ns
        if may_clean:
            self.ssd.make_room()
            if self.room() >= n:
                self.ssd.map_ns = start
                return 0
        if self.partial.size() > 4 * self.ssd.pool.dies + 16:
            with gil:
                self.settle_partial()
        if not self.gecko.flush():
            with gil:
                self.rebuild()
        self.reports_kept()
        self.ssd.map_ns = start
        return self.write_anew(may_clean) if self.lost else 0

    cdef int write_anew(self, bint may_clean) except -1 nogil:
        """Write what was rebuilt from the mapping to flash."""
        if may_clean:
            self.ssd.make_room()
        with gil:
            self.commit_touched()
        return 0

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t block = ppa // self.pages_per_block, page = ppa % self.pages_per_block, i, new = 0, known
        cdef uint64_t* words
        self.asked = NONE
        if self.is_aside(block):
            for i in range(page, page + n):
                self.put_aside(block, i, True)
            return 0
        if self.recovering:
            words = self.touch(block)
            for i in range(page, page + n):
                new += not words[i >> 6] >> (i & 63) & 1
                words[i >> 6] |= <uint64_t> 1 << (i & 63)
            if self.lost and self.partial.count(block) and page + n > self.partial[block]:
                assign(self.partial, block, page + n)
            return gained(self.victims, block, new)
        known = self.partial[block] if self.partial.count(block) else self.pages_per_block
        if page < known:
            with gil:
                raise RuntimeError(f"PPA {ppa} comes to life, and its block had its page {known - 1} already")
        for i in range(known, page):       # programmed, and mapped by no LPA
            self.gecko.buffer.set_invalid(block, i)
        if page + n == self.pages_per_block:
            self.partial.erase(block)
        else:
            assign(self.partial, block, page + n)
        return gained(self.victims, block, n)

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i
        self.asked = NONE
        for i in range(n):
            if ppas[i] != NONE:
                self.invalid(ppas[i] // self.pages_per_block, ppas[i] % self.pages_per_block)
        return 0

    cdef int invalid(self, uint32_t block, uint32_t page) except -1 nogil:
        cdef uint64_t* words
        if self.is_aside(block):
            return self.put_aside(block, page, False)
        if self.recovering:
            words = self.touch(block)
            if not words[page >> 6] >> (page & 63) & 1:
                return 0
            words[page >> 6] &= ~(<uint64_t> 1 << (page & 63))
        elif self.victims.valid[block] == 0 or not self.gecko.buffer.set_invalid(block, page):
            return 0
        if self.victims.valid[block] == 0:  # already dead; on damaged flash a translation page may still name it
            return 0
        return lost_one(self.victims, block)

    cdef int opened(self, uint32_t block) except -1 nogil:
        """Algorithm 2."""
        self.asked = NONE
        self.drop_aside(block)
        self.told[block] = UNTOLD
        if self.is_aside(block):
            self.partial.erase(block)
            return 0
        if self.recovering:
            self.forgotten[block] = 1
            memset(self.touch(block), 0, self.words_a_block * 8)
            if self.lost:
                assign(self.partial, block, 0)
            return 0
        assign(self.partial, block, 0)
        return self.gecko.buffer.set_erased(block)

    cdef int released(self, uint32_t block) except -1 nogil:
        """The block's erase flag will hide what the buffer says of it, so that is dropped now; but not if a crash is
        recovered from pages, for that may find the block unerased."""
        self.asked = NONE
        if self.is_aside(block):
            self.drop_aside(block)
            self.told[block] = UNTOLD
            return self.victims.set_count(block, 0)
        self.told[block] = UNTOLD
        self.partial.erase(block)
        if not self.recovering and self.ssd.mapping.from_pages is None:
            self.gecko.buffer.drop(block)
        return 0

    # --- queries

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        cdef uint32_t page = ppa % self.pages_per_block
        if self.asked != ppa // self.pages_per_block:
            self.bitmap(ppa // self.pages_per_block, self.words)
            return self.words[page >> 6] >> (page & 63) & 1
        return self.answer[page >> 6] >> (page & 63) & 1

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        if self.asked == block:
            memcpy(words, self.answer, self.words_a_block * 8)
            return 0
        if self.is_aside(block):
            memset(words, 0, self.words_a_block * 8)
            if self.aside.count(block):
                memcpy(words, self.aside[block], self.words_a_block * 8)
        elif self.touched.count(block):
            memcpy(words, self.touched[block], self.words_a_block * 8)
        else:
            self.in_gecko(block, words)
        memcpy(self.answer, words, self.words_a_block * 8)
        self.asked = block
        return 0

    cdef int in_gecko(self, uint32_t block, uint64_t* words) except -1 nogil:
        """The live pages of a block of user pages, from the runs and the buffer."""
        cdef uint32_t w, pages = self.pages_per_block
        memset(words, 0, self.words_a_block * 8)
        if self.victims.valid[block] == 0 or self.forgotten[block]:
            return 0
        if not self.gecko.query(block, words):
            with gil:
                self.rebuild()
            return self.bitmap(block, words)
        if self.partial.count(block):
            pages = self.partial[block]
        for w in range(self.words_a_block):
            words[w] = ~words[w]
            if pages < (w + 1) * 64:
                words[w] &= ((<uint64_t> 1 << (pages - w * 64)) - 1) if pages > w * 64 else 0
        return 0

    cdef uint64_t pages_named(self) noexcept nogil:
        return self.gecko.live_pages()

    # --- what a recovery changes, and what was lost

    cdef uint64_t* touch(self, uint32_t block) except NULL nogil:
        """The block's bitmap in DRAM, followed by the bitmap as the runs have it."""
        cdef uint64_t* words
        if self.touched.count(block):
            return self.touched[block]
        words = <uint64_t*> calloc(2 * self.words_a_block, 8)
        if words == NULL:
            with gil:
                raise MemoryError
        try:
            self.in_gecko(block, words)
            memcpy(words + self.words_a_block, words, self.words_a_block * 8)
        finally:
            assign(self.touched, block, words)
        return words

    @cython.final
    cdef int clear_touched(self) noexcept nogil:
        cdef unordered_map[uint32_t, uint64_t*].iterator it = self.touched.begin()
        while it != self.touched.end():
            free(dereference(it).second)
            preincrement(it)
        self.touched.clear()
        return 0

    cdef bint has_pages(self, uint32_t block) noexcept nogil:
        """Whether pages may live in a block. After damage the mapping may name some in a free one."""
        cdef uint8_t state = self.ssd.pool.state[block]
        return state == STATE_OPEN or state == STATE_CLOSED or state == STATE_BAD

    cdef int rebuild(self) except -1:
        """A page of a run cannot be read: take the pages that the mapping names as live. The bitmaps stay in DRAM until
        they are written to flash. MapLostError during a recovery, until the mapping is ``settled``."""
        cdef uint32_t block, lpa, ppa = NONE, w
        cdef uint64_t* words
        cdef uint64_t n
        if self.recovering and not self.settled:
            raise MapLostError("a page of Logarithmic Gecko cannot be read")
        self.rebuilds += 1
        self.ssd.alarm("a page of Logarithmic Gecko cannot be read: all of it is made again from the mapping")
        self.ssd.checkpoint_due = True
        self.lost = self.recovering = True
        self.asked = NONE
        for block in range(self.ssd.nand.blocks):
            if ((self.victims.valid[block] or self.ssd.pool.state[block] == STATE_OPEN
                 or self.ssd.mapping.from_pages is not None and self.ssd.pool.state[block] == STATE_CLOSED)
                    and not self.is_aside(block)):
                words = <uint64_t*> calloc(2 * self.words_a_block, 8)
                if words == NULL:
                    raise MemoryError
                assign(self.touched, block, words)
        for at in self.ssd.mapping.pages_of_lost():     # before any caller asks which of them live
            ppa = at
            if self.touched.count(ppa // self.pages_per_block):
                self.touched[ppa // self.pages_per_block][(ppa % self.pages_per_block) >> 6] |= (
                    <uint64_t> 1 << (ppa % self.pages_per_block & 63))
        for lpa in range(self.ssd.lpas):
            self.ssd.mapping.peek(&lpa, 1, &ppa)
            if (ppa != NONE and self.touched.count(ppa // self.pages_per_block)
                    and self.has_pages(ppa // self.pages_per_block)):
                words = self.touched[ppa // self.pages_per_block]
                words[(ppa % self.pages_per_block) >> 6] |= <uint64_t> 1 << (ppa % self.pages_per_block & 63)
        for block in range(self.ssd.nand.blocks):
            if self.touched.count(block):
                n = 0
                for w in range(self.words_a_block):
                    n += popcount64(self.touched[block][w])
                self.victims.set_count(block, <uint32_t> n)
        self.ssd.mapping.page_lost(NONE)    # pages that the mapping has not reported yet are already dead
        return 0

    cdef int settle_partial(self) except -1:
        """Report the pages of closed blocks that were never programmed as invalid. The buffer has room for the entries
        of one block at a time."""
        cdef uint32_t block, page
        for block, known in dict(self.partial).items():
            if self.ssd.pool.state[block] != STATE_OPEN:
                if self.victims.valid[block] or self.ssd.mapping.from_pages is not None:  # may be found unerased
                    for page in range(known, self.pages_per_block):
                        self.gecko.buffer.set_invalid(block, page)
                self.partial.erase(block)
                if self.gecko.buffer.n + 2 * self.gecko.layout.parts + UNANNOUNCED // 2 > self.gecko.buffer.room:
                    if not self.gecko.flush():
                        self.rebuild()
                        return 0
        return 0

    cdef int commit_touched(self) except -1:
        """Write what a recovery found to flash, in one merge with the runs that it reaches; or everything, if runs were
        lost or one is now found to be. If the merge fails, begin again with everything."""
        cdef uint32_t block
        cdef bint written
        cdef EntryList before = self.gecko.buffer
        cdef EntryList all_of_it = EntryList(self.gecko.layout, before.room + <uint32_t> (
            self.touched.size() * (self.gecko.layout.parts + 1)))
        if self.lost:
            self.gecko.forget_runs()
        else:
            memcpy(all_of_it.at, before.at, <uint64_t> before.n * self.gecko.layout.entry_bytes)
            all_of_it.n = before.n
        self.gecko.buffer = all_of_it
        try:
            for block in range(self.ssd.nand.blocks):
                if self.touched.count(block):
                    self.commit_block(block, self.touched[block])
            if self.outdo and all_of_it.n == 0:
                self.say_something()
            written = self.gecko.flush()
            if written:
                before.clear()
        finally:
            self.gecko.buffer = before
        if not written:
            if self.lost:
                raise MapLostError("a page of Logarithmic Gecko cannot be read")
            self.settled = True             # the device is ready except for its checkpoint
            self.rebuild()
            return self.commit_touched()
        self.clear_touched()
        memset(self.forgotten, 0, self.ssd.nand.blocks)
        self.recovering = self.lost = self.rebuilt = self.outdo = False
        self.asked = NONE
        return self.reports_kept()

    cdef int reports_kept(self) except -1 nogil:
        """All reports are programmed: notify a mapping that is recovered from pages."""
        self.waited = False
        return 0 if self.ssd.mapping.from_pages is None else self.ssd.mapping.from_pages.reports_kept()

    cdef int say_something(self) except -1:
        """Add the erase flag of a block without live pages, which changes nothing, so that a run is written."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.victims.valid[block] == 0:
                return self.gecko.buffer.set_erased(block)
        return 0

    cdef int commit_block(self, uint32_t block, uint64_t* words) except -1:
        """Add the entries of one block: those that the runs lack, or all if what the runs have is void. With fences
        also of a block without live pages: no checkpoint has its count, and until it is erased, a recovery that finds
        no entries of it would take all its pages as live."""
        cdef uint32_t page, known = self.pages_per_block, end = self.pages_per_block
        cdef bint anew = self.forgotten[block] or self.lost or self.rebuilt and self.partial.count(block)
        cdef uint64_t* was = words + self.words_a_block
        if self.is_aside(block) or (self.victims.valid[block] == 0 and self.ssd.pool.state[block] != STATE_OPEN
                                    and self.ssd.mapping.from_pages is None):  # else a recovery may find it unerased
            self.partial.erase(block)
            return 0
        if self.partial.count(block) and not anew:
            known = self.partial[block]    # the runs have nothing about pages from here on
        if self.ssd.pool.state[block] == STATE_OPEN:
            end = self.ssd.pool.next_page[block]
        for page in range(known):
            anew |= words[page >> 6] >> (page & 63) & 1 and not was[page >> 6] >> (page & 63) & 1
        if anew:
            self.gecko.buffer.set_erased(block)
        for page in range(end):
            if not words[page >> 6] >> (page & 63) & 1 and (
                    anew or page >= known or was[page >> 6] >> (page & 63) & 1):
                self.gecko.buffer.set_invalid(block, page)
        assign(self.partial, block, end)
        if end == self.pages_per_block:
            self.partial.erase(block)
        return 0

    # --- checkpoints

    cdef int checkpoint_begins(self) except -1:
        """Write what a recovery found to flash. The buffer goes into the checkpoint; but a fence has none, so it is
        written to flash before one, unless it has no report from before the fence before."""
        cdef bint fenced = self.ssd.mapping.from_pages is not None
        if self.gecko.directory.missing_n and not self.recovering:
            self.rebuild()
        if self.recovering:
            self.commit_touched()
        self.settle_partial()
        if not self.lost and (self.gecko.buffer.n > self.gecko.per_page
                              or fenced and self.gecko.buffer.n and not self.may_wait()):
            if not self.gecko.flush():
                self.rebuild()
            self.reports_kept()
        if self.lost:
            self.commit_touched()
        self.waited = self.gecko.buffer.n > 0
        self.waits += self.waited
        return self.gecko.store.checkpoint_begins()

    cdef bint may_wait(self) except -1:
        """Whether the buffer may be left as it is: a crash would lose its reports, which the recovery can find."""
        return not self.waited and self.ssd.mapping.from_pages.finds_reports()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.gecko.store.checkpoint_ended(whole)

    @staticmethod
    def section_bytes(geometry, parts=0, entries=0):
        """{section: most bytes} in a checkpoint of a store with these options; ``stream`` is in the pool's section."""
        entry = KEY_BYTES + (-(-geometry.pages_per_block // parts_for(geometry.pages_per_block, parts)) + 7) // 8
        numbers = page_numbers(geometry, parts, entries)
        return {"gkruns": RUN_HEAD.size * (numbers.bit_length() + 1) + 12 * numbers,
                "gkbuf": entry * entries_a_page(geometry, parts, entries),
                "gkpart": 8 * open_most(geometry), "bvc": 2 * geometry.blocks, "stream": STREAM_BYTES}

    def save(self):
        """gkruns: of each run, the newest first, u64 number, u32 pages, u32 pages with entries, and of each page u32
        slot of its first entry (0 for pages of the postamble alone), number, PPA. gkbuf: the buffer's entries. gkpart:
        of each block that is not full, u32 block, u32 pages. bvc: u16 a block, 0 for blocks that are not in Gecko."""
        cdef uint32_t block
        cdef Run* run
        counts = numpy.zeros(self.ssd.nand.blocks, "<u2")
        for block in range(self.ssd.nand.blocks):
            counts[block] = 0 if self.is_aside(block) else self.victims.valid[block]
        runs = []
        for r in range(self.gecko.runs_n):
            run = &self.gecko.runs[<uint32_t> r]
            runs.append(RUN_HEAD.pack(run.number, run.n, run.data_n))
            runs += [struct.pack("<III", run.firsts[i] if i < run.data_n else 0, run.ids[i],
                                 self.gecko.directory.page_ppas[run.ids[i]]) for i in range(run.n)]
        size = self.gecko.buffer.n * self.gecko.layout.entry_bytes
        if self.partial.size() > open_most(self.ssd.nand):
            raise RuntimeError(f"{self.partial.size()} blocks are open: a checkpoint has room for "
                               f"{open_most(self.ssd.nand)}")
        return {
            "gkruns": b"".join(runs),
            "gkbuf": <bytes> self.gecko.buffer.at[:size],
            "gkpart": b"".join(struct.pack("<II", *pair) for pair in sorted(dict(self.partial).items())),
            "bvc": counts.tobytes(),
        }

    def load(self, sections):
        """The inverse; ValueError says what is wrong. Reads no page."""
        cdef uint32_t block, ppa, page
        counts = numpy.frombuffer(sections["bvc"], "<u2")
        if len(counts) != self.ssd.nand.blocks or (len(counts) and int(counts.max()) > self.pages_per_block):
            raise ValueError(f"bvc section of {len(counts)} counts, {self.pages_per_block} at most: "
                             f"{self.ssd.nand.blocks} are needed")
        partial = numpy.frombuffer(sections["gkpart"], "<u4").reshape(-1, 2)
        if len(partial) and (int(partial[:, 0].max()) >= self.ssd.nand.blocks
                             or int(partial[:, 1].max()) > self.pages_per_block
                             or (numpy.diff(partial[:, 0].astype(numpy.int64)) <= 0).any()):
            raise ValueError("gkpart section: blocks or pages that are none")
        self.reset()
        self.rebuilt = "kept" in sections
        self.outdo = bool(sections.get("outdo", b"\0")[0])
        self.gecko.load(bytes(sections["gkruns"]), bytes(sections["gkbuf"]))
        for block in range(self.ssd.nand.blocks):
            self.victims.set_count(block, int(counts[block]))
            self.told[block] = OF_USER if counts[block] else UNTOLD
        for pair in partial.tolist():
            assign(self.partial, <uint32_t> pair[0], <uint32_t> pair[1])
            if self.victims.valid[<uint32_t> pair[0]] > pair[1]:
                raise ValueError(f"block {pair[0]}: {self.victims.valid[<uint32_t> pair[0]]} live pages of {pair[1]}")
        for ppa in self.own_ppas():
            block = ppa // self.pages_per_block
            page = ppa % self.pages_per_block
            if counts[block]:
                raise ValueError(f"PPA {ppa}: a page of metadata in a block with {counts[block]} others")
            self.told[block] = OF_METADATA
            self.put_aside(block, page, True)

    def own_ppas(self):
        """Live pages of metadata, as the mapping and Gecko name them."""
        cdef uint32_t id
        ppas = list(self.ssd.mapping.translation_pages())
        return ppas + [self.gecko.directory.page_ppas[id] for id in range(self.gecko.directory.n)
                       if self.gecko.directory.page_ppas[id] != NONE]

    def reset(self):
        """Make it empty: no page is live."""
        cdef uint32_t block
        for block in blocks_of(self.aside):
            self.drop_aside(block)
        self.clear_touched()
        self.partial.clear()
        memset(self.forgotten, 0, self.ssd.nand.blocks)
        memset(self.told, UNTOLD, self.ssd.nand.blocks)
        self.victims.clear()
        self.gecko.reset()
        self.recovering = True
        self.lost = self.rebuilt = self.outdo = self.settled = self.waited = False
        self.asked = NONE

    # --- recovery

    def base_from_pages(self, versions, last):
        """Step 3 (Appendix C.1): the runs in force."""
        numbers, runs = self.gecko.runs_in_force(versions, last)
        packed = b"".join(
            RUN_HEAD.pack(number, len(pages), data_n) + b"".join(struct.pack("<III", *page) for page in pages)
            for number, data_n, pages in runs)
        return ({"gkruns": packed, "gkbuf": b""}, max(numbers, default=0),
                f"{len(runs)} runs of {sum(len(pages) for _, _, pages in runs)} pages")

    def counts_from_pages(self, sections, ends):
        """Step 5."""
        self.gecko.reset()
        self.gecko.load(bytes(sections["gkruns"]), b"")
        counts = self.gecko.live_counts(ends)
        part = [(block, end) for block, end in enumerate(ends.tolist()) if 0 < end < self.pages_per_block]
        return {"bvc": counts.astype("<u2").tobytes(), "gkpart": b"".join(struct.pack("<II", *one) for one in part)}

    def unfinished(self):
        return dict(self.partial)

    def stamp_in_force(self):
        """The number of the newest run."""
        return self.gecko.runs[0].number if self.gecko.runs_n else 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        self.asked = NONE
        self.drop_aside(block)
        self.partial.erase(block)
        self.told[block] = UNTOLD
        self.forgotten[block] = 1
        memset(self.touch(block), 0, self.words_a_block * 8)
        return self.victims.set_count(block, 0)

    def device_ready(self):
        """A clean mount has nothing to write; what a recovery found stays in DRAM until its checkpoint."""
        if self.touched.empty() and not self.outdo:
            memset(self.forgotten, 0, self.ssd.nand.blocks)
            self.recovering = False

    def problems_in_flash(self):
        """A line for each page of a run that cannot be read."""
        return self.gecko.unreadable()

    # --- for people

    def tables(self):
        geometry = self.ssd.nand
        tables = self.gecko.tables()
        touched = self.touched.size() * (16 * self.words_a_block + 8)
        aside = self.aside.size() * (8 * self.words_a_block + 8)
        partial = self.partial.size() * 8
        tables["gecko_aside"] = (aside + partial + 3 * geometry.blocks // 8,
                                 2 * aside + 4 * partial + 2 * geometry.blocks)
        tables["gecko_recovery"] = (touched, 2 * touched)
        return tables

    def figures(self):
        return {**self.gecko.figures(), "gecko_rebuilds": self.rebuilds}

    def forget_counts(self):
        self.rebuilds = self.waits = 0
        self.gecko.forget_counts()

    def check(self):
        """Each block's count is the number of its live bits; also Gecko's own invariants."""
        cdef uint32_t block
        problems = self.gecko.check()
        for block in range(self.ssd.nand.blocks):
            live = len(self.live_in(block))
            if live != self.victims.valid[block]:
                problems.append(f"block {block}: BVC {self.victims.valid[block]} but {live} pages live in Gecko")
        return problems


cdef list blocks_of(unordered_map[uint32_t, uint64_t*]& of):
    cdef unordered_map[uint32_t, uint64_t*].iterator it = of.begin()
    out = []
    while it != of.end():
        out.append(dereference(it).first)
        preincrement(it)
    return out
