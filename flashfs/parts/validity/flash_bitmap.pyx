# distutils: language = c++
"""A page validity bitmap (PVB) in flash pages, with a small cache of them in DRAM: the validity store of u-FTL, as
described in section 2 of the GeckoFTL paper.

Page ``id`` of the bitmap holds a bit for each page of ``blocks_a_page`` blocks, 1: live; a block begins a word. A page
that was never programmed is all 0. A report changes the bit if the bitmap's page is in a frame of the cache; else it
goes to the log, a list of reports in DRAM. ``prepare`` keeps room in the log: it brings the page with the most reports
into a frame, which may first write a changed one back. So a report programs nothing, and a query reads at most one
page, into a buffer of its own.

flash_validity.pyx has what all stores in flash share. The bits of the store's own pages are always 0.

A checkpoint takes the directory, the counts and the log; changed frames are written before. After a recovery, the pages
that differ from its bitmap are programmed. A page that cannot be read is rebuilt from the mapping.

With a battery (bitmap_battery.pyx), directory, log and the frames' changes are kept in NVRAM too, continuously.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.validity.flash_validity cimport FlashValidity
from flashfs.parts.validity.bitmap_battery cimport BitmapBattery
from flashfs.parts.battery.map_battery cimport MapBattery, named_by
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport KIND_VALIDITY, NONE, STREAM_META
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


def blocks_in_page(geometry, most=0):
    """Blocks whose bits a page of the bitmap holds; ``most`` if that is fewer and not 0."""
    fit = geometry.page_bytes // (8 * -(-geometry.pages_per_block // 64))
    return min(most, fit) if most else fit


def bitmap_pages(geometry, most=0):
    """Pages of the bitmap of a chip of that geometry."""
    return -(-geometry.blocks // max(1, blocks_in_page(geometry, most)))


def log_entries(geometry, log=0):
    """Reports that the log has room for: ``log``, or, if that is 0, three for each page of a whole run; at least those
    of a block's move."""
    return max(log or 3 * RUN, 2 * geometry.pages_per_block) + SPARE


cdef class FlashBitmap(FlashValidity):
    """The bitmap in flash; ``frames`` of its pages are cached, the log has room for ``log`` reports (0: those of a
    whole run), of which at most ``waiting`` stay there between requests, and a page holds the bits of ``blocks_a_page``
    blocks (0: as many as fit). BindError if pages are too small, or ``frames`` is 0."""

    def __cinit__(self, Engine ssd, uint32_t frames=4, *, uint32_t log=0, uint32_t blocks_a_page=0,
                  uint32_t waiting=NONE):
        cdef uint32_t n, i
        self.blocks_a_page = blocks_in_page(ssd.nand, blocks_a_page)
        if self.blocks_a_page == 0 or frames == 0:
            raise BindError(f"a bitmap in flash needs pages of {8 * -(-ssd.nand.pages_per_block // 64)} bytes, and a "
                            "frame in DRAM")
        n = bitmap_pages(ssd.nand, blocks_a_page)
        self.set_up(n, log_entries(ssd.nand, log), n)
        ssd.keep_free((n + self.pages_per_block - 1) // self.pages_per_block)
        ssd.keep_pages(2 * n)               # the newest version of each, and the last checkpoint's
        ssd.reserve_for(2)                  # a cleaned block's pages go to one stream or the other
        self.making = {}
        self.frames_n = min(frames, n)
        self.log_spare = SPARE
        self.waiting = waiting
        self.frames = <Frame*> calloc(self.frames_n, sizeof(Frame))
        self.images = <uint8_t*> malloc(<uint64_t> (self.frames_n + 2) * self.page_bytes)
        if not (self.frames and self.images):
            raise MemoryError
        for i in range(self.frames_n):
            self.frames[i].id = NONE

    def __dealloc__(self):
        free(self.frames)
        free(self.images)
        free(self.log_place)

    # --- addresses

    cdef uint8_t* image(self, uint32_t frame) noexcept nogil:
        return self.images + <uint64_t> frame * self.page_bytes

    cdef uint32_t frame_of(self, uint32_t id) noexcept nogil:
        """The frame in which the page is, or NONE."""
        cdef uint32_t i
        for i in range(self.frames_n):
            if self.frames[i].id == id:
                return i
        return NONE

    cdef int forget_frame(self, uint32_t frame) noexcept nogil:
        if frame != NONE:
            self.frames[frame].id = NONE
            self.frames[frame].used = 0
            self.frames[frame].dirty = False
        return 0

    # --- the log

    cdef uint32_t most_reported(self, uint32_t* n) noexcept nogil:
        """The page of the bitmap with the most reports in the log; ``n`` gets how many."""
        cdef uint64_t span = <uint64_t> self.blocks_a_page * self.pages_per_block << 1, end, best = 0
        cdef uint32_t i = 0, first
        n[0] = 0
        while i < self.log_n:
            first = i
            end = (self.log[i] // span + 1) * span
            while i < self.log_n and self.log[i] < end:
                i += 1
            if i - first > n[0]:
                n[0] = i - first
                best = end // span - 1
        return <uint32_t> best if n[0] else NONE

    cdef int apply_log(self, uint32_t id, uint8_t* image) noexcept nogil:
        """Applies the log's reports to a page's image; they stay in the log."""
        cdef uint64_t first = <uint64_t> id * self.blocks_a_page * self.pages_per_block
        cdef uint64_t end = first + <uint64_t> self.blocks_a_page * self.pages_per_block
        cdef uint64_t base = <uint64_t> id * self.blocks_a_page * self.words_a_block * 64, bit
        cdef uint32_t i = self.log_from(first << 1)
        while i < self.log_n and self.log[i] >> 1 < end:
            bit = self.bit_of(<uint32_t> (self.log[i] >> 1)) - base
            if self.log[i] & 1:
                image[bit >> 3] |= <uint8_t> (1 << (bit & 7))
            else:
                image[bit >> 3] &= <uint8_t> ~(1 << (bit & 7))
            i += 1
        return 0

    # --- pages and frames

    cdef int read_page(self, uint32_t id, uint8_t* into) except -1 nogil:
        """Reads the page from flash, or rebuilds it."""
        cdef uint32_t page_ppa = self.directory.page_ppas[id]
        if page_ppa != NONE and self.pages_in_flash.read(page_ppa, id, into):
            return self.mask(id, <uint64_t*> into)
        if page_ppa == NONE and not self.directory.missing[id]:
            memset(into, 0, self.page_bytes)
            return 0
        return self.rebuild(id, into)

    cdef int mask(self, uint32_t id, uint64_t* words) noexcept nogil:
        """Clears bits of pages that the chip does not have, whatever flash says: counts of bits are used as indexes."""
        cdef uint32_t block, first = id * self.blocks_a_page, over = self.pages_per_block % 64
        for block in range(self.blocks_a_page):
            if first + block >= self.ssd.nand.blocks:
                memset(words + block * self.words_a_block, 0, self.words_a_block * 8)
            elif over:
                words[(block + 1) * self.words_a_block - 1] &= (<uint64_t> 1 << over) - 1
        return 0

    cdef int set_bit(self, uint8_t* image, uint32_t ppa, uint32_t first) noexcept nogil:
        """Sets the page's bit, if the image, which begins with block ``first``, has one for it."""
        cdef uint64_t bit
        if self.block_of(ppa) - first < self.blocks_a_page:
            bit = self.bit_of(ppa) - <uint64_t> first * self.words_a_block * 64
            image[bit >> 3] |= <uint8_t> (1 << (bit & 7))
        return 0

    cdef int take_named(self, uint32_t first, uint8_t* image) except -1 nogil:
        """Sets the bits of the pages that the mapping and the owners of other pages name."""
        cdef uint32_t lpa, ppa = NONE
        for lpa in range(self.ssd.lpas):
            self.ssd.mapping.peek(&lpa, 1, &ppa)
            if ppa != NONE:
                self.set_bit(image, ppa, first)
        with gil:
            for kind, at in self.ssd.owned_pages():
                if kind != KIND_VALIDITY:
                    self.set_bit(image, at, first)
        return 0

    cdef int rebuild(self, uint32_t id, uint8_t* into) except -1 nogil:
        """Rebuilds a lost page from what the mapping and the owners of other pages name. It is programmed before the
        next checkpoint, since the next mount would find it lost too."""
        cdef uint32_t first = id * self.blocks_a_page
        cdef bint again, doubly
        if self.kept is not None:
            self.kept.doubts()
        with gil:
            again = id in self.making
            lost = self.making.setdefault(id, [] if again else self.ssd.mapping.pages_of_lost())
            doubly = len(lost) > 0
        if again:
            memset(into, 0, self.page_bytes)
            with gil:
                for at in self.making[id]:
                    self.set_bit(into, at, first)
            return 0
        try:
            if doubly:                      # the mapping rebuilds its own pages too, and asks which pages live
                self.take_named(first, into)
            memset(into, 0, self.page_bytes)
            self.take_named(first, into)
        finally:
            with gil:
                del self.making[id]
        self.rebuilds += 1
        self.directory.missing_n += not self.directory.missing[id]
        self.directory.missing[id] = 1
        return self.recount(id, into) if self.bits == NULL else 0

    cdef int recount(self, uint32_t id, uint8_t* image) noexcept nogil:
        """The mapping may name others than those that were counted, if it lost a page too: counts are what is set in
        the image, with the reports that wait."""
        cdef uint32_t first = id * self.blocks_a_page, block, w, n
        cdef uint64_t* words
        self.apply_log(id, image)
        for block in range(first, min(first + self.blocks_a_page, self.ssd.nand.blocks)):
            if self.is_own(block):
                continue
            words = <uint64_t*> image + <uint64_t> (block - first) * self.words_a_block
            n = 0
            for w in range(self.words_a_block):
                n += popcount64(words[w])
            self.victims.set_count(block, n)
        return 0

    cdef int write_back(self, uint32_t frame) except -1 nogil:
        if self.frames[frame].dirty:
            self.program(self.frames[frame].id, self.image(frame))
            self.frames[frame].dirty = False
            if self.kept is not None and self.kept.keeps():
                self.kept.clean(frame, self.frames[frame].id, self.directory.page_ppas[self.frames[frame].id])
        return 0

    cdef int bring(self, uint32_t id) except -1 nogil:
        """Brings the page into a frame, the least recently used one, and applies all reports about it."""
        cdef uint32_t i, frame = self.frame_of(id), first, end
        cdef uint64_t key = <uint64_t> id * self.blocks_a_page * self.pages_per_block << 1
        if self.kept is not None:
            self.kept.changes()
        self.clock += 1
        if frame == NONE:
            frame = 0
            for i in range(1, self.frames_n):
                if self.frames[i].used < self.frames[frame].used:
                    frame = i
            self.write_back(frame)
            self.frames[frame].id = NONE
            self.frames[frame].used = 0
            self.read_page(id, self.image(frame))
            self.forget_frame(self.frame_of(id))    # one that the mapping asked for during the rebuild
            self.frames[frame].id = id
            self.frames[frame].dirty = self.directory.missing[id]
            self.misses += 1
            if self.kept is not None and self.kept.keeps():
                self.kept.put_head(frame, id, self.directory.page_ppas[id])
        self.frames[frame].used = self.clock
        first = self.log_from(key)
        end = self.log_from(key + (<uint64_t> self.blocks_a_page * self.pages_per_block << 1))
        if end > first:
            for i in range(first, end):
                self.put(<uint32_t> (self.log[i] >> 1), self.log[i] & 1)
            self.frames[frame].dirty = True
            self.drop_reports(first, end)
        return 0

    cdef int drop_reports(self, uint32_t first, uint32_t end) except -1 nogil:
        """Removes these reports from the log: a frame has them."""
        cdef uint32_t i
        if self.kept is not None:
            for i in range(first, end if self.kept.keeps() else first):
                self.kept.clear_report(self.log_place[i])
            memmove(self.log_place + first, self.log_place + end, (self.log_n - end) * 4)
        memmove(self.log + first, self.log + end, (self.log_n - end) * 8)
        self.log_n -= end - first
        return 0

    cdef uint8_t* look(self, uint32_t id) except NULL nogil:
        """The page for a query, without the log's reports: from a frame, or read into the buffer for queries, which
        keeps it until there is a newer version."""
        cdef uint32_t frame = self.frame_of(id)
        if frame != NONE:
            self.hits += 1
            return self.image(frame)
        if self.looked_of != id or self.looked_ppa != self.directory.page_ppas[id] or self.directory.missing[id]:
            self.looked_of = NONE
            self.read_page(id, self.image(self.frames_n))
            self.looked_of = id
            self.looked_ppa = self.directory.page_ppas[id]
            self.misses += 1
        return self.image(self.frames_n)

    # --- the validity store's interface

    cdef bint waits_too_much(self) noexcept nogil:
        return self.bits == NULL and self.log_n > self.waiting

    cdef uint32_t room(self) noexcept nogil:
        """No room before a request while more than ``waiting`` reports wait; a move, which must not clean, takes what
        there is."""
        return 0 if self.waits_too_much() else FlashValidity.room(self)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        cdef uint32_t id, reports = 0
        cdef int64_t start = self.ssd.map_ns
        n = min(n, self.log_room - self.log_spare)
        while FlashValidity.room(self) < n or (may_clean and self.waits_too_much()):
            if may_clean:
                self.pages_in_flash.ensure(1)
                self.ssd.map_ns = start
                if self.room() >= n:
                    break
            id = self.most_reported(&reports)
            self.bring(id)
        return n

    cdef int touch(self, uint32_t block) noexcept nogil:
        self.touched[block // self.blocks_a_page] = 1
        return 0

    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil:
        """Sets the page's bit in the whole bitmap, in a frame, or in the log. Returns whether that changed it."""
        cdef uint32_t id = self.block_of(ppa) // self.blocks_a_page, frame
        cdef uint64_t bit
        cdef uint8_t* image
        if self.bits != NULL:
            return self.put_bit(ppa, lives)
        frame = self.frame_of(id)
        if frame == NONE:
            return self.note(ppa, lives)
        self.frames[frame].used = self.clock
        bit = self.bit_of(ppa) - <uint64_t> id * self.blocks_a_page * self.words_a_block * 64
        image = self.image(frame)
        if image[bit >> 3] >> (bit & 7) & 1 == lives:
            return False
        image[bit >> 3] ^= <uint8_t> (1 << (bit & 7))
        self.frames[frame].dirty = True
        if self.kept is not None and self.kept.keeps():
            self.kept.flip(frame, bit)
        return True

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        if self.kept is not None and self.kept.keeps():
            self.kept.opened(self.block_of(ppa))
        return FlashValidity.live_run(self, ppa, n)

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        cdef uint32_t id = block // self.blocks_a_page, i, page
        cdef uint64_t end = <uint64_t> (block + 1) * self.pages_per_block
        if self.recovering and self.bits == NULL:
            self.pages_known()
        if self.bits != NULL:
            memcpy(words, self.bits + <uint64_t> block * self.words_a_block, self.words_a_block * 8)
            return 0
        if self.is_own(block):
            return self.own_bitmap(block, words)
        memset(words, 0, self.words_a_block * 8)
        if self.victims.valid[block] == 0:
            return 0
        memcpy(words, self.look(id) + <uint64_t> (block - id * self.blocks_a_page) * self.words_a_block * 8,
               self.words_a_block * 8)
        i = self.log_from(<uint64_t> block * self.pages_per_block << 1)
        while i < self.log_n and self.log[i] >> 1 < end:
            page = <uint32_t> (self.log[i] >> 1) - block * self.pages_per_block
            if self.log[i] & 1:
                words[page >> 6] |= <uint64_t> 1 << (page & 63)
            else:
                words[page >> 6] &= ~(<uint64_t> 1 << (page & 63))
            i += 1
        return 0

    # --- checkpoints

    cdef int checkpoint_begins(self) except -1:
        """Writes changed frames, and a recovery's changes, to flash; the log goes with the checkpoint."""
        cdef uint32_t i, id
        if self.bits != NULL:
            if self.kept is not None:
                self.kept.battery.sum_is(self.sum_of_live())
            self.write_touched()
        for i in range(self.frames_n):
            self.write_back(i)
        for id in range(self.directory.n if self.directory.missing_n else 0):
            if self.directory.missing[id]:
                self.bring(id)
                self.frames[self.frame_of(id)].dirty = True
                self.write_back(self.frame_of(id))
        return self.pages_in_flash.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.pages_in_flash.checkpoint_ended(whole)

    @staticmethod
    def section_bytes(geometry, log=0, blocks_a_page=0):
        """{section: most bytes} of a checkpoint, of a store with these options; the pool's section names its stream."""
        return {"pvbdir": 4 * bitmap_pages(geometry, blocks_a_page), "bvc": 2 * geometry.blocks,
                "pvblog": 8 * log_entries(geometry, log), "stream": STREAM_BYTES}

    def save(self):
        """The directory, u32 per page; the counts, u16 per block, 0 of the bitmap's own; the log, u64 per report,
        PPA << 1 | lives, ascending."""
        cdef uint32_t block
        counts = numpy.zeros(self.ssd.nand.blocks, "<u2")
        for block in range(self.ssd.nand.blocks):
            counts[block] = 0 if self.is_own(block) else self.victims.valid[block]
        return {
            "pvbdir": array_u32(self.directory.page_ppas, self.directory.n).tobytes(),
            "bvc": counts.tobytes(),
            "pvblog": struct.pack(f"<{self.log_n}Q", *(self.log[i] for i in range(self.log_n))),
        }

    def load(self, sections):
        """The inverse; ValueError if a section is impossible. No page is read: a clean mount needs none."""
        cdef uint32_t block, i, ppa, pages = self.ssd.nand.blocks * self.pages_per_block
        page_ppas = numpy.frombuffer(sections["pvbdir"], "<u4")
        counts = numpy.frombuffer(sections["bvc"], "<u2")
        log = numpy.frombuffer(sections["pvblog"], "<u8")
        named = page_ppas[page_ppas != NONE]
        if len(page_ppas) != self.directory.n or len(counts) != self.ssd.nand.blocks or len(log) > self.log_room:
            raise ValueError(f"pvb sections of {len(page_ppas)} pages, {len(counts)} blocks, {len(log)} reports: "
                             f"{self.directory.n}, {self.ssd.nand.blocks}, {self.log_room} at most are needed")
        if (len(named) and int(named.max()) >= pages) or len(numpy.unique(named)) != len(named):
            raise ValueError("pvbdir section: two pages at one PPA, or one beyond the chip")
        if (len(counts) and int(counts.max()) > self.pages_per_block) or (len(log) and int(log.max()) >> 1 >= pages):
            raise ValueError("bvc or pvblog section: more than the chip has")
        if len(numpy.unique(log >> numpy.uint64(1))) != len(log) or (numpy.sort(log) != log).any():
            raise ValueError("pvblog section: its PPAs do not ascend")
        self.reset()
        for block in range(self.ssd.nand.blocks):
            self.victims.set_count(block, int(counts[block]))
        for i in range(self.directory.n):
            ppa = page_ppas[i]
            self.directory.page_ppas[i] = ppa
            if ppa != NONE:
                gained(self.victims, self.block_of(ppa), 1)
        for block in range(self.ssd.nand.blocks):
            if self.victims.valid[block] > self.pages_per_block:
                raise ValueError(f"block {block}: {self.victims.valid[block]} live pages")
        for i in range(<uint32_t> len(log)):
            self.log[i] = log[i]
            if self.kept is not None:
                self.log_place[i] = NONE
        self.log_n = <uint32_t> len(log)

    def reset(self):
        """Nothing is live."""
        cdef uint32_t i
        self.end_bits()
        self.victims.clear()
        memset(self.directory.page_ppas, 0xFF, self.directory.n * 4)
        memset(self.directory.missing, 0, self.directory.n)
        self.directory.missing_n = 0
        memset(self.forgotten, 0, self.ssd.nand.blocks)
        for i in range(self.frames_n):
            self.frames[i].id = NONE
            self.frames[i].dirty = False
            self.frames[i].used = 0
        self.log_n = 0
        self.looked_of = NONE
        self.pages_in_flash.reset()
        self.recovering = True

    # --- the battery

    def keep_in(self, EntryPages mapping not None, MapBattery battery not None):
        """From the first change on, the battery keeps this store. Call before anything lives."""
        self.kept = BitmapBattery(mapping, self, battery)
        self.log_place = <uint32_t*> malloc(<uint64_t> self.log_room * 4)
        if self.log_place == NULL:
            raise MemoryError
        return self.kept

    def sizes(self):
        """Pages of the bitmap, words of one, reports that there is room for."""
        return self.directory.n, self.page_bytes // 8, self.log_room

    cdef int noted(self, uint32_t at, bint fresh) except -1 nogil:
        if self.kept is None:
            return 0
        if fresh:
            memmove(self.log_place + at + 1, self.log_place + at, (self.log_n - 1 - at) * 4)
            self.log_place[at] = NONE
        if self.kept.keeps():
            self.log_place[at] = self.kept.put_report(self.log_place[at], self.log[at])
        return 0

    cdef int replaced(self, uint32_t id, uint32_t old, uint32_t ppa) except -1 nogil:
        if self.kept is not None and self.kept.keeps():
            if old == NONE or self.pages_in_flash.fresh.count(old):
                old = self.kept.kept_of(id)
            self.kept.put_page(id, ppa, old)
        return 0

    cdef int page_moves(self) except -1 nogil:
        return self.kept.changes() if self.kept is not None else 0

    cdef int page_moved(self, uint32_t id, uint32_t ppa) except -1 nogil:
        cdef uint32_t frame
        if self.kept is None or not self.kept.keeps() or id >= self.directory.n:
            return 0
        if self.directory.page_ppas[id] != ppa:
            return self.kept.put_page(id, self.directory.page_ppas[id], ppa)
        self.kept.put_page(id, ppa, self.kept.kept_of(id))
        frame = self.frame_of(id)
        return self.kept.put_head(frame, id, ppa) if frame != NONE else 0

    def sum_of_live(self):
        """The sum over the live user pages; reads the bitmap's pages, unless it is all in DRAM."""
        cdef uint32_t block, page
        cdef uint64_t total = 0
        for block in range(self.ssd.nand.blocks):
            if self.victims.valid[block] and self.ssd.pool.stream[block] < STREAM_META:
                self.bitmap(block, self.words)
                for page in range(self.pages_per_block):
                    if self.words[page >> 6] >> (page & 63) & 1:
                        total += named_by(block * self.pages_per_block + page)
        return total

    def blocks_in_use(self):
        """Blocks with live pages."""
        return [block for block in range(self.ssd.nand.blocks) if self.victims.valid[block]]

    def directory_ppas(self):
        return [self.directory.page_ppas[id] for id in range(self.directory.n)]

    def frame_list(self):
        """[(page, its PPA, whether it was changed)]"""
        cdef uint32_t i, id
        out = []
        for i in range(self.frames_n):
            id = self.frames[i].id
            out.append((id, NONE if id == NONE else self.directory.page_ppas[id], bool(self.frames[i].dirty)))
        return out

    def reports(self):
        return [self.log[i] for i in range(self.log_n)]

    def reports_placed(self):
        """The battery has put each report at the place of its index."""
        for i in range(self.log_n):
            self.log_place[i] = i

    def read_kept(self, page_ppas, superseded, frames, reports, own):
        """The PVB, an array of u64, from pages in flash, ``frames`` {page: bits that differ} and ``reports`` [(PPA,
        lives)]. ``own`` is a flag for each block of the bitmap's own: there, the pages named here live. None if a page
        is not there."""
        cdef uint64_t[::1] image = numpy.zeros(self.page_bytes // 8, numpy.uint64)
        blocks, words = self.ssd.nand.blocks, self.words_a_block
        bits = numpy.zeros((self.directory.n * self.blocks_a_page, words), numpy.uint64)
        chip = blocks * self.pages_per_block
        if (max([*page_ppas, *superseded, *(ppa for ppa, _ in reports)], default=0) >= chip
                or min([ppa for ppa, _ in reports], default=0) < 0):
            return None
        for id, ppa in enumerate(page_ppas):
            if ppa >= 0 and not self.pages_in_flash.read(ppa, id, <uint8_t*> &image[0]):
                return None
            if ppa >= 0 or id in frames:
                content = numpy.asarray(image) if ppa >= 0 else numpy.zeros(self.page_bytes // 8, numpy.uint64)
                if id in frames:
                    content = content ^ frames[id]
                first = id * self.blocks_a_page
                bits[first : first + self.blocks_a_page] = content[: self.blocks_a_page * words].reshape(-1, words)
        bits = bits[:blocks]
        if self.pages_per_block % 64:
            bits[:, -1] &= numpy.uint64((<uint64_t> 1 << self.pages_per_block % 64) - 1)
        for ppa, lives in reports:
            block, page = divmod(ppa, self.pages_per_block)
            mask = numpy.uint64(1 << (page & 63))
            bits[block, page >> 6] = bits[block, page >> 6] | mask if lives else bits[block, page >> 6] & ~mask
        bits[own] = 0
        for ppa in [*(ppa for ppa in page_ppas if ppa >= 0), *superseded]:
            block, page = divmod(ppa, self.pages_per_block)
            bits[block, page >> 6] |= numpy.uint64(1 << (page & 63))
        return numpy.ascontiguousarray(bits).reshape(-1)

    def take_kept(self, page_ppas, superseded, frames, reports, bits):
        """A recovery takes this state: ``bits`` stay in DRAM until its checkpoint, before which the pages that differ
        are programmed."""
        cdef const uint64_t[::1] taken = bits
        cdef uint32_t block, w, n
        self.reset()
        for id, ppa in enumerate(page_ppas):
            self.directory.page_ppas[id] = NONE if ppa < 0 else ppa
        self.pages_in_flash.keep_all(superseded)
        self.begin_bits()
        memcpy(self.bits, &taken[0], taken.shape[0] * 8)
        self.filled = True
        for id in [*frames, *(ppa // self.pages_per_block // self.blocks_a_page for ppa, _ in reports)]:
            self.touched[id] = 1
        for block in range(self.ssd.nand.blocks):
            n = 0
            for w in range(self.words_a_block):
                n += popcount64(self.bits[<uint64_t> block * self.words_a_block + w])
            self.victims.set_count(block, n)

    # --- recovery

    def recovery_steps(self):
        return (("pvb", "scan", "read the bitmap as the checkpoint left it", self.recovery_reads),)

    def recovery_reads(self):
        before = self.pages_in_flash.reads
        self.pages_known()
        return f"{self.pages_in_flash.reads - before} of {self.directory.n} pages"

    cdef int fill(self) except -1 nogil:
        cdef uint32_t id, block, w
        cdef uint64_t n
        cdef bint done
        cdef uint64_t* image = <uint64_t*> self.image(self.frames_n)
        cdef uint64_t* words
        self.looked_of = NONE
        self.filled = True                  # rebuilding a page asks the mapping, which asks what lives
        for id in range(self.directory.n):
            if self.directory.page_ppas[id] != NONE and self.forgotten[self.block_of(self.directory.page_ppas[id])]:
                if not self.bits[self.bit_of(self.directory.page_ppas[id]) >> 6] >> (
                        self.bit_of(self.directory.page_ppas[id]) & 63) & 1:
                    self.directory.lost(self.directory.page_ppas[id])
            done = False
            try:
                self.read_page(id, <uint8_t*> image)
                done = True
            finally:
                self.filled = done
            self.apply_log(id, <uint8_t*> image)
            for block in range(id * self.blocks_a_page,
                               min((id + 1) * self.blocks_a_page, self.ssd.nand.blocks)):
                words = self.bits + <uint64_t> block * self.words_a_block
                for w in range(0 if self.forgotten[block] else self.words_a_block):
                    words[w] |= image[(block - id * self.blocks_a_page) * self.words_a_block + w]
                n = 0
                for w in range(self.words_a_block):
                    n += popcount64(words[w])
                self.victims.set_count(block, <uint32_t> n)
            if self.directory.missing[id]:
                self.touched[id] = 1
        for w in range(self.log_n):
            self.touched[self.block_of(<uint32_t> (self.log[w] >> 1)) // self.blocks_a_page] = 1
        self.log_n = 0
        return 0

    cdef int write_touched(self) except -1:
        """Programs the pages that a recovery changed, then frees the bitmap. These programs change no page: they go to
        blocks whose bits are 0 in flash. If this is cut anywhere, the next recovery does it again from the checkpoint.
        """
        cdef uint32_t id, block, i
        cdef uint8_t* image = self.image(self.frames_n + 1)
        for id in range(self.directory.n):
            if not self.touched[id]:
                continue
            memset(image, 0, self.page_bytes)
            for i in range(self.blocks_a_page):
                block = id * self.blocks_a_page + i
                if block < self.ssd.nand.blocks and not self.is_own(block):
                    memcpy(image + <uint64_t> i * self.words_a_block * 8,
                           self.bits + <uint64_t> block * self.words_a_block, self.words_a_block * 8)
            self.program(id, image)
        return self.end_bits()

    def problems_in_flash(self):
        """A line for each page of the bitmap that cannot be read."""
        cdef uint32_t id, ppa
        problems = []
        self.looked_of = NONE
        for id in range(self.directory.n):
            ppa = self.directory.page_ppas[id]
            if ppa != NONE and not self.pages_in_flash.read(ppa, id, self.image(self.frames_n)):
                problems.append(f"PPA {ppa}: page {id} of the validity bitmap cannot be read")
        return problems

    # --- for users

    def tables(self):
        frames = (self.frames_n + 2) * self.page_bytes + self.frames_n * 12
        report = 8 if self.kept is None else 12
        packed, allocated = self.pages_in_flash.tables()
        bits = 0 if self.bits == NULL else self.ssd.nand.blocks * self.words_a_block * 8
        return {
            "pvb_frames": (frames + bits, frames + bits),
            "pvb_log": (report * self.log_room, report * self.log_room),
            "pvb_directory": (4 * self.directory.n + packed, 5 * self.directory.n + allocated),
        }

    def figures(self):
        return {
            "bitmap_pages": self.directory.n,
            "bitmap_reads": self.pages_in_flash.reads,
            "bitmap_programs": self.pages_in_flash.programs,
            "bitmap_rebuilds": self.rebuilds,
        }

    def forget_counts(self):
        self.hits = self.misses = self.rebuilds = 0
        self.pages_in_flash.forget_counts()
