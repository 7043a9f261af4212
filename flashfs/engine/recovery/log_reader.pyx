# cold
# distutils: language = c++
# cython: wraparound=True
"""The first steps of a recovery: which blocks there are, the metadata log, the checkpoint, and the trims since."""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport (
    FLAG_LAST,
    KIND_CHECKPOINT,
    KIND_TRIM,
    STREAM_META,
    Oob,
    order_runs_out,
    runs_out,
)
from flashfs.engine.recovery.found cimport HEADED, Found
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from flashfs.engine.device.metalog import trim_records, whole_trims
from flashfs.errors import CorruptError


cdef class LogReader:
    """Reads the first spare area of every block, then the metadata log."""

    def __cinit__(self, Found found not None, RecoveryBase rebuilder not None):
        self.found = found
        self.ssd = found.ssd
        self.rebuilder = rebuilder
        self.descriptors = []
        self.trim_pages = []
        self.meta_blocks = []
        self.gaps = []

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
        cdef int status = self.found.spare_read(block, 0, &oob)
        if status != PAGE_OK:
            durable = self.ssd.nand.synced(block)
        if durable:
            self.found.headless += 1
            with gil:
                self.found.alarm(f"block {block}: its first page was flushed and cannot be read")
        while status != PAGE_OK:
            page += 1
            if page >= durable:
                return 0
            status = self.found.spare_read(block, page, &oob)
        if oob.stream >= self.ssd.pool.streams_n or order_runs_out(oob.order):
            with gil:
                raise CorruptError(f"block {block}: its pages say stream {oob.stream}, order {oob.order}")
        self.found.mark(block, HEADED)
        self.found.streams[block] = oob.stream
        self.found.orders[block] = oob.order
        self.found.order = max(self.found.order, oob.order)
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
            status = self.found.spare_read(block, page, &oob)
            if status == PAGE_ERASED:
                self.log_gap(block, page)
                break
            if status != PAGE_OK or oob.order != order:
                self.found.torn += 1
                self.log_gap(block, page)
                if status == PAGE_OK and oob.stream < STREAM_META and not order_runs_out(oob.order):
                    other = oob
                    differ += 1
                continue
            agree += 1
            self.take_log_page(&oob, block * self.ssd.pages_per_block + page)
        if differ > agree:
            with gil:
                self.found.alarm(f"block {block}: its first page was meant for another block, and cannot be read")
            self.found.streams[block] = other.stream
            self.found.orders[block] = self.ssd.pool.order[block] = other.order
            self.found.order = max(self.found.order, other.order)
        return 0

    cdef int take_log_page(self, const Oob* oob, uint32_t ppa) except -1 nogil:
        if runs_out(oob.seq):
            with gil:
                raise CorruptError(f"PPA {ppa}: kind {oob.kind} with sequence number or id {oob.seq}")
        if oob.kind == KIND_CHECKPOINT:
            self.found.newest_id = max(self.found.newest_id, oob.seq)
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
                self.found.load_checkpoint(ppa)
                self.rebuilder.take(self.found.base)
                if self.found.repairs and not self.found.from_pages:
                    self.found.load_base()
                break
            except CorruptError as error:
                self.found.stand_on(None)
                problems.append(str(error))
        self.found.newest_id = max(self.found.newest_id, self.found.hint_id)
        if self.found.base is None:
            if self.holds_more_than_log():  # the first checkpoint is complete before anything is written
                why = problems[0] if problems else "no descriptor is left"
                self.found.alarm(f"no checkpoint is of use ({why}): all pages are read and the newest of each LPA "
                                 "counts, so trimmed pages may be back")
            self.found.load_base()
            return "none: everything is scanned"
        self.found.seq = self.found.base.seq
        self.found.order = max(self.found.order, self.found.base.order)
        if self.found.base.identity < self.found.hint_id:  # the hint is written when the checkpoint is durable
            self.found.alarm(f"checkpoint {self.found.hint_id} was complete and is of no use now: "
                             f"{self.found.base.identity} stands in for it, so pages trimmed since may be back")
        self.missing_metadata()
        if self.found.from_pages:
            return f"fence {self.found.base.identity}"
        # A whole one that does not fit is an error, not damage: another program may have written it.
        self.found.load_base()
        return f"checkpoint {self.found.base.identity}"

    def holds_more_than_log(self):
        """Whether any block has pages that are not metadata."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.found.marks[block] & HEADED and self.found.streams[block] != STREAM_META:
                return True
        return False

    cdef missing_metadata(self):
        """Raise alarms for pages of the metadata log that were whole at a sync and are unreadable; blocks older than
        the checkpoint do not count."""
        cdef uint32_t block
        cdef uint64_t since = <uint64_t> -1
        for block in self.found.base.blocks(self.ssd.pages_per_block):
            if self.found.marks[block] & HEADED:
                since = min(since, self.found.orders[block])
        if self.found.from_pages:
            # Trims from before the fence count too, from the block on that was the log's at its mark.
            before = (order for order, _ in self.meta_blocks if order <= self.found.base_order)
            since = min(since, max(before, default=0))
        for block, page in self.gaps:
            if self.found.orders[block] >= since:
                self.found.alarm(f"PPA {block * self.ssd.pages_per_block + page}: a page of the metadata log cannot "
                                 "be read: trims that it held may be undone")
        self.gaps = []

    def trims(self):
        cdef Oob oob
        cdef uint32_t lpas = self.ssd.lpas
        for seq, ppa in sorted(self.trim_pages):
            if seq <= self.found.checkpoint_seq:
                continue
            records = None
            if self.found.full_read(ppa, &oob) == PAGE_OK and oob.kind == KIND_TRIM:
                page = <bytes> self.found.page[:self.ssd.page_bytes]
                # Without sums of data, on a chip that keeps no pages of users, a torn page reads as whole.
                records = trim_records(page) if self.ssd.nand.keeps_data else whole_trims(page, oob.lpa, oob.seq)
            if records is None:
                self.found.torn += 1
                if ppa % self.ssd.pages_per_block < self.ssd.nand.synced(ppa // self.ssd.pages_per_block):
                    self.found.alarm(f"PPA {ppa}: a page of trims cannot be read: what it trimmed may be back")
                continue
            for lpa, n, at in records:
                if runs_out(at):
                    raise CorruptError(f"PPA {ppa}: a trim with sequence number {at}")
                if at > self.found.checkpoint_seq and lpa < lpas:
                    self.found.trim_index.add(at, lpa, min(n, lpas - lpa))
                    self.found.seq = max(self.found.seq, at)
        self.found.trim_index.sort()
        return f"{self.found.trim_index.count()} records"
