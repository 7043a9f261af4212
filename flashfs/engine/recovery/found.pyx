# distutils: language = c++
"""What a recovery has found: the state that its steps share, and how they read the chip.

One object per recovery, a member of each of its parts. What is kept per block is in arrays, what is kept per page in
sorted arrays: no Python object per block or page.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport (
    CAUSE_RECOVERY,
    KIND_CHECKPOINT,
    KIND_USER,
    STATE_CLOSED,
    STATE_FREE,
    STATE_OPEN,
    Oob,
    oob_unpack,
    placed,
)
from flashfs.engine.contract.engine cimport KINDS
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.recovery.trim_index cimport TrimIndex
from nandimg._nand cimport CAUSES, OP_COUNT, OP_PROGRAM, OP_READ, OP_SPARE, PAGE_OK, PAGE_TORN

import time

from flashfs.engine.contract.engine import ALARMS_MOST
from flashfs.engine.device.metalog import LoadedCheckpoint
from flashfs.engine.recovery.admit import admit
from flashfs.errors import CorruptError

cdef enum:
    STAMPS_MOST = 1 << 29    # bytes of stamps in memory


@cython.final
cdef class Found:
    """The checkpoint that a recovery is based on, and the blocks, pages and trims that were found since."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        cdef uint32_t n = ssd.nand.blocks
        self.ssd = ssd
        self.repairs = repairs
        self.figures = {"torn": 0, "pages_found": 0, "undone_moves": 0}
        self.alarms = []
        self.broken = []
        self.marks = <uint8_t*> calloc(n, 1)
        self.streams = <uint8_t*> calloc(n, 1)
        self.orders = <uint64_t*> calloc(n, 8)
        self.next_page = <uint32_t*> calloc(n, 4)
        self.whole = <uint32_t*> calloc(n, 4)
        self.stamp_at = <int64_t*> calloc(n if ssd.mapping.scheme_oob else 1, 8)
        self.page = <uint8_t*> calloc(ssd.nand.page_bytes, 1)
        if not (self.marks and self.streams and self.orders and self.next_page and self.whole and self.stamp_at
                and self.page):
            raise MemoryError
        self.entries = FoundPages(ssd.pages_per_block)
        self.entries.orders = self.orders
        self.owned = [None] * KINDS
        for kind in range(KINDS):
            if kind != KIND_USER and ssd.owner_at[<int> kind] != NULL:
                self.owned[kind] = FoundPages(ssd.pages_per_block)
                (<FoundPages> self.owned[kind]).orders = self.orders
                self.owned_at[<int> kind] = <void*> self.owned[kind]
        self.stamps = SpillArray(ssd.mapping.scheme_oob, STAMPS_MOST)
        self.trim_index = TrimIndex()
        while 2 << self.shift <= ssd.pages_per_block:
            self.shift += 1
        if 1 << self.shift != ssd.pages_per_block:
            self.shift = 0

    def __dealloc__(self):
        free(self.marks)
        free(self.streams)
        free(self.orders)
        free(self.next_page)
        free(self.whole)
        free(self.stamp_at)
        free(self.page)

    cdef int stand_on(self, base) except -1:
        """Set the checkpoint that the recovery is based on, or None."""
        self.base = base
        self.based = base is not None
        self.checkpoint_seq = base.seq if base is not None else 0
        self.base_order = base.order if base is not None else 0
        self.from_pages = self.unknown = False
        self.fence = None
        return 0

    cdef load_checkpoint(self, uint32_t ppa):
        """Base the recovery on the checkpoint with this descriptor; CorruptError if it is not whole."""
        self.stand_on(LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most(),
                                       self.read_meta_run, self.ssd.mapping.places()))

    def alarm(self, text):
        """Record a line about damage that no power cut can cause."""
        if len(self.alarms) < ALARMS_MOST and text not in self.alarms:
            self.alarms.append(text)

    def meter(self):
        """(spare reads, reads, programs, virtual ns, wall s) so far. A step ends with the last of its operations (the
        dies serve spare reads and programs in parallel), and the next step begins then."""
        self.ssd.now_ns = max(self.ssd.now_ns, self.latest_ns, self.ssd.map_ns, self.ssd.nand.quiet_at())
        self.ssd.map_ns = self.ssd.now_ns
        self.figures["torn"] = self.torn
        cdef uint64_t[OP_COUNT] totals
        cdef int op, cause
        for op in range(OP_COUNT):
            totals[op] = 0
            for cause in range(CAUSES):
                totals[op] += self.ssd.nand.count(op, cause)
        return totals[OP_SPARE], totals[OP_READ], totals[OP_PROGRAM], self.ssd.now_ns, time.perf_counter()

    # --- reading

    cdef int full_read(self, uint32_t ppa, Oob* oob) except -1 nogil:
        """Read one page; returns its status, with its data in ``page``."""
        cdef uint8_t status = 0
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        cdef int _
        for _ in range(2):  # a failed read may succeed at the second try
            self.ssd.now_ns = self.ssd.nand.read(
                block, ppa - block * self.ssd.pages_per_block, 1, self.page, self.ssd.read_oobs, &status,
                CAUSE_RECOVERY, self.ssd.now_ns)
            if status != PAGE_TORN:
                break
        oob_unpack(self.ssd.read_oobs, oob)
        return placed(status, self.ssd.read_oobs, ppa - block * self.ssd.pages_per_block)

    cdef int spare_read(self, uint32_t block, uint32_t page, Oob* oob) except -1 nogil:
        cdef uint8_t status = 0
        cdef int64_t end
        cdef int _
        for _ in range(2):
            end = self.ssd.nand.read_spare(
                block, page, 1, self.ssd.read_oobs, &status, CAUSE_RECOVERY, self.ssd.now_ns)
            self.latest_ns = max(self.latest_ns, end)
            if status != PAGE_TORN:
                break
        oob_unpack(self.ssd.read_oobs, oob)
        return placed(status, self.ssd.read_oobs, page)

    cdef const uint8_t* stamp_of(self, uint32_t ppa) noexcept nogil:
        """The scheme's OOB bytes of a scanned page."""
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        if self.ssd.mapping.scheme_oob == 0:
            return self.page               # not used
        return self.stamps.at + (self.stamp_at[block] + ppa % self.ssd.pages_per_block) * self.stamps.size

    def read_meta(self, uint32_t ppa):
        """The data of a whole checkpoint page, or None."""
        cdef Oob oob
        if ppa >= self.ssd.nand.blocks * self.ssd.pages_per_block:
            return None
        if self.ssd.nand.health(ppa // self.ssd.pages_per_block):
            return None  # a bad block holds nothing that counts
        if self.full_read(ppa, &oob) != PAGE_OK or oob.kind != KIND_CHECKPOINT:
            return None
        return <bytes> self.page[:self.ssd.page_bytes]

    def read_meta_run(self, uint32_t ppa, uint8_t[::1] into not None):
        """Fill ``into`` from whole checkpoint pages from ``ppa`` on; returns the number of bytes read."""
        cdef Oob oob
        cdef uint64_t done = 0, n = into.shape[0], part
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.pages_per_block
        with nogil:
            while done < n:
                part = min(n - done, <uint64_t> self.ssd.page_bytes)
                if (ppa >= pages or self.ssd.nand.health(ppa // self.ssd.pages_per_block)
                        or self.full_read(ppa, &oob) != PAGE_OK or oob.kind != KIND_CHECKPOINT):
                    break
                memcpy(&into[done], self.page, part)
                done += part
                ppa += 1
        return done

    def checkpoint_most(self):
        """The most pages of a checkpoint of this device, even if bad blocks split it into many extents."""
        return 2 * self.ssd.meta.checkpoint_pages

    # --- steps

    cdef int mark(self, uint32_t block, uint8_t marks) noexcept nogil:
        self.marks[block] |= marks
        return 0

    cdef int unmark(self, uint32_t block, uint8_t marks) noexcept nogil:
        self.marks[block] &= ~marks
        return 0

    cdef bint is_marked(self, uint32_t ppa, uint8_t mark) noexcept nogil:
        """Whether the page's block has that mark."""
        return self.marks[ppa >> self.shift if self.shift else ppa // self.ssd.pages_per_block] & mark

    cdef bint is_of(self, uint32_t ppa, uint32_t lpa, uint64_t seq) except -1 nogil:
        """Whether the page at ``ppa`` belongs to that LPA, with that sequence number if it is not 0. An old translation
        page may name a page that was erased since and is another LPA's now."""
        cdef Oob oob
        return (self.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block, &oob) == PAGE_OK
                and oob.kind == KIND_USER and oob.lpa == lpa and (seq == 0 or oob.seq == seq))

    # --- the state of the device

    cdef load_base(self):
        """Load mapping, validity and pool from the checkpoint, or reset them without one. CorruptError if it does not
        fit."""
        cdef uint32_t block
        self.is_settled = False
        if self.base is None:
            self.ssd.mapping.reset()
            self.ssd.validity.reset()
            for block in range(self.ssd.pool.blocks):
                self.ssd.pool.state[block] = STATE_FREE
            return
        try:
            self.ssd.mapping.load(self.base.sections)
            self.ssd.validity.load(self.base.sections)
            self.ssd.pool.load(self.base.sections["pool"])
            admit(self.ssd, self.base.blocks(self.ssd.pages_per_block),
                  not (self.from_pages and self.ssd.validity.by_map))
        except (KeyError, ValueError, IndexError) as error:
            raise CorruptError(f"checkpoint {self.base.identity} does not fit this device: {error}; "
                               "`flashfs fsck --repair` goes on without it") from None
        for block in range(self.ssd.pool.blocks):  # blocks opened since are newer than the checkpoint
            if self.marks[block] & HEADED:
                self.trust_base(block)
                self.ssd.pool.order[block] = self.orders[block]
                self.ssd.pool.stream[block] = self.streams[block]

    def trust_base(self, uint32_t block):
        """If a block in use at the checkpoint has another order, from before the checkpoint, in its first page, that
        page was meant for another block: use the checkpoint's order and stream."""
        if (self.from_pages or self.orders[block] > self.base_order
                or self.ssd.pool.order[block] == self.orders[block]
                or self.ssd.pool.state[block] != STATE_OPEN and self.ssd.pool.state[block] != STATE_CLOSED):
            return
        self.alarm(f"block {block}: its first page was meant for another block")
        self.orders[block] = self.ssd.pool.order[block]
        self.streams[block] = self.ssd.pool.stream[block]

    cdef give_up(self, why):
        """Go on without the checkpoint: all pages are to be scanned."""
        self.alarm(f"{why}: all pages are read and the newest of each LPA counts, so trimmed pages may be back")
        self.stand_on(None)
        self.forget_scan()
        self.load_base()

    cdef int forget_scan(self) except -1:
        """Drop all results of the scan."""
        cdef uint32_t block
        self.entries.clear()
        for entries in self.owned:
            if entries is not None:
                (<FoundPages> entries).clear()
        self.stamps.n = 0
        self.scanned = 0
        self.newest_group = 0
        memset(self.ended, 0, sizeof(self.ended))
        for block in range(self.ssd.nand.blocks):
            self.marks[block] &= ~(SCANNED | TORN_IN)
        return 0

    cdef int missing(self, uint32_t block, uint32_t page) except -1 nogil:
        self.unknown |= self.collecting
        with gil:
            self.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page that was flushed cannot be read: "
                       "its LPA may show an older version")
        return 0

    def release(self):
        """Free what grows with the found pages: a checkpoint is about to be written, which needs memory too."""
        self.entries.release()
        for entries in self.owned:
            if entries is not None:
                (<FoundPages> entries).release()
        self.stamps.release()
        self.trim_index.release()
        if self.base is not None:
            self.base.sections = {}
