# distutils: language = c++
# cython: wraparound=True
"""The first half of a recovery: reads what a mount needs to know of flash, and changes nothing.

The effects of a power cut are accepted silently. Damage that no power cut can cause raises an alarm: a page that was
whole at a sync and is not any more, in a block with pages that count; a page that belongs to another block; a
checkpoint that was complete and cannot be read. Then everything readable is used, and the alarms are reported to the
user.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.contract.engine cimport KINDS
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.blocks.pool cimport (
    CAUSE_RECOVERY,
    FLAG_LAST,
    KIND_CHECKPOINT,
    KIND_TRIM,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_FREE,
    STATE_OPEN,
    STREAM_META,
    Oob,
    oob_unpack,
    order_runs_out,
    placed,
    runs_out,
)
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.trim_index cimport TrimIndex
from nandimg._nand cimport CAUSES, OP_COUNT, OP_PROGRAM, OP_READ, OP_SPARE, PAGE_ERASED, PAGE_OK, PAGE_TORN

import time

from flashfs.engine.recovery.admit import admit
from flashfs.engine.device.metalog import LoadedCheckpoint, trim_records, whole_trims
from flashfs.engine.contract.engine import ALARMS_MOST
from flashfs.errors import CorruptError

cdef enum:
    STAMPS_MOST = 1 << 29    # bytes of stamps in memory
    MISPLACED = -1           # the status of a page that was meant for another block


cdef class Scanner:
    """The state that the steps share, and the steps that read the chip."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        cdef uint32_t n = ssd.nand.blocks
        self.ssd = ssd
        self.repairs = repairs
        self.figures = {"torn": 0, "pages_found": 0, "undone_moves": 0}
        self.alarms = []
        self.descriptors = []
        self.trim_pages = []
        self.meta_blocks = []
        self.broken = []
        self.gaps = []
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
        return 0

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

    def headers(self):
        cdef uint32_t block, n = 0
        self.ssd.sync_image()  # what is read from here on must survive a crash of the host
        with nogil:
            for block in range(self.ssd.nand.blocks):
                if self.ssd.nand.health(block) == 0:
                    n += self.take_head(block)
        self.meta_blocks.sort()
        return f"{n} of {self.ssd.nand.blocks} blocks hold pages"

    cdef int take_head(self, uint32_t block) except -1 nogil:
        """Take order and stream of a block from its first page; returns 1, or 0 if it holds no page. If the first page
        cannot be read although the block had pages at a sync, a later page is used: all of them have both."""
        cdef Oob oob
        cdef uint32_t page = 0, durable = 0
        cdef int status = self.spare_read(block, 0, &oob)
        if status != PAGE_OK:
            durable = self.ssd.nand.synced(block)
        if durable:
            self.headless += 1
            with gil:
                self.alarm(f"block {block}: its first page was flushed and cannot be read")
        while status != PAGE_OK:
            page += 1
            if page >= durable:
                return 0
            status = self.spare_read(block, page, &oob)
        if oob.stream >= self.ssd.pool.streams_n or order_runs_out(oob.order):
            with gil:
                raise CorruptError(f"block {block}: its pages say stream {oob.stream}, order {oob.order}")
        self.marks[block] |= HEADED
        self.streams[block] = oob.stream
        self.orders[block] = oob.order
        self.order = max(self.order, oob.order)
        self.ssd.pool.order[block] = oob.order
        if oob.stream == STREAM_META:
            with gil:
                self.meta_blocks.append((oob.order, block))
        return 1

    def metadata(self):
        for order, block in self.meta_blocks:
            self.read_log(block, order)
        self.descriptors.sort(reverse=True)
        return f"{len(self.meta_blocks)} blocks, {len(self.descriptors)} checkpoints, {len(self.trim_pages)} trim pages"

    cdef int read_log(self, uint32_t block, uint64_t order) except -1 nogil:
        """Read the spare areas of a metadata block. If most of its pages have another stream, a log page was programmed
        over the block's first one by mistake: use their stream and order."""
        cdef Oob oob
        cdef Oob other
        cdef uint32_t page, agree = 0, differ = 0
        cdef int status
        other.order = other.stream = 0  # for the compiler: it is set whenever some differ
        for page in range(self.ssd.pages_per_block):
            status = self.spare_read(block, page, &oob)
            if status == PAGE_ERASED:
                self.log_gap(block, page)
                break
            if status != PAGE_OK or oob.order != order:
                self.torn += 1
                self.log_gap(block, page)
                if status == PAGE_OK and oob.stream < STREAM_META and not order_runs_out(oob.order):
                    other = oob
                    differ += 1
                continue
            agree += 1
            self.take_log_page(&oob, block * self.ssd.pages_per_block + page)
        if differ > agree:
            with gil:
                self.alarm(f"block {block}: its first page was meant for another block, and cannot be read")
            self.streams[block] = other.stream
            self.orders[block] = self.ssd.pool.order[block] = other.order
            self.order = max(self.order, other.order)
        return 0

    cdef int take_log_page(self, const Oob* oob, uint32_t ppa) except -1 nogil:
        if runs_out(oob.seq):
            with gil:
                raise CorruptError(f"PPA {ppa}: kind {oob.kind} with sequence number or id {oob.seq}")
        if oob.kind == KIND_CHECKPOINT:
            self.newest_id = max(self.newest_id, oob.seq)
            if oob.flags & FLAG_LAST:
                with gil:
                    self.descriptors.append((oob.seq, ppa))
        elif oob.kind == KIND_TRIM:
            with gil:
                self.trim_pages.append((oob.seq, ppa))
        return 0

    cdef int log_gap(self, uint32_t block, uint32_t page) except -1 nogil:
        """A page of the log that cannot be read."""
        if page < self.ssd.nand.synced(block):
            with gil:
                self.gaps.append((block, page))
        return 0

    def checkpoint(self):
        """Load the newest whole checkpoint (in a repair, the newest that also fits). An older one may replace one that
        a crash of the host left half-written: its blocks are only reused once the newer one is durable."""
        problems = []
        for _, ppa in self.descriptors:
            try:
                self.stand_on(LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most(),
                                               self.read_meta_run, self.ssd.mapping.places()))
                self.take_fence()
                if self.repairs and not self.from_pages:
                    self.load_base()
                break
            except CorruptError as error:
                self.stand_on(None)
                problems.append(str(error))
        self.newest_id = max(self.newest_id, self.hint_id)
        if self.base is None:
            if self.holds_more_than_log():  # the first checkpoint is complete before anything is written
                why = problems[0] if problems else "no descriptor is left"
                self.alarm(f"no checkpoint is of use ({why}): all pages are read and the newest of each LPA counts, so "
                           "trimmed pages may be back")
            self.load_base()
            return "none: everything is scanned"
        self.seq = self.base.seq
        self.order = max(self.order, self.base.order)
        if self.base.identity < self.hint_id:  # the hint is written when the checkpoint is durable
            self.alarm(f"checkpoint {self.hint_id} was complete and is of no use now: {self.base.identity} stands in "
                       "for it, so pages trimmed since may be back")
        self.missing_metadata()
        if self.from_pages:
            return f"fence {self.base.identity}"
        self.load_base()  # a whole one that does not fit is an error, not damage: another program may have written it
        return f"checkpoint {self.base.identity}"

    cdef int take_fence(self) except -1:
        """If the checkpoint is a fence: set where the scan begins. See rebuild.pyx."""
        return 0

    def holds_more_than_log(self):
        """Whether any block has pages that are not metadata."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.marks[block] & HEADED and self.streams[block] != STREAM_META:
                return True
        return False

    cdef missing_metadata(self):
        """Raise alarms for pages of the metadata log that were whole at a sync and are unreadable; blocks older than
        the checkpoint do not count."""
        cdef uint32_t block
        cdef uint64_t since = <uint64_t> -1
        for block in self.base.blocks(self.ssd.pages_per_block):
            if self.marks[block] & HEADED:
                since = min(since, self.orders[block])
        if self.from_pages:  # trims from before the fence count too, from the block on that was the log's at its mark
            since = min(since, max((order for order, _ in self.meta_blocks if order <= self.base_order), default=0))
        for block, page in self.gaps:
            if self.orders[block] >= since:
                self.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page of the metadata log cannot be read: "
                           "trims that it held may be undone")
        self.gaps = []

    def trims(self):
        cdef Oob oob
        cdef uint32_t lpas = self.ssd.lpas
        for seq, ppa in sorted(self.trim_pages):
            if seq <= self.checkpoint_seq:
                continue
            records = None
            if self.full_read(ppa, &oob) == PAGE_OK and oob.kind == KIND_TRIM:
                page = <bytes> self.page[:self.ssd.page_bytes]
                # Without sums of data, on a chip that keeps no pages of users, a torn page reads as whole.
                records = trim_records(page) if self.ssd.nand.keeps_data else whole_trims(page, oob.lpa, oob.seq)
            if records is None:
                self.torn += 1
                if ppa % self.ssd.pages_per_block < self.ssd.nand.synced(ppa // self.ssd.pages_per_block):
                    self.alarm(f"PPA {ppa}: a page of trims cannot be read: what it trimmed may be back")
                continue
            for lpa, n, at in records:
                if runs_out(at):
                    raise CorruptError(f"PPA {ppa}: a trim with sequence number {at}")
                if at > self.checkpoint_seq and lpa < lpas:
                    self.trim_index.add(at, lpa, min(n, lpas - lpa))
                    self.seq = max(self.seq, at)
        self.trim_index.sort()
        return f"{self.trim_index.count()} records"

    def scan(self):
        """Scan blocks opened after the checkpoint from their first page, and blocks open at the checkpoint from their
        next page then."""
        with nogil:
            self.scan_all()
        self.figures["blocks_scanned"] = self.scanned
        self.figures["pages_found"] = n = self.entries.count() + sum(one.number() for one in self.owned if one)
        return f"{self.scanned} blocks, {n} pages"

    cdef int scan_all(self) except -1 nogil:
        cdef uint64_t order = self.base_order
        cdef uint32_t block
        cdef uint8_t state
        cdef bint headed
        for block in range(self.ssd.nand.blocks):
            state = self.ssd.pool.state[block]
            headed = self.marks[block] & HEADED
            if self.marks[block] & SCANNED:
                continue                    # by an earlier step
            if headed and (self.streams[block] == STREAM_META or self.orders[block] > order):
                if state != STATE_FREE:
                    self.marks[block] |= REOPENED
                if self.streams[block] != STREAM_META:
                    self.scan_block(block, 0)
            elif (not headed and (state == STATE_OPEN or state == STATE_CLOSED)
                    and (self.ssd.nand.health(block) or self.ssd.nand.synced(block) == 0)):
                # erased (perhaps in part) or marked bad, after all its pages were superseded
                self.marks[block] |= REOPENED
            elif state == STATE_OPEN:
                self.scan_block(block, self.ssd.pool.next_page[block])
        return 0

    cdef int scan_block(self, uint32_t block, uint32_t page) except -1 nogil:
        """Take the pages from ``page`` to the first erased one. The last is read in full: an interrupted program may
        have left a valid spare area and invalid data."""
        cdef Oob oob, oob_last
        cdef int status
        cdef uint32_t last = NONE, head = NONE, stamp_bytes = self.ssd.mapping.scheme_oob
        cdef uint32_t per_block = self.ssd.pages_per_block, durable = self.ssd.nand.synced(block)
        cdef uint64_t order = self.orders[block]
        cdef bint first = page == 0         # no other page with the order of ``head``, the first whole one, was found
        if stamp_bytes:
            self.stamp_at[block] = <int64_t> self.stamps.n - page
        self.marks[block] |= SCANNED
        self.scanned += 1
        self.whole[block] = per_block
        while page < per_block:
            status = self.spare_read(block, page, &oob)
            if status == PAGE_ERASED:
                break
            if stamp_bytes:
                memcpy(self.stamps.add(), self.ssd.read_oobs + OOB_ENGINE, stamp_bytes)
            if status == PAGE_OK and order and oob.order != order:
                if first and self.is_displaced(block, page, &oob, durable):
                    if last == head != NONE:
                        self.untake(&oob_last)
                        last = NONE
                    self.disown_first(block, &oob)
                    if oob.order <= self.base_order:
                        return self.as_before(block)
                    order = oob.order
                    self.miss(block, head, durable)
                else:
                    with gil:
                        self.alarm(f"PPA {block * per_block + page}: holds a page that was meant for another block")
                    status = MISPLACED
                first = False
            if status == PAGE_OK and head == NONE:
                head = page
            first = first and (page == head or status != PAGE_OK)
            self.torn_inside |= status == PAGE_OK and self.whole[block] < page
            if status != PAGE_OK:
                self.miss(block, page, durable)
            elif self.take(&oob, block * per_block + page):
                last = page
                oob_last = oob
            page += 1
        if last != NONE and last == page - 1 and self.full_read(block * per_block + last, &oob) != PAGE_OK:
            if self.collecting and last < durable:
                self.spoilt(&oob_last, block, last)
            else:
                self.miss(block, last, durable)
            if self.collecting or last >= durable:
                self.untake(&oob_last)  # otherwise it was whole once: its LPA gives EIO, not an older version
        if page < durable:
            self.missing(block, page)
        self.next_page[block] = page
        self.whole[block] = min(page, self.whole[block])
        return 0

    cdef bint is_displaced(self, uint32_t block, uint32_t page, const Oob* says, uint32_t durable) except -1 nogil:
        """``page`` is the first with another order than the block's first page. Returns whether most flushed pages
        agree with ``page``: then the first page was meant for another block. In a block that the checkpoint calls free,
        they may be left of an erase that a crash of the host undid. Of two pages, the first is foreign if some block
        lacks its first page, and none has the second one's order."""
        cdef uint32_t other, agree = 1, differ = 1
        cdef Oob oob
        cdef uint8_t state = self.ssd.pool.state[block]
        if page >= durable or (says.order <= self.base_order and not self.from_pages and state != STATE_OPEN
                               and state != STATE_CLOSED):
            return False
        for other in range(page + 1, durable):
            if self.spare_read(block, other, &oob) == PAGE_OK:
                agree += oob.order == says.order
                differ += oob.order == self.orders[block]
        return agree > differ or (agree == differ and self.headless and not self.is_headed(says.order))

    cdef bint is_headed(self, uint64_t order) noexcept nogil:
        """Whether a block's first page has that order."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.marks[block] & HEADED and self.orders[block] == order:
                return True
        return False

    cdef int disown_first(self, uint32_t block, const Oob* says) except -1 nogil:
        """Take order and stream of the block from another page than its first."""
        with gil:
            self.alarm(f"block {block}: its first page was meant for another block")
        self.orders[block] = self.ssd.pool.order[block] = says.order
        self.streams[block] = self.ssd.pool.stream[block] = says.stream
        self.order = max(self.order, says.order)
        return 0

    cdef int as_before(self, uint32_t block) except -1 nogil:
        """The block was not opened since the checkpoint, so the checkpoint's state of it holds."""
        cdef uint32_t page
        self.marks[block] &= ~(SCANNED | REOPENED)
        self.scanned -= 1
        if self.ssd.pool.state[block] == STATE_OPEN:
            page = self.ssd.pool.next_page[block]
            return self.scan_block(block, page)
        return 0

    cdef bint take(self, const Oob* oob, uint32_t ppa) except -1 nogil:
        """Add a whole page to the found pages, if it may count: a user page, or a copy of another kind's page that the
        checkpoint needs (newer ones are left to their owner). Returns whether it was added."""
        cdef uint64_t word = oob.seq | (<uint64_t> oob.group << 48) | (<uint64_t> oob.flags << 56)
        if oob.kind == KIND_USER:
            if oob.lpa >= self.ssd.lpas:
                return False
            if runs_out(oob.seq):
                with gil:
                    raise CorruptError(f"PPA {ppa}: a page with sequence number {oob.seq}")
            self.entries.add(word, oob.lpa, ppa)
            self.newest_group = max(self.newest_group, <uint32_t> oob.group)
            self.ended[oob.group] |= (oob.flags & FLAG_LAST) != 0
        elif oob.kind < KINDS and self.ssd.owner_at[oob.kind] != NULL:
            self.seq = max(self.seq, oob.seq)
            if (not self.based or oob.seq > self.checkpoint_seq) and not self.collecting:
                return False
            if oob.lpa >= (<Owner> self.ssd.owner_at[oob.kind]).ids:
                return False
            (<FoundPages> self.owned_at[oob.kind]).add(word, oob.lpa, ppa)
        else:
            return False
        self.seq = max(self.seq, oob.seq)
        return True

    cdef int untake(self, const Oob* oob) except -1 nogil:
        """Remove the page that was taken last."""
        if oob.kind == KIND_USER:
            if oob.flags & FLAG_LAST:
                self.ended[oob.group] = 0
            return self.entries.drop_last()
        return (<FoundPages> self.owned_at[oob.kind]).drop_last()

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

    cdef int spoilt(self, const Oob* oob, uint32_t block, uint32_t page) except -1 nogil:
        """Note a metadata page with a valid spare area and unreadable data; it may be obsolete."""
        self.torn += 1
        self.whole[block] = min(page, self.whole[block])
        with gil:
            self.broken.append((oob.kind, oob.lpa, oob.seq, block * self.ssd.pages_per_block + page))
        return 0

    cdef int miss(self, uint32_t block, uint32_t page, uint32_t durable) except -1 nogil:
        self.torn += 1
        self.marks[block] |= TORN_IN
        self.whole[block] = min(page, self.whole[block])
        if page < durable:
            self.missing(block, page)
        return 0

    cdef int missing(self, uint32_t block, uint32_t page) except -1 nogil:
        self.unknown |= self.collecting
        with gil:
            self.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page that was flushed cannot be read: "
                       "its LPA may show an older version")
        return 0
