# distutils: language = c++
"""The device's blocks, and what is durable: opening blocks and making room for them, padding, syncs and barriers.

A sync of the image comes before anything that relies on what was done before it. A dead block is erased only after a
barrier, since until then the host may crash and lose what took its pages' place."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from flashfs.engine.contract.engine cimport IN_SYNC, Engine
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_PAD,
    KIND_PAD,
    NONE,
    STATE_CLOSED,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_META,
    Oob,
    number_for,
    oob_pack,
)

cdef enum:
    WORN = 16                # of so many blocks one is bad: of a worn chip, more
    GAINLESS = 32            # blocks cleaned without enough gain before the mapping is asked for superseded pages


cdef class Durable(Engine):
    """The device as far as it opens blocks and makes durable what is in them."""

    cdef int sync_image(self) except -1 nogil:
        """Sync the chip. A failed sync may have dropped data, and the next one would not report that again: so it stops
        the device. A sync counts if no trim was pending: only then is all that was done before it durable."""
        cdef int before = self.stopped
        self.stopped = IN_SYNC
        self.nand.sync(self.durable)
        self.stopped = before
        self.image_syncs += self.meta.pending_n == 0
        return 0

    cdef int spare_pending(self, int stream) except -1 nogil:
        """Before a block is opened: sync if too few free blocks are left."""
        # A crash of the host loses every move since the last sync, so blocks that those moves freed are no reserve:
        # recovery, and cleaning after it, must find enough blocks that are free already.
        cdef uint32_t floor = 0 if stream == STREAM_META else self.meta_floor
        if stream == STREAM_HOST:
            floor += self.gc_need
        if self.stands_on_dead:
            floor = 0
        if self.pool.free_n <= floor and self.pool.pending_n:
            self.sync_for(stream)
        return 0

    cdef int log_trims(self) except -1 nogil:
        """Program the pending trims. A trim may be of the source of a host's move: the NVRAM entry of its target is
        made durable first, because a crash of the host could keep the trim and lose the entry."""
        if self.moved:
            self.moved = False
            self.pad_pairs()
            self.sync_image()
        return self.meta.log_trims()

    cdef int sync_for(self, int stream) except -1 nogil:
        """No free block for this stream: a barrier. If the log itself needs the block, pending trims cannot be logged,
        so blocks that died since the first of them stay pending: they may hold newer data than what would reappear if
        the trim were lost."""
        if stream != STREAM_META:
            return self.barrier()
        self.pad_pairs()
        self.sync_moves()
        self.syncs += 1
        self.release(self.pool.before_trims if self.meta.pending_n else self.pool.pending_n)
        return 0

    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil:
        cdef int64_t opened
        self.spare_pending(stream)
        opened = self.pool.allocate_this(block, stream, cause, self.now_ns)
        if opened >= 0:
            self.tell_opened(<uint32_t> opened)
        return opened

    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil:
        cdef int64_t block
        self.spare_pending(stream)
        block = self.pool.allocate(die, stream, worn, cause, self.now_ns)
        if block < 0:
            self.sync_for(stream)
            block = self.pool.allocate(die, stream, worn, cause, self.now_ns)
        if block < 0:
            with gil:
                raise self.full("no free block is left")
        self.tell_opened(<uint32_t> block)
        return block

    cdef int tell_opened(self, uint32_t block) except -1 nogil:
        """Report the opened block to validity; if that fails, release the block, because no part uses it."""
        cdef bint told = False
        try:
            self.validity.opened(block)
            told = True
        finally:
            if not told:
                self.pool.release(block, self.now_ns)
        return 0

    cdef uint64_t checkpoint_id(self) noexcept:
        return self.meta.checkpoint_id

    cdef bint fills(self) noexcept:
        return self.meta.fill_least != 0

    cdef int barrier(self) except -1 nogil:
        """Make everything done so far durable; dead blocks may be erased then. Pending trims are logged first: if a
        trim is lost, its LPA must not get an older version than the trimmed one."""
        if self.in_barrier:
            with gil:
                raise RuntimeError("a sync began while another was under way")
        self.in_barrier = True
        try:
            self.log_trims()
            self.pad_pairs()
            self.sync_moves()
            self.syncs += 1
            self.release(self.pool.pending_n)
        finally:
            self.in_barrier = False
        return 0

    cdef int release(self, uint32_t n) except -1 nogil:
        """After a sync: the first ``n`` dead blocks may be erased. While a recovery stands on what is in them, only if
        no other block is free, and only those of users' pages, whose copies the next recovery finds if this one is cut.
        If there are none, the others go, unless blocks have failed: then it ends, and the device can be read."""
        cdef uint32_t users
        if self.stands_on_dead:
            users = self.users_first(n)
            n = 0 if self.pool.free_n else users or (0 if self.pool.failed_n else n)
        self.pool.release_pending(n)
        return 0

    cdef uint32_t users_first(self, uint32_t n) noexcept nogil:
        """Put those of users' pages before the others of the first ``n`` dead blocks; returns how many they are."""
        cdef uint32_t i, block, users = 0
        for i in range(n):
            block = self.pool.pending[i]
            if self.pool.stream[block] < STREAM_META:
                self.pool.pending[i] = self.pool.pending[users]
                self.pool.pending[users] = block
                users += 1
        return users

    cdef int sync_moves(self) except -1 nogil:
        """A sync after which moved blocks may be erased. At a sync the chip notes in its block table how far each block
        is whole, and the note is durable with the next sync. If a recovery accepts metadata pages only with that note,
        a copy without it would be lost: so the original waits for a second sync."""
        self.sync_image()
        if self.mover.moved_metadata:
            self.mover.moved_metadata = False
            if self.checkpointer.trusts_notes:
                self.sync_image()
        return 0

    cdef int pad_pairs(self) except -1 nogil:
        """Before a sync, with paired pages: fill every group that was begun. Otherwise a page made durable could be the
        lower page of one programmed later, and a power cut during that program would destroy both."""
        cdef uint32_t group = 2 * self.nand.paired_pages, block, over
        if group == 0:
            return 0
        for block in range(self.pool.blocks):
            over = self.pool.next_page[block] % group
            if over and (self.pool.state[block] == STATE_OPEN or block == self.meta.block):
                self.pad(block, group - over)
        return 0

    cdef int pad_blocks(self) except -1 nogil:
        """Fill up the host's open blocks, for a scheme that leaves none half filled."""
        cdef uint32_t block
        for block in range(self.pool.blocks):
            if (self.pool.state[block] == STATE_OPEN and self.pool.stream[block] == STREAM_HOST
                    and self.pool.next_page[block]):
                self.pad(block, self.pages_per_block - self.pool.next_page[block])
        return 0

    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil:
        cdef Oob oob
        cdef uint32_t _, ok
        if not self.pool.takes_more(block, CAUSE_PAD, self.now_ns):
            n = 0
        oob.seq = self.seq
        oob.order = self.pool.order[block]
        oob.lpa = NONE
        oob.kind = KIND_PAD
        oob.flags = 0
        oob.stream = self.pool.stream[block]
        memset(self.oobs, 0xFF, self.oob_bytes)
        for _ in range(n):
            oob.number = number_for(self.pool, self.pool.next_page[block])
            oob_pack(self.oobs, &oob)
            self.nand.program(block, self.pool.next_page[block], 1, NULL, self.oobs, CAUSE_PAD, self.now_ns, &ok)
            if not ok:
                self.pool.retire(block)
                break
            self.pool.advance(block, 1)
        if self.pool.next_page[block] == self.pages_per_block and block != self.meta.block:
            self.placement.failed(block)
        return 0

    # --- room

    cdef int make_room(self) except -1 nogil:
        """Clean until a block may be opened for the host. Once an operation has failed, the free blocks that come next
        are erased here: so no erase fails between two moves, and a reserve is one."""
        self.clean_until_room()
        while self.pool.failed_n and not self.stands_on_dead and not self.pool.prove_next(CAUSE_GC, self.now_ns):
            self.clean_until_room()
        return 0

    cdef int clean_until_room(self) except -1 nogil:
        cdef uint32_t tries = 0, group = 2 * self.nand.paired_pages
        while (self.pool.coming() <= self.meta_floor + self.gc_reserve
               or (group and tries and tries < 2 * group and self.cleans_on(group))):
            if self.pool.bad_n and self.pool.coming() <= 1 and not self.last_is_worth_it():
                with gil:
                    raise self.full("one block is left, and cleaning would gain too little with it")
            self.cleaning.clean()
            tries += 1
            if tries % GAINLESS == 0:       # pages that are only kept, or not yet known to be dead, may use up the gain
                self.mapping.release_superseded()
            if tries > 4 * self.pool.blocks + 64 + group * self.pages_per_block:
                with gil:
                    raise self.full("cleaning gains nothing")
        return 0

    cdef bint last_is_worth_it(self) noexcept nogil:
        """Whether cleaning may take the last free block of a chip with bad ones. The erase of what it gains may fail:
        so it has to gain at least half a block. Where few are bad, that erase may well succeed: then the victim's pages
        have to fit the block that is open for moves, or two blocks' worth of pages have to be dead. If not, the block
        is kept: a recovery needs one, and so does cleaning once the host has trimmed something."""
        cdef uint32_t victim = self.victims.fewest(), block, room, valid
        cdef uint64_t dead = 0
        if victim == NONE:
            return False
        valid = self.victims.valid[victim]
        if 2 * valid <= self.pages_per_block:
            return True
        if valid >= self.pages_per_block or WORN * self.pool.bad_n > self.pool.blocks:
            return False
        room = self.placement.run_room(STREAM_GC) if self.pool.stream[victim] < STREAM_META else 0
        if room < self.pages_per_block and valid <= room:
            return True
        for block in range(self.pool.blocks):
            if self.pool.state[block] == STATE_CLOSED:
                dead += self.pages_per_block - self.victims.valid[block]
        return dead >= 2 * self.pages_per_block

    cdef bint cleans_on(self, uint32_t group) noexcept nogil:
        """With paired pages, the next sync pads the group that cleaning has begun: up to three pages per victim if each
        had its own sync, which may be more than the gain. Whether to put another victim's pages there first: there are
        free blocks, and a victim with a dead page."""
        cdef uint32_t block, victim
        if self.pool.free_n <= self.meta_floor + 1:
            return False
        victim = self.victims.fewest()
        if victim == NONE or self.victims.valid[victim] >= self.pages_per_block:
            return False
        for block in range(self.pool.blocks):
            if (self.pool.state[block] == STATE_OPEN and self.pool.stream[block] == STREAM_GC
                    and self.pool.next_page[block] % group):
                return True
        return False

    cdef bint affords_more(self) except -1 nogil:
        """A crash closes half-filled blocks. One of them is made up for by its victim, or is dead. If more than one
        came from the blocks of the next checkpoint, each crash would leave fewer, until recovery is impossible."""
        if self.pool.free_n <= self.meta_floor + 1 and self.pool.pending_n:
            self.barrier()
        return self.pool.free_n > self.meta_floor + 1

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        return self.mover.relocate(block, stream, cause)

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        return self.mover.relocate_blocks(blocks, n, stream, cause)

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        return self.mover.relocate_pages(ppas, n, stream, cause)
