# distutils: language = c++
# cython: wraparound=True, boundscheck=True
"""The first half of a recovery: what is in flash, as far as a mount needs to know it. It only reads.

What a power cut leaves is taken as it is, in silence. What no power cut can leave is an alarm: a page that was whole at
a sync and is not any more, in a block with pages that count; a page that belongs to another block; a checkpoint that
was complete and cannot be read. Then as much as can be read is used, and whoever mounts is told.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from flashfs.engine.ssd cimport Ssd
from flashfs.engine.pool cimport (
    CAUSE_RECOVERY,
    FLAG_LAST,
    KIND_CHECKPOINT,
    KIND_TRANSLATION,
    KIND_TRIM,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_FREE,
    STATE_OPEN,
    STREAM_META,
    STREAMS,
    Oob,
    oob_unpack,
    runs_out,
)
from nandimg._nand cimport OP_PROGRAM, OP_READ, OP_SPARE, PAGE_ERASED, PAGE_OK, PAGE_TORN

import time

from flashfs.engine.fsck import admit
from flashfs.engine.metalog import LoadedCheckpoint, trim_records
from flashfs.errors import CorruptError

ALARMS_MOST = 50  #: lines kept; a chip that fails altogether would have one a page


cdef class Scanner:
    """The state that the steps share, and those that read the chip."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.ssd = ssd
        self.repairs = repairs
        self.figures = {"torn": 0, "pages_found": 0, "undone_moves": 0}
        self.alarms = []
        self.heads = []
        self.descriptors = []
        self.trim_pages = []
        self.records = []
        self.meta_blocks = []
        self.gaps = []
        self.next_page = {}
        self.whole = {}
        self.reopened = set()
        self.torn_in = set()
        self.stamps = bytearray()
        self.page = bytearray(ssd.nand.page_bytes)

    def __dealloc__(self):
        free(self.entries)

    def alarm(self, text):
        """Something that no power cut leaves behind."""
        if len(self.alarms) < ALARMS_MOST and text not in self.alarms:
            self.alarms.append(text)

    def meter(self):
        """(spare reads, reads, programs, virtual ns, wall s) so far. A step's spare reads depend on nothing, so the
        dies serve them side by side: the step ends with the last."""
        self.ssd.now_ns = max(self.ssd.now_ns, self.latest_ns)
        cdef uint64_t[4] totals
        cdef int op, cause
        for op in range(4):
            totals[op] = 0
            for cause in range(16):
                totals[op] += self.ssd.nand.count(op, cause)
        return totals[OP_SPARE], totals[OP_READ], totals[OP_PROGRAM], self.ssd.now_ns, time.perf_counter()

    # --- reading

    cdef object full_read(self, uint32_t ppa, Oob* oob):
        """(status, data) of one page."""
        cdef uint8_t status = 0
        cdef uint8_t[::1] view = self.page
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        cdef int _
        for _ in range(2):  # a page that fails once may read at the second try
            self.ssd.now_ns = self.ssd.nand.read(
                block, ppa - block * self.ssd.pages_per_block, 1, &view[0], self.ssd.read_oobs, &status,
                CAUSE_RECOVERY, self.ssd.now_ns)
            if status != PAGE_TORN:
                break
        oob_unpack(self.ssd.read_oobs, oob)
        return status, bytes(self.page)

    cdef int spare_read(self, uint32_t block, uint32_t page, Oob* oob) except -1:
        cdef uint8_t status = 0
        cdef int _
        for _ in range(2):
            self.latest_ns = max(self.latest_ns, self.ssd.nand.read_spare(
                block, page, 1, self.ssd.read_oobs, &status, CAUSE_RECOVERY, self.ssd.now_ns))
            if status != PAGE_TORN:
                break
        oob_unpack(self.ssd.read_oobs, oob)
        return status

    def read_meta(self, uint32_t ppa):
        """The data of a whole checkpoint page, or None."""
        cdef Oob oob
        if ppa >= self.ssd.nand.blocks * self.ssd.pages_per_block:
            return None
        if self.ssd.nand.health(ppa // self.ssd.pages_per_block):
            return None  # a bad block holds nothing that counts
        status, data = self.full_read(ppa, &oob)
        return data if status == PAGE_OK and oob.kind == KIND_CHECKPOINT else None

    def checkpoint_most(self):
        """No checkpoint of this device takes more pages, even if bad blocks tore it into many extents."""
        return 2 * self.ssd.meta.checkpoint_pages

    # --- steps

    cdef load_base(self):
        """Mapping, validity and pool as the checkpoint says, or empty."""
        cdef uint32_t block
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
            admit(self.ssd, self.base.blocks(self.ssd.pages_per_block))
        except (KeyError, ValueError, IndexError) as error:
            raise CorruptError(f"checkpoint {self.base.identity} does not fit this device: {error}; "
                               "`flashfs fsck --repair` goes on without it") from None
        for block, head in enumerate(self.heads):  # blocks opened since are newer than it says
            if head is not None:
                self.ssd.pool.order[block] = head[1]

    def headers(self):
        cdef uint32_t block
        self.ssd.sync_image()  # what is read from here on must not be lost with the host
        for block in range(self.ssd.nand.blocks):
            head = self.head_of(block) if self.ssd.nand.health(block) == 0 else None
            self.heads.append(head)
            if head is not None:
                self.order = max(self.order, head[1])
                self.ssd.pool.order[block] = head[1]
                if head[2] == STREAM_META:
                    self.meta_blocks.append((head[1], block))
        self.meta_blocks.sort()
        return f"{sum(head is not None for head in self.heads)} of {self.ssd.nand.blocks} blocks hold pages"

    cdef head_of(self, uint32_t block):
        """(kind, order, stream, scheme bytes) of a block's first page. Where that cannot be read, though the block had
        pages at a sync, any later one does: all of them say when the block was opened and for what."""
        cdef Oob oob
        cdef uint32_t page = 0, durable = 0
        cdef int status = self.spare_read(block, 0, &oob)
        if status != PAGE_OK:
            durable = self.ssd.nand.synced(block)
        if durable:
            self.alarm(f"block {block}: its first page was flushed and cannot be read")
        while status != PAGE_OK:
            page += 1
            if page >= durable:
                return None
            status = self.spare_read(block, page, &oob)
        if oob.stream >= STREAMS or runs_out(oob.order):
            raise CorruptError(f"block {block}: its pages say stream {oob.stream}, order {oob.order}")
        return oob.kind, oob.order, oob.stream, bytes(self.ssd.read_oobs[OOB_ENGINE:self.ssd.oob_bytes])

    def metadata(self):
        cdef Oob oob
        cdef uint32_t block, page
        for order, block in self.meta_blocks:
            for page in range(self.ssd.pages_per_block):
                status = self.spare_read(block, page, &oob)
                if status == PAGE_ERASED:
                    if page < self.ssd.nand.synced(block):
                        self.gaps.append((block, page))
                    break
                if status != PAGE_OK or oob.order != order:
                    self.figures["torn"] += 1
                    if page < self.ssd.nand.synced(block):
                        self.gaps.append((block, page))
                    continue
                ppa = block * self.ssd.pages_per_block + page
                if runs_out(oob.seq):
                    raise CorruptError(f"PPA {ppa}: kind {oob.kind} with sequence number or id {oob.seq}")
                if oob.kind == KIND_CHECKPOINT:
                    self.newest_id = max(self.newest_id, oob.seq)
                    if oob.flags & FLAG_LAST:
                        self.descriptors.append((oob.seq, ppa))
                elif oob.kind == KIND_TRIM:
                    self.trim_pages.append((oob.seq, ppa))
        self.descriptors.sort(reverse=True)
        return f"{len(self.meta_blocks)} blocks, {len(self.descriptors)} checkpoints, {len(self.trim_pages)} trim pages"

    def checkpoint(self):
        """The newest that is whole; in a repair, that also fits. An older one may stand in for one that the host's
        death left half-written: its blocks are only reused once the newer one is durable."""
        problems = []
        for _, ppa in self.descriptors:
            try:
                self.base = LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most())
                if self.repairs:
                    self.load_base()
                break
            except CorruptError as error:
                self.base = None
                problems.append(str(error))
        self.newest_id = max(self.newest_id, self.hint_id)
        if self.base is None:
            # the first checkpoint is whole before anything is written
            if any(head is not None and head[2] != STREAM_META for head in self.heads):
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
        self.load_base()  # one that is whole and does not fit is no damage: whoever wrote it meant something else
        return f"checkpoint {self.base.identity}"

    cdef missing_metadata(self):
        """Pages of the metadata log that were whole at a sync; blocks older than the checkpoint do not count."""
        since = min(self.heads[block][1] for block in self.base.blocks(self.ssd.pages_per_block)
                    if self.heads[block] is not None)
        for block, page in self.gaps:
            if self.heads[block][1] >= since:
                self.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page of the metadata log cannot be read: "
                           "trims that it held may be undone")
        self.gaps = []

    def trims(self):
        cdef Oob oob
        floor = self.base.seq if self.base is not None else 0
        lost = 0
        for seq, ppa in sorted(self.trim_pages):
            if seq <= floor:
                continue
            status, data = self.full_read(ppa, &oob)
            if status != PAGE_OK or oob.kind != KIND_TRIM:
                lost += 1
                if ppa % self.ssd.pages_per_block < self.ssd.nand.synced(ppa // self.ssd.pages_per_block):
                    self.alarm(f"PPA {ppa}: a page of trims cannot be read: what it trimmed may be back")
                continue
            for lpa, n, at in trim_records(data):
                if runs_out(at):
                    raise CorruptError(f"PPA {ppa}: a trim with sequence number {at}")
                if at > floor and lpa < self.ssd.lpas:
                    self.records.append((at, lpa, min(n, self.ssd.lpas - lpa)))
                    self.seq = max(self.seq, at)
        self.figures["torn"] += lost
        self.records.sort()
        return f"{len(self.records)} records"

    def scan(self):
        """Blocks opened after the checkpoint from their first page, blocks open at it from where they stood."""
        cdef uint32_t block
        order = self.base.order if self.base is not None else 0
        for block, head in enumerate(self.heads):
            state = self.ssd.pool.state[block]
            known = state == STATE_OPEN or state == STATE_CLOSED
            if head is not None and (head[2] == STREAM_META or head[1] > order):
                if state != STATE_FREE:
                    self.reopened.add(block)
                if head[2] != STREAM_META:
                    self.scan_block(block, 0)
            elif known and head is None and (self.ssd.nand.health(block) or self.ssd.nand.synced(block) == 0):
                # erased, or its erase was begun, or marked bad, after all in it had been superseded
                self.reopened.add(block)
            elif state == STATE_OPEN:
                self.scan_block(block, self.ssd.pool.next_page[block])
        self.figures["blocks_scanned"] = len(self.next_page)
        self.figures["pages_found"] = self.n_entries
        return f"{len(self.next_page)} blocks, {self.n_entries} pages"

    cdef scan_block(self, uint32_t block, uint32_t page):
        """Take up the pages from ``page`` to the first erased one. The last is read whole: a program that was
        interrupted may have left its spare area in order and its data not."""
        cdef Oob oob
        cdef int status
        cdef uint32_t last = NONE
        cdef uint32_t per_block = self.ssd.pages_per_block, durable = self.ssd.nand.synced(block)
        cdef uint64_t order = self.heads[block][1] if self.heads[block] is not None else 0
        while page < per_block:
            status = self.spare_read(block, page, &oob)
            if status == PAGE_ERASED:
                break
            if status == PAGE_OK and order and oob.order != order:
                self.alarm(f"PPA {block * per_block + page}: holds a page that was meant for another block")
                status = -1
            if status == PAGE_OK and oob.kind == KIND_USER and oob.lpa < self.ssd.lpas:
                if runs_out(oob.seq):
                    raise CorruptError(f"PPA {block * per_block + page}: a page with sequence number {oob.seq}")
                self.add_entry(&oob, block * per_block + page)
                last = page
            elif status == PAGE_OK and oob.kind == KIND_TRANSLATION:
                self.seq = max(self.seq, oob.seq)
                if self.base is not None and oob.seq <= self.base.seq and oob.lpa < self.ssd.mapping.translation_ids:
                    oob.lpa += self.ssd.lpas  # a copy of one that the checkpoint stands on; newer ones do not count
                    self.add_entry(&oob, block * per_block + page)
                    last = page
            elif status != PAGE_OK:
                self.miss(block, page, durable)
            page += 1
        if last != NONE and last == page - 1:
            status, _ = self.full_read(block * per_block + last, &oob)
            if status != PAGE_OK:
                self.miss(block, last, durable)
                if last >= durable:
                    self.n_entries -= 1  # else it was whole once: its LPA gives EIO, not what it held before
        if page < durable:
            self.missing(block, page)
        self.next_page[block] = page
        self.whole[block] = min(page, self.whole.get(block, page))

    cdef miss(self, uint32_t block, uint32_t page, uint32_t durable):
        self.figures["torn"] += 1
        self.torn_in.add(block)
        self.whole[block] = min(page, self.whole.get(block, page))
        if page < durable:
            self.missing(block, page)

    cdef missing(self, uint32_t block, uint32_t page):
        self.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page that was flushed cannot be read: "
                   "its LPA may show an older version")

    cdef int add_entry(self, const Oob* oob, uint32_t ppa) except -1:
        cdef Entry* entry
        cdef Entry* grown
        if self.n_entries == self.room:
            self.room = max(<uint32_t> 1024, 2 * self.room)
            grown = <Entry*> realloc(self.entries, self.room * sizeof(Entry))
            if grown == NULL:
                raise MemoryError
            self.entries = grown
        entry = self.entries + self.n_entries
        self.n_entries += 1
        entry.seq = oob.seq
        entry.order = oob.order
        entry.lpa = oob.lpa
        entry.ppa = ppa
        entry.flags = oob.flags
        entry.stamp = <uint32_t> len(self.stamps)
        self.stamps += self.ssd.read_oobs[OOB_ENGINE:OOB_ENGINE + self.ssd.mapping.scheme_oob]
        self.seq = max(self.seq, oob.seq)
        return 0
