"""What the parts may use of the device; flashfs.engine.device.ssd.Ssd is the device itself."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport KIND_TRANSLATION, KIND_USER
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.contract.extent cimport Extent

from flashfs.errors import DeviceFullError

ALARMS_MOST = 50  #: lines kept; a chip that fails entirely would have one per page

#: why a device refuses changes, by ``Engine.stopped``
UNFINISHED = (
    None,
    "a sync of the image failed, and what it was to write may be lost",
    "pages were programmed, and entering them into the map failed",
    "entering a TRIM into the map failed",
    "pages were moved, and telling the map failed",
    "a table of the map was being changed, and that failed",
    "a checkpoint was written, and taking it up failed",
    "the device failed",
    "pages were being remapped, and that failed",
)


cdef class Engine:
    """What the parts may use of the device.

    Two structures that must agree are changed together. Steps that can fail for a passing reason (a full disk, a block
    to clean first, a record to log) come before and change neither. If the change itself fails (out of memory, or flash
    cannot be read), ``stopped`` still names it and no other change begins: nothing more is written, no checkpoint
    either, and the next mount recovers from flash. Code that makes such a change sets ``stopped`` before it and
    restores the old value after it."""

    def fail(self, why):
        """Refuse all changes from now on, with the reason ``why`` (the first reason is kept), because they could make
        an error worse. Nothing more is written, no checkpoint either, so the next mount recovers from flash."""
        if self.failed is None:
            self.failed = str(why)
        self.stopped = FAILED

    def full(self, what):
        """The DeviceFullError for a device without room: ``what`` could not be had, and how full the blocks are."""
        health = [self.nand.block_health(block) for block in range(self.nand.blocks)]
        live = sum(self.victims.valid[block] for block in range(self.nand.blocks))
        retiring = self.pool.retiring_n     # an operation failed in them: they are marked bad at a sync
        bad = sum(one > 1 for one in health) + retiring
        gone = f"; {bad} have gone bad" if bad else ""
        return DeviceFullError(f"{what}: {live:,} pages live in {health.count(0) - retiring:,} healthy blocks of "
                               f"{self.nand.pages_per_block} pages{gone}")

    def own(self, int kind, Owner owner not None):
        """Make ``owner`` the owner of that kind of pages: cleaning asks it whether they are live and reports their
        moves to it."""
        if self.owners is None:
            self.owners = [None] * KINDS
        self.owners[kind] = owner
        self.owner_at[kind] = <void*> owner

    def owned_pages(self):
        """[(kind, PPA)] of the live pages of every kind except user pages, from their owners."""
        return [(kind, ppa) for kind, owner in enumerate(self.owners) if owner is not None and kind != KIND_USER
                for ppa in owner.live_ppas()]

    def keep_free(self, uint32_t blocks):
        """Keep ``blocks`` more blocks free, like those of the next checkpoint: a recovery may program them before its
        own checkpoint. A part calls this when it is built, before placement is."""
        self.meta_floor += blocks

    def keep_pages(self, uint64_t pages):
        """Set aside blocks for ``pages`` live pages that a part has in flash, in its own stream (one block of it is
        open): the host cannot use them. Called as ``keep_free``."""
        self.part_blocks += (pages + self.nand.pages_per_block - 1) // self.nand.pages_per_block + 1

    def translation_ids(self):
        """The number of translation page ids; 0 without translation pages."""
        return (<Owner> self.owner_at[KIND_TRANSLATION]).ids if self.owner_at[KIND_TRANSLATION] != NULL else 0

    cdef int kind_of(self, uint32_t block) noexcept nogil:
        """The kind of pages in a block, a KIND_ number: user pages, unless the block's stream belongs to the owner of
        another kind. It is user pages, too, for blocks of the metadata log, whose stream has no owner. For a free block
        it is the kind that the block held last."""
        cdef int kind
        for kind in range(KINDS):
            if (self.owner_at[kind] != NULL
                    and (<Owner> self.owner_at[kind]).stream == self.pool.stream[block]):
                return kind
        return KIND_USER

    cdef int close(self, uint32_t block) noexcept nogil:
        """Placement fills this block no further: it becomes a candidate for cleaning or, if cleaning skips its stream,
        for an erase once it has no live page. One that is closed or a candidate already may be given again."""
        self.pool.close(block)
        if self.cleaning.cleans(self.pool.stream[block]):
            self.victims.candidate(block)
        else:
            self.victims.candidate_once_dead(block)
        return 0

    cdef int lose(self, int kind, uint32_t ppa) except -1:
        """Report to the owner of that kind that its page at ``ppa`` is lost: it is not live, or not a page of that
        kind. Does nothing for a kind without an owner. Raises what ``Owner.page_lost`` raises."""
        if self.owner_at[kind] != NULL:
            (<Owner> self.owner_at[kind]).page_lost(ppa)
        return 0

    def alarm(self, text):
        """Record a line about damage found since the mount that no power cut can cause; ALARMS_MOST are kept."""
        if self.alarms is None:
            self.alarms = []
        if len(self.alarms) < ALARMS_MOST and text not in self.alarms:
            self.alarms.append(text)

    def why_stopped(self):
        """None, or why the device refuses changes."""
        return self.failed or UNFINISHED[self.stopped]

    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil:
        """A sequence number that is not below any version of ``lpa`` in flash, and is below each version still to be
        programmed."""
        return 0

    def freeze(self):
        """The image is open read-only: nothing may be programmed from now on."""
        self.frozen = True

    cdef int will_change(self) except -1 nogil:
        """Call before programming anything outside a request for a change (a read may program if the map is in flash).
        DeviceFailedError if the device refuses changes."""
        with gil:
            raise NotImplementedError

    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil:
        """Open an erased block; returns its number. ``die``: the die to take it from, or, if that has no free block,
        the next die that has one; -1: the dies take turns. ``worn``: the most worn free block of all dies instead. The
        erase is counted under ``cause``; a block whose erase fails is marked bad, and the next one is taken. Syncs
        first if too few blocks are free and others become free by it. DeviceFullError if there is none."""
        with gil:
            raise NotImplementedError

    cdef int make_room(self) except -1 nogil:
        """Clean until a block may be opened for the host."""
        with gil:
            raise NotImplementedError

    cdef int take_back(self) except -1 nogil:
        """After ``prepare``: the map's cache may have grown into memory that the data cache had meanwhile."""
        with gil:
            raise NotImplementedError

    cdef bint affords_more(self) except -1 nogil:
        """Whether a stream of cleaning that has an open block may open another."""
        with gil:
            raise NotImplementedError

    # Code that programs what placement gave does it in one loop until nothing is left: take an extent, fill in its
    # OOBs, ``program``, enter the pages into the tables, ``programmed``. The entries and OOBs differ: the host's pages
    # are bound one extent at a time, moved pages all at the end, a translation page by its owner. There are two
    # exceptions: the metadata log, which has its own block (no placement) and whose pages no checkpoint counts, and
    # padding, which is not retried elsewhere.

    cdef uint64_t checkpoint_id(self) noexcept:
        """The number of the newest checkpoint; the next one has one more."""
        return 0

    cdef bint fills(self) noexcept:
        """Whether pages of a checkpoint that are all zeros or all ones are not programmed: an image without
        ``flashfs.checkpoint-fills`` programs all, and keeps the sections that it always had."""
        return True

    cdef int barrier(self) except -1 nogil:
        """Make everything programmed and trimmed so far durable."""
        with gil:
            raise NotImplementedError

    cdef int64_t program(self, const Extent* at, const uint8_t* data, const uint8_t* oobs, int cause, int64_t t_ns,
                         uint32_t* ok) except -1 nogil:
        """Program the extent's pages; ``ok[0]`` gets how many were programmed. Returns the virtual time of the end, in
        ns."""
        cdef int64_t end = self.nand.program(at.block, at.page, at.n, data, oobs, cause, t_ns, ok)
        self.pool.advance(at.block, ok[0])
        self.since_checkpoint += ok[0]
        return end

    cdef int programmed(self, const Extent* at, uint32_t ok) except -1 nogil:
        """Call once the ``ok`` programmed pages are in all tables. If ``ok`` is less than the extent, a program failed:
        the block is retired (its pages move out soon), and the pages that are left need another place."""
        if ok:
            self.placement.used(at.block, ok)
        if ok < at.n:
            self.pool.retire(at.block)
            self.placement.failed(at.block)
        return 0

    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil:
        """Program ``n`` padding pages in an open block, for a placement that leaves a hole before the next page; ``n``
        must not exceed the pages left. Fewer are programmed if the block takes no more (see ``pool.next_page``): after
        a failed program, or once it is full, the block is given up (``Placement.failed``)."""
        with gil:
            raise NotImplementedError

    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil:
        """As ``open_block``, but only this block: -1 if it is not free or its erase fails."""
        with gil:
            raise NotImplementedError

    def carry(self, uint32_t pages):
        """Allocate the lists for moves of groups of blocks with up to ``pages`` live pages: 33 bytes per page, once."""
        raise NotImplementedError

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        """Move a block's live pages to where placement puts them and release the block. The mapping is updated when all
        are copied. Returns 1; or 0, with nothing changed, if placement ended the move with an extent of 0 pages."""
        with gil:
            raise NotImplementedError

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        """Move the live pages of ``n`` blocks, sorted by LPA throughout, and release the blocks together: one move, as
        ``relocate``, which a power cut undoes as a whole. ``carry`` must have made room. If one move is not possible
        (no room here or in a validity store in flash, or too many groups were moved since the last checkpoint), the
        blocks are moved one by one, as blocks of other page kinds always are. Returns 0 if placement ended the move:
        some blocks may be moved then."""
        with gil:
            raise NotImplementedError

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        """Move ``n`` user pages, given in ascending order of PPAs, to places sorted by LPA, and release no block. Pages
        that are not live, or whose OOB names no owner, stay. A crash may undo the move for blocks that still hold live
        pages. If validity in flash has no room for all reports, the pages move in several parts, each sorted. Returns
        as ``relocate``, though earlier parts may be moved then; ValueError for more pages than ``carry`` made room
        for."""
        with gil:
            raise NotImplementedError
