# distutils: language = c++
"""The scan of a recovery: reads the spare areas of the pages programmed since the checkpoint, and changes nothing.

The effects of a power cut are accepted silently. Damage that no power cut can cause raises an alarm: a page that was
whole at a sync and is not any more, in a block with pages that count; a page that belongs to another block; a
checkpoint that was complete and cannot be read. Then everything readable is used, and the alarms are reported to the
user.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from flashfs.engine.blocks.pool cimport (
    FLAG_LAST,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_FREE,
    STATE_OPEN,
    STREAM_META,
    Oob,
    runs_out,
)
from flashfs.engine.contract.engine cimport KINDS
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.recovery.found cimport HEADED, REOPENED, SCANNED, TORN_IN, Found
from flashfs.engine.recovery.found_pages cimport FoundPages
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from flashfs.errors import CorruptError

cdef enum:
    MISPLACED = -1           # the status of a page that was meant for another block


cdef class Scanner:
    """Adds whole pages to what was found."""

    def __cinit__(self, Found found not None):
        self.found = found
        self.ssd = found.ssd

    def scan(self):
        """Scan blocks opened after the checkpoint from their first page, and blocks open at the checkpoint from their
        next page then."""
        with nogil:
            self.scan_all()
        self.found.figures["blocks_scanned"] = self.found.scanned
        n = self.found.entries.count() + sum(one.number() for one in self.found.owned if one)
        self.found.figures["pages_found"] = n
        return f"{self.found.scanned} blocks, {n} pages"

    cdef int scan_all(self) except -1 nogil:
        cdef uint64_t order = self.found.base_order
        cdef uint32_t block
        cdef uint8_t state
        cdef bint headed
        for block in range(self.ssd.nand.blocks):
            state = self.ssd.pool.state[block]
            headed = self.found.marks[block] & HEADED
            if self.found.marks[block] & SCANNED:
                continue                    # by an earlier step
            if headed and (self.found.streams[block] == STREAM_META or self.found.orders[block] > order):
                if state != STATE_FREE:
                    self.found.mark(block, REOPENED)
                if self.found.streams[block] != STREAM_META:
                    self.scan_block(block, 0)
            elif (not headed and (state == STATE_OPEN or state == STATE_CLOSED)
                    and (self.ssd.nand.health(block) or self.ssd.nand.synced(block) == 0)):
                # erased (perhaps in part) or marked bad, after all its pages were superseded
                self.found.mark(block, REOPENED)
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
        cdef uint64_t order = self.found.orders[block]
        cdef bint first = page == 0         # no other page with the order of ``head``, the first whole one, was found
        if stamp_bytes:
            self.found.stamp_at[block] = <int64_t> self.found.stamps.n - page
        self.found.mark(block, SCANNED)
        self.found.scanned += 1
        self.found.whole[block] = per_block
        while page < per_block:
            status = self.found.spare_read(block, page, &oob)
            if status == PAGE_ERASED:
                break
            if stamp_bytes:
                memcpy(self.found.stamps.add(), self.ssd.read_oobs + OOB_ENGINE, stamp_bytes)
            if status == PAGE_OK and order and oob.order != order:
                if first and self.is_displaced(block, page, &oob, durable):
                    if last == head != NONE:
                        self.untake(&oob_last)
                        last = NONE
                    self.disown_first(block, &oob)
                    if oob.order <= self.found.base_order:
                        return self.as_before(block)
                    order = oob.order
                    self.miss(block, head, durable)
                else:
                    with gil:
                        self.found.alarm(f"PPA {block * per_block + page}: holds a page that was meant for another "
                                         "block")
                    status = MISPLACED
                first = False
            if status == PAGE_OK and head == NONE:
                head = page
            first = first and (page == head or status != PAGE_OK)
            self.found.torn_inside |= status == PAGE_OK and self.found.whole[block] < page
            if status != PAGE_OK:
                self.miss(block, page, durable)
            elif self.take(&oob, block * per_block + page):
                last = page
                oob_last = oob
            page += 1
        if last != NONE and last == page - 1 and self.found.full_read(block * per_block + last, &oob) != PAGE_OK:
            if self.found.collecting and last < durable:
                self.spoilt(&oob_last, block, last)
            else:
                self.miss(block, last, durable)
            if self.found.collecting or last >= durable:
                self.untake(&oob_last)  # otherwise it was whole once: its LPA gives EIO, not an older version
        if page < durable:
            self.found.missing(block, page)
        self.found.next_page[block] = page
        self.found.whole[block] = min(page, self.found.whole[block])
        return 0

    cdef bint is_displaced(self, uint32_t block, uint32_t page, const Oob* says, uint32_t durable) except -1 nogil:
        """``page`` is the first with another order than the block's first page. Returns whether most flushed pages
        agree with ``page``: then the first page was meant for another block. In a block that the checkpoint calls free,
        they may be left of an erase that a crash of the host undid. Of two pages, the first is foreign if some block
        lacks its first page, and none has the second one's order."""
        cdef uint32_t other, agree = 1, differ = 1
        cdef Oob oob
        cdef uint8_t state = self.ssd.pool.state[block]
        if page >= durable or (says.order <= self.found.base_order and not self.found.from_pages and state != STATE_OPEN
                               and state != STATE_CLOSED):
            return False
        for other in range(page + 1, durable):
            if self.found.spare_read(block, other, &oob) == PAGE_OK:
                agree += oob.order == says.order
                differ += oob.order == self.found.orders[block]
        return agree > differ or (agree == differ and self.found.headless and not self.is_headed(says.order))

    cdef bint is_headed(self, uint64_t order) noexcept nogil:
        """Whether a block's first page has that order."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.found.marks[block] & HEADED and self.found.orders[block] == order:
                return True
        return False

    cdef int disown_first(self, uint32_t block, const Oob* says) except -1 nogil:
        """Take order and stream of the block from another page than its first."""
        with gil:
            self.found.alarm(f"block {block}: its first page was meant for another block")
        self.found.orders[block] = self.ssd.pool.order[block] = says.order
        self.found.streams[block] = self.ssd.pool.stream[block] = says.stream
        self.found.order = max(self.found.order, says.order)
        return 0

    cdef int as_before(self, uint32_t block) except -1 nogil:
        """The block was not opened since the checkpoint, so the checkpoint's state of it holds."""
        cdef uint32_t page
        self.found.unmark(block, SCANNED | REOPENED)
        self.found.scanned -= 1
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
            self.found.entries.add(word, oob.lpa, ppa)
            self.found.newest_group = max(self.found.newest_group, <uint32_t> oob.group)
            if oob.flags & FLAG_LAST:
                self.found.ended[oob.group] = 1
        elif oob.kind < KINDS and self.ssd.owner_at[oob.kind] != NULL:
            self.found.seq = max(self.found.seq, oob.seq)
            if (not self.found.based or oob.seq > self.found.checkpoint_seq) and not self.found.collecting:
                return False
            if oob.lpa >= (<Owner> self.ssd.owner_at[oob.kind]).ids:
                return False
            (<FoundPages> self.found.owned_at[oob.kind]).add(word, oob.lpa, ppa)
        else:
            return False
        self.found.seq = max(self.found.seq, oob.seq)
        return True

    cdef int untake(self, const Oob* oob) except -1 nogil:
        """Remove the page that was taken last."""
        if oob.kind == KIND_USER:
            if oob.flags & FLAG_LAST:
                self.found.ended[oob.group] = 0
            return self.found.entries.drop_last()
        return (<FoundPages> self.found.owned_at[oob.kind]).drop_last()

    cdef int spoilt(self, const Oob* oob, uint32_t block, uint32_t page) except -1 nogil:
        """Note a metadata page with a valid spare area and unreadable data; it may be obsolete."""
        self.found.torn += 1
        self.found.whole[block] = min(page, self.found.whole[block])
        with gil:
            self.found.broken.append((oob.kind, oob.lpa, oob.seq, block * self.ssd.pages_per_block + page))
        return 0

    cdef int miss(self, uint32_t block, uint32_t page, uint32_t durable) except -1 nogil:
        self.found.torn += 1
        self.found.mark(block, TORN_IN)
        self.found.whole[block] = min(page, self.found.whole[block])
        if page < durable:
            self.found.missing(block, page)
        return 0
