# distutils: language = c++
"""A page validity bitmap (PVB) in flash pages, with a small cache of them in DRAM: the validity store of u-FTL, as
GeckoFTL's section 2 has it.

Page ``id`` of the bitmap holds a bit for each page of ``blocks_a_page`` blocks, 1: live; a block begins a word. A page
that never was programmed is all 0. A report changes the bit where the page is in a frame of the cache; else it goes to
the log, a list of reports in DRAM. ``prepare`` keeps room in the log: it brings the page of which most was reported
into a frame, where a changed one may have to be written back first. So a report programs nothing, and a query reads a
page at most, into a buffer of its own.

The store's own pages are in blocks of a stream of their own, and their bits are always 0: whether one of them lives,
the directory says, as it does of translation pages. Else each program of the bitmap would change the bitmap.

A checkpoint takes the directory, the counts and the log; changed frames are written before. A recovery has the whole
bitmap in DRAM: what the checkpoint's pages say, and on it what was found since. The pages that this changed are
programmed before the recovery's own checkpoint, and then the bitmap is let go; ``Engine.keep_free`` sees to the room.
A page that cannot be read is made again from the mapping.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from flashfs.engine.parts cimport IN_TABLE, Engine, Validity
from flashfs.engine.pool cimport CAUSE_VALIDITY, KIND_VALIDITY, NONE
from flashfs.engine.translation cimport Directory, TranslationPages
from flashfs.engine.victims cimport gained, lost_one

import struct

import numpy

from flashfs.engine.pool import STREAM_BYTES
from flashfs.errors import BindError

cdef extern from "<algorithm>" namespace "std" nogil:
    uint64_t* lower_bound(uint64_t* first, uint64_t* last, const uint64_t& value)

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil

cdef enum:
    RUN = 256                # pages that a request binds at once, at most
    SPARE = 16               # reports that were not announced: a mapping that mends its own pages

STREAM = "validity"


def blocks_in_page(geometry, most=0):
    """Blocks whose bits a page of the bitmap holds; ``most`` if that is fewer and not 0."""
    fit = geometry.page_bytes // (8 * -(-geometry.pages_per_block // 64))
    return min(most, fit) if most else fit


def bitmap_pages(geometry, most=0):
    """Pages of the bitmap of such a chip."""
    return -(-geometry.blocks // max(1, blocks_in_page(geometry, most)))


def log_entries(geometry, log=0):
    """Reports that the log has room for, as asked: 0 is three for each page of a whole run. A block's move has to fit,
    at any rate."""
    return max(log or 3 * RUN, 2 * geometry.pages_per_block) + SPARE


cdef class BitmapDirectory(Directory):
    """Where each page of the bitmap is: 4 bytes a page, in DRAM."""

    def __cinit__(self, FlashBitmap bitmap not None, uint32_t n):
        self.bitmap = bitmap
        self.n = n
        self.page_ppas = <uint32_t*> malloc(n * 4)
        self.missing = <uint8_t*> calloc(n, 1)
        if not (self.page_ppas and self.missing):
            raise MemoryError
        memset(self.page_ppas, 0xFF, n * 4)

    def __dealloc__(self):
        free(self.page_ppas)
        free(self.missing)

    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil:
        return self.page_ppas[id] if id < self.n else NONE

    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil:
        if id < self.n:
            self.page_ppas[id] = ppa
        return 0

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """It is made again when it is next asked for, and programmed before the next checkpoint."""
        cdef uint32_t id
        for id in range(self.n):
            if self.page_ppas[id] == ppa:
                self.page_ppas[id] = NONE
                self.missing_n += not self.missing[id]
                self.missing[id] = 1
        return 0


cdef class BitmapPages(TranslationPages):
    """The pages of a bitmap."""

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """A recovery alone asks, before it puts the page elsewhere."""
        (<BitmapDirectory> self.directory).bitmap.begin_bits()
        return self.directory.ppa_of(id)


cdef class FlashBitmap(Validity):
    """The bitmap in flash; ``frames`` of its pages are cached, the log has room for ``log`` reports (0: those of a
    whole run), and a page holds the bits of ``blocks_a_page`` blocks (0: as many as fit)."""

    def __cinit__(self, Engine ssd, uint32_t frames=4, *, uint32_t log=0, uint32_t blocks_a_page=0):
        cdef uint32_t n, i
        self.in_flash = True
        self.pages_per_block = ssd.nand.pages_per_block
        self.page_bytes = ssd.nand.page_bytes
        self.words_a_block = (self.pages_per_block + 63) // 64
        self.blocks_a_page = blocks_in_page(ssd.nand, blocks_a_page)
        if self.blocks_a_page == 0 or frames == 0:
            raise BindError(f"a bitmap in flash needs pages of {8 * self.words_a_block} bytes, and a frame in DRAM")
        n = (ssd.nand.blocks + self.blocks_a_page - 1) // self.blocks_a_page
        self.directory = BitmapDirectory(self, n)
        self.pages_in_flash = BitmapPages(
            ssd, self.directory, n, kind=KIND_VALIDITY, stream=ssd.pool.add_stream(STREAM, CAUSE_VALIDITY),
            cause=CAUSE_VALIDITY)
        ssd.own(KIND_VALIDITY, self.pages_in_flash)
        ssd.keep_free((n + self.pages_per_block - 1) // self.pages_per_block)
        ssd.keep_pages(2 * n)               # each as it is, and as the last checkpoint knows it
        ssd.reserve_for(2)                  # a cleaned block's pages go to one stream or the other
        self.frames_n = min(frames, n)
        self.log_spare = SPARE
        self.log_room = log_entries(ssd.nand, log)
        self.frames = <Frame*> calloc(self.frames_n, sizeof(Frame))
        self.images = <uint8_t*> malloc(<uint64_t> (self.frames_n + 2) * self.page_bytes)
        self.log = <uint64_t*> malloc(self.log_room * 8)
        self.touched = <uint8_t*> calloc(n, 1)
        self.forgotten = <uint8_t*> calloc(ssd.nand.blocks, 1)
        if not (self.frames and self.images and self.log and self.touched and self.forgotten):
            raise MemoryError
        for i in range(self.frames_n):
            self.frames[i].id = NONE
        self.looked_of = NONE

    def __dealloc__(self):
        free(self.frames)
        free(self.images)
        free(self.log)
        free(self.touched)
        free(self.forgotten)
        free(self.bits)

    # --- where things are

    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        return ppa // self.pages_per_block

    cdef uint64_t bit_of(self, uint32_t ppa) noexcept nogil:
        """In the whole bitmap."""
        return <uint64_t> self.block_of(ppa) * self.words_a_block * 64 + ppa % self.pages_per_block

    cdef bint is_own(self, uint32_t block) noexcept nogil:
        """Whether the block's pages are the bitmap's."""
        return self.ssd.pool.stream[block] == self.pages_in_flash.stream

    cdef uint8_t* image(self, uint32_t frame) noexcept nogil:
        return self.images + <uint64_t> frame * self.page_bytes

    cdef uint32_t frame_of(self, uint32_t id) noexcept nogil:
        """The frame in which the page is, or NONE."""
        cdef uint32_t i
        for i in range(self.frames_n):
            if self.frames[i].id == id:
                return i
        return NONE

    # --- the log

    cdef uint32_t log_from(self, uint64_t key) noexcept nogil:
        """The first report that is not below ``key``."""
        return <uint32_t> (lower_bound(self.log, self.log + self.log_n, key) - self.log)

    cdef int note(self, uint32_t ppa, bint lives) except -1 nogil:
        """Take a report; the page's last one counts. 1, or 0 if the same was noted already."""
        cdef uint64_t key = <uint64_t> ppa << 1
        cdef uint32_t at = self.log_from(key)
        if at < self.log_n and self.log[at] >> 1 == ppa:
            if self.log[at] == key | lives:
                return 0
            self.log[at] = key | lives
            return 1
        if self.log_n == self.log_room:
            with gil:
                raise RuntimeError(f"the validity log is full: PPA {ppa} was reported, and no room was made for it")
        memmove(self.log + at + 1, self.log + at, (self.log_n - at) * 8)
        self.log[at] = key | lives
        self.log_n += 1
        return 1

    cdef uint32_t most_reported(self, uint32_t* n) noexcept nogil:
        """The page of the bitmap of which most is in the log, and how much."""
        cdef uint32_t i, id, best = NONE, at = NONE, run = 0
        n[0] = 0
        for i in range(self.log_n):
            id = self.block_of(<uint32_t> (self.log[i] >> 1)) // self.blocks_a_page
            run = run + 1 if id == at else 1
            at = id
            if run > n[0]:
                n[0] = run
                best = id
        return best

    cdef int apply_log(self, uint32_t id, uint8_t* image) noexcept nogil:
        """What the log has of a page, on its image; it stays in the log."""
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
        """The page as it is in flash, or as it should be there."""
        cdef uint32_t page_ppa = self.directory.page_ppas[id]
        if page_ppa != NONE and self.pages_in_flash.read(page_ppa, id, into):
            return 0
        if page_ppa == NONE and not self.directory.missing[id]:
            memset(into, 0, self.page_bytes)
            return 0
        return self.rebuild(id, into)

    cdef int rebuild(self, uint32_t id, uint8_t* into) except -1 nogil:
        """A page that is gone is what the mapping and the owners of other pages name. It is written again soon, since
        the next mount would find it gone too."""
        cdef uint32_t lpa, ppa = NONE, first = id * self.blocks_a_page
        cdef uint64_t base = <uint64_t> first * self.words_a_block * 64, bit
        memset(into, 0, self.page_bytes)
        for lpa in range(self.ssd.lpas):
            self.ssd.mapping.peek(&lpa, 1, &ppa)
            if ppa != NONE and self.block_of(ppa) - first < self.blocks_a_page:
                bit = self.bit_of(ppa) - base
                into[bit >> 3] |= <uint8_t> (1 << (bit & 7))
        with gil:
            for kind, at in self.ssd.owned_pages():
                ppa = at
                if kind != KIND_VALIDITY and self.block_of(ppa) - first < self.blocks_a_page:
                    bit = self.bit_of(ppa) - base
                    into[bit >> 3] |= <uint8_t> (1 << (bit & 7))
        self.rebuilds += 1
        self.directory.missing_n += not self.directory.missing[id]
        self.directory.missing[id] = 1
        return 0

    cdef int program(self, uint32_t id, const uint8_t* data) except -1 nogil:
        """A new version, which counts from then on."""
        cdef uint32_t ppa = self.pages_in_flash.program(id, data), old
        cdef int before = self.ssd.stopped
        self.ssd.stopped = IN_TABLE
        old = self.directory.page_ppas[id]
        self.directory.page_ppas[id] = ppa
        if self.looked_of == id:            # the next version may come to lie where that one lay
            self.looked_of = NONE
        if old != NONE:
            self.pages_in_flash.supersede(old)
        self.directory.missing_n -= self.directory.missing[id]
        self.directory.missing[id] = 0
        self.ssd.stopped = before
        return 0

    cdef int write_back(self, uint32_t frame) except -1 nogil:
        if self.frames[frame].dirty:
            self.program(self.frames[frame].id, self.image(frame))
            self.frames[frame].dirty = False
        return 0

    cdef int bring(self, uint32_t id) except -1 nogil:
        """The page into a frame, with all that was reported of it; the frame that was used longest ago goes."""
        cdef uint32_t i, frame = self.frame_of(id), first, end
        cdef uint64_t key = <uint64_t> id * self.blocks_a_page * self.pages_per_block << 1
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
            self.frames[frame].id = id
            self.frames[frame].dirty = self.directory.missing[id]
            self.misses += 1
        self.frames[frame].used = self.clock
        first = self.log_from(key)
        end = self.log_from(key + (<uint64_t> self.blocks_a_page * self.pages_per_block << 1))
        if end > first:
            self.apply_log(id, self.image(frame))
            self.frames[frame].dirty = True
            memmove(self.log + first, self.log + end, (self.log_n - end) * 8)
            self.log_n -= end - first
        return 0

    cdef uint8_t* look(self, uint32_t id) except NULL nogil:
        """The page for a query, without what the log has of it: from a frame, or read aside, once while it is the
        newest."""
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

    cdef uint32_t room(self) noexcept nogil:
        return NONE if self.bits != NULL else self.log_room - self.log_spare - min(
            self.log_n, self.log_room - self.log_spare)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        cdef uint32_t id, reports = 0
        cdef int64_t start = self.ssd.map_ns
        n = min(n, self.log_room - self.log_spare)
        while self.room() < n:
            if may_clean:
                self.pages_in_flash.ensure(1)
                self.ssd.map_ns = start
                if self.room() >= n:
                    break
            id = self.most_reported(&reports)
            self.bring(id)
        return n

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t i, new = 0, block = self.block_of(ppa)
        if self.bits == NULL and self.is_own(block):
            return gained(self.victims, block, n)
        for i in range(n):
            new += self.put(ppa + i, True)
        return gained(self.victims, block, new)

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i, block
        for i in range(n):
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            if (self.bits == NULL and self.is_own(block)) or self.put(ppas[i], False):
                if self.victims.valid[block] == 0:
                    with gil:
                        raise RuntimeError(f"PPA {ppas[i]} died, and nothing lives in its block")
                lost_one(self.victims, block)
        return 0

    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil:
        """Where the page's bit is: in the whole bitmap, in a frame, or in the log. Whether that was news."""
        cdef uint32_t id = self.block_of(ppa) // self.blocks_a_page, frame
        cdef uint64_t bit
        cdef uint8_t* image
        if self.bits != NULL:
            return self.put_bit(ppa, lives)
        frame = self.frame_of(id)
        if frame == NONE:
            return self.note(ppa, lives)
        bit = self.bit_of(ppa) - <uint64_t> id * self.blocks_a_page * self.words_a_block * 64
        image = self.image(frame)
        if image[bit >> 3] >> (bit & 7) & 1 == lives:
            return False
        image[bit >> 3] ^= <uint8_t> (1 << (bit & 7))
        self.frames[frame].dirty = True
        return True

    cdef bint put_bit(self, uint32_t ppa, bint lives) except -1 nogil:
        cdef uint64_t bit = self.bit_of(ppa)
        if self.bits[bit >> 6] >> (bit & 63) & 1 == lives:
            return False
        self.bits[bit >> 6] ^= <uint64_t> 1 << (bit & 63)
        self.touched[self.block_of(ppa) // self.blocks_a_page] = 1
        return True

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        self.bitmap(self.block_of(ppa), self.words)
        return self.words[(ppa % self.pages_per_block) >> 6] >> (ppa % self.pages_per_block & 63) & 1

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

    cdef int own_bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        """Pages of the bitmap itself: those that the directory names, and superseded ones that the last checkpoint
        stands on."""
        cdef uint32_t id, ppa
        memset(words, 0, self.words_a_block * 8)
        for id in range(self.directory.n):
            ppa = self.directory.page_ppas[id]
            if ppa != NONE and self.block_of(ppa) == block:
                words[(ppa % self.pages_per_block) >> 6] |= <uint64_t> 1 << (ppa % self.pages_per_block & 63)
        for ppa in self.pages_in_flash.kept:
            if self.block_of(ppa) == block:
                words[(ppa % self.pages_per_block) >> 6] |= <uint64_t> 1 << (ppa % self.pages_per_block & 63)
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """Of its own blocks, a page that could not be read when it was to move is in no list any more."""
        if self.bits == NULL and self.is_own(block):
            self.victims.set_count(block, 0)
        return 0

    cdef uint64_t pages_named(self) noexcept nogil:
        cdef uint32_t id, n = 0
        for id in range(self.directory.n):
            n += self.directory.page_ppas[id] != NONE
        return n

    # --- checkpoints

    cdef int checkpoint_begins(self) except -1:
        """Changed frames go to flash, and what a recovery found; what is in the log goes with the checkpoint."""
        cdef uint32_t i, id
        if self.bits != NULL:
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
        """{section: most bytes} of a checkpoint, of a store made with these; the pool's section names its stream."""
        return {"pvbdir": 4 * bitmap_pages(geometry, blocks_a_page), "bvc": 2 * geometry.blocks,
                "pvblog": 8 * log_entries(geometry, log), "stream": STREAM_BYTES}

    def save(self):
        """The directory, u32 a page; the counts, u16 a block, 0 of the bitmap's own; the log, u64 a report, PPA and
        1 for live in the lowest bit, ascending."""
        cdef uint32_t block
        counts = numpy.zeros(self.ssd.nand.blocks, "<u2")
        for block in range(self.ssd.nand.blocks):
            counts[block] = 0 if self.is_own(block) else self.victims.valid[block]
        return {
            "pvbdir": numpy.asarray(<uint32_t[:self.directory.n]> self.directory.page_ppas).tobytes(),
            "bvc": counts.tobytes(),
            "pvblog": struct.pack(f"<{self.log_n}Q", *(self.log[i] for i in range(self.log_n))),
        }

    def load(self, sections):
        """The inverse; ValueError says what cannot be. No page is read: a clean mount needs none."""
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

    # --- recovery

    def recovery_steps(self):
        return (("pvb", "scan", "read the bitmap as the checkpoint left it", self.recovery_reads),)

    def recovery_reads(self):
        before = self.pages_in_flash.reads
        self.pages_known()
        return f"{self.pages_in_flash.reads - before} of {self.directory.n} pages"

    cdef int begin_bits(self) except -1 nogil:
        """From now on the whole bitmap is in DRAM; of the store's own pages first."""
        cdef uint32_t id
        cdef uint64_t bit
        if self.bits != NULL:
            return 0
        self.bits = <uint64_t*> calloc(<uint64_t> self.ssd.nand.blocks * self.words_a_block, 8)
        if self.bits == NULL:
            with gil:
                raise MemoryError
        self.filled = False
        memset(self.touched, 0, self.directory.n)
        for id in range(self.directory.n):
            if self.directory.page_ppas[id] != NONE:
                bit = self.bit_of(self.directory.page_ppas[id])
                self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
        return 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        self.begin_bits()
        self.forgotten[block] = 1
        memset(self.bits + <uint64_t> block * self.words_a_block, 0, self.words_a_block * 8)
        self.touched[block // self.blocks_a_page] = 1
        return self.victims.set_count(block, 0)

    cdef int pages_known(self) except -1 nogil:
        """The rest of the bitmap, from flash and the log; once."""
        self.begin_bits()
        return 0 if self.filled else self.fill()

    cdef int fill(self) except -1 nogil:
        cdef uint32_t id, block, w
        cdef uint64_t n
        cdef bint done
        cdef uint64_t* image = <uint64_t*> self.image(self.frames_n)
        cdef uint64_t* words
        self.looked_of = NONE
        self.filled = True                  # a page that is made again asks the mapping, which asks what lives
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
        """The pages that a recovery changed, then the bitmap is let go. Programming one of them changes none: they are
        in blocks whose bits are 0 in flash. Cut at any place, it is done again from the checkpoint."""
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

    cdef int end_bits(self) noexcept nogil:
        free(self.bits)
        self.bits = NULL
        self.filled = False
        return 0

    def opens(self):
        """A clean mount read nothing; after a recovery the bitmap stays in DRAM until its checkpoint."""
        self.recovering = False

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

    # --- for people

    def page_ppas(self):
        """The PPA of each page of the bitmap, None for one that was never programmed."""
        return [None if ppa == NONE else ppa for ppa in self.directory.page_ppas[:self.directory.n]]

    def tables(self):
        frames = (self.frames_n + 2) * self.page_bytes + self.frames_n * 12
        packed, allocated = self.pages_in_flash.tables()
        bits = 0 if self.bits == NULL else self.ssd.nand.blocks * self.words_a_block * 8
        return {
            "pvb_frames": (frames + bits, frames + bits),
            "pvb_log": (8 * self.log_room, 8 * self.log_room),
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

    def check(self):
        """The count of each block is the number of its bits; no bit of its own blocks is set in flash."""
        cdef uint32_t block
        problems = []
        for block in range(self.ssd.nand.blocks):
            live = len(self.live_in(block))
            if live != self.victims.valid[block]:
                problems.append(f"block {block}: BVC {self.victims.valid[block]} but {live} bits in the PVB")
        return problems
