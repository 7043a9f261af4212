# cold
# distutils: language = c++
# cython: wraparound=True
"""The states of the blocks after a recovery: free, open, closed, of the log, bad."""
from libc.stdint cimport uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport (
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_META,
    Oob,
)
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport EXCLUDED, HEADED, IN_LOG, SCANNED, TORN_IN, Found
from flashfs.engine.recovery.log_reader cimport LogReader
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from flashfs.engine.recovery.resolve cimport Resolver
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from contextlib import suppress

from flashfs.errors import MapLostError


cdef class BlockStates:
    """The step that sets them, and what finds more free blocks where a device is full."""

    def __cinit__(self, Found found not None, LogReader log not None, Resolver resolver not None,
                  RecoveryBase rebuilder not None):
        self.found = found
        self.ssd = found.ssd
        self.log = log
        self.resolver = resolver
        self.rebuilder = rebuilder

    def blocks(self):
        """Set the final states of the pool: a block without live pages is free, and is erased before use."""
        cdef Ssd ssd = self.ssd
        cdef bint reopens = ssd.mapping.recovery_reopens()
        self.mark_log()
        with nogil:
            self.tell_blocks(reopens)
        ssd.pool.last_order = self.found.order
        ssd.pool.rebuild_free()
        # A fence needs a block or two, and cleaning may run before it: but of a reserve that is larger than cleaning
        # needs, some may be gone.
        if ssd.validity.late and ssd.pool.free_n <= (
                ssd.gc_need if self.found.from_pages else ssd.gc_reserve + ssd.meta_floor):
            self.free_more(ssd.meta_floor + (ssd.gc_need if self.found.from_pages else ssd.gc_reserve))
        return ", ".join(f"{n} {state}" for state, n in ssd.pool.census().items() if n)

    cdef int reopen_one(self) except -1:
        """Failed operations have used up the reserve, and closing what was open at the crash left cleaning no block to
        move pages to: let it fill the block with the most room after its last page, if that is proved blank."""
        cdef uint32_t block, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        found = []
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.pool.state[block] == STATE_CLOSED and self.ssd.pool.next_page[block] % group == 0
                    and self.ssd.pool.stream[block] in (STREAM_HOST, STREAM_GC)):
                found.append((self.ssd.pool.next_page[block], block))
        for _, block in sorted(found):
            if self.takes_more(block):
                self.ssd.pool.state[block] = STATE_OPEN
                self.ssd.pool.stream[block] = STREAM_GC
                break
        return 0

    cdef bint takes_more(self, uint32_t block) except -1 nogil:
        """Whether the next page of a block that was scanned is blank. Nothing may follow a torn page: only the last
        page of a block is known to need a full read."""
        cdef Oob oob
        cdef uint32_t page = self.ssd.pool.next_page[block]
        cdef uint8_t marks = self.found.marks[block]
        return (marks & SCANNED and marks & HEADED and not marks & TORN_IN
                and page < self.ssd.pages_per_block
                and self.found.full_read(block * self.ssd.pages_per_block + page, &oob) == PAGE_ERASED)

    cdef int free_more(self, uint32_t enough) except -1:
        """Since the checkpoint, blocks were emptied (and counted as free) whose pages the checkpoint calls live. Check
        closed blocks page by page, those with the fewest live pages first, until more than ``enough`` are free."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        closed = []
        for block in range(ssd.pool.blocks):
            if ssd.pool.state[block] == STATE_CLOSED:
                closed.append((ssd.validity.count(block), block))
        for _, block in sorted(closed):
            if ssd.pool.free_n > enough:
                break
            with suppress(MapLostError):  # where the map cannot say that a page is superseded, it counts
                self.resolver.drop_superseded(block)
            if ssd.validity.count(block) == 0:
                ssd.pool.push(block)
        return 0

    cdef mark_log(self):
        """The blocks of the checkpoint, and those of metadata written after it: their trims count until the next one is
        durable. A log page that was programmed into another stream's block by mistake counts, but the block stays that
        stream's: the checkpoint that ends this recovery includes the page's contents."""
        for block in self.found.base.blocks(self.ssd.pages_per_block) if self.found.base is not None else ():
            self.mark_in_log(block)
        for seq, ppa in self.log.trim_pages:
            if not self.found.based or seq > self.found.checkpoint_seq:
                self.mark_in_log(ppa // self.ssd.pages_per_block)

    cdef mark_in_log(self, uint32_t block):
        if not self.found.marks[block] & HEADED or self.found.streams[block] == STREAM_META:
            self.found.mark(block, IN_LOG)

    cdef int tell_blocks(self, bint reopens) except -1 nogil:
        """Set the state of each block. Copies of undone moves are in blocks that are free now. If this recovery erases
        one and power is cut or the host crashes, the old records may be there without their data. So their note of a
        sync is removed: otherwise the next recovery could take such a copy for whole although the original was moved
        again."""
        cdef uint32_t block, next_page, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        cdef uint8_t marks
        cdef bint collected
        for block in range(self.ssd.pool.blocks):
            self.ssd.pool.blank[block] = 0
            marks = self.found.marks[block]
            if marks & HEADED:
                self.ssd.pool.stream[block] = self.found.streams[block]
            if self.ssd.nand.health(block):
                self.ssd.pool.state[block] = STATE_BAD
            elif marks & IN_LOG and (self.found.streams[block] == STREAM_META
                                     or self.ssd.validity.count(block) == 0):
                # otherwise a log page was programmed there by mistake, and later pages in the block are live
                self.ssd.pool.state[block] = STATE_META
                self.ssd.pool.stream[block] = STREAM_META
                self.ssd.pool.next_page[block] = self.ssd.pages_per_block
            elif self.ssd.validity.count(block) == 0:
                self.ssd.pool.state[block] = STATE_FREE
                self.ssd.pool.stale[block] = marks & HEADED and self.found.streams[block] != STREAM_META
            else:
                self.ssd.pool.state[block] = STATE_CLOSED
                next_page = self.found.next_page[block] if marks & SCANNED else self.ssd.pages_per_block
                self.ssd.pool.next_page[block] = next_page
                # A begun group of paired pages may not be continued: a block closed inside one was not padded before
                # later syncs, so a lower page may be flushed, and a torn upper page would destroy it.
                if reopens and next_page % group == 0 and self.takes_more(block):
                    self.ssd.pool.state[block] = STATE_OPEN
            if marks & EXCLUDED:
                continue                    # left out: if interrupted, the next recovery must not call it flushed
            collected = self.rebuilder.is_collected(block)
            if self.resolver.undone and self.ssd.pool.state[block] == STATE_FREE and not collected:
                self.ssd.nand.disclaim(block)
            elif marks & SCANNED and not collected:
                self.ssd.nand.mark_synced(block, self.found.whole[block])
            elif self.found.spared and self.ssd.validity.count(block) and self.ssd.nand.synced(block) == 0:
                self.mark_unread(block)
        return 0

    cdef int mark_unread(self, uint32_t block) except -1 nogil:
        """Without a scan: note the whole pages of a block with live pages of which no sync has a note. Otherwise, if
        its first page became unreadable, the block would look like one whose erase had begun."""
        cdef Oob oob
        cdef uint32_t page = 0
        while page < self.ssd.pages_per_block and self.found.spare_read(block, page, &oob) == PAGE_OK:
            page += 1
        if page and self.found.full_read(block * self.ssd.pages_per_block + page - 1, &oob) != PAGE_OK:
            page -= 1                       # that program was interrupted
        return self.ssd.nand.mark_synced(block, page)
