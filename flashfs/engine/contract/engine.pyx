"""The device, as far as its parts may lean on it: flashfs.engine.device.ssd.Ssd is the device itself."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport KIND_TRANSLATION, KIND_USER
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.contract.extent cimport Extent

from flashfs.errors import DeviceFullError

ALARMS_MOST = 50  #: lines kept; a chip that fails altogether would have one a page

#: why a device takes no more changes, by ``Engine.stopped``
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
    """The device, as far as its parts may lean on it.

    Two structures that have to agree are changed in one go: whatever can fail for a reason that passes (a full disk, a
    block that is to be cleaned first, a record that is to be logged) comes before, and changes neither. Should the
    change itself fail all the same, because memory ran out or flash could not be read, then ``stopped`` still says
    which it was, and no other change begins: nothing more is written, a checkpoint least of all, and the next mount
    recovers from what flash says. Whoever changes sets ``stopped`` before, and puts back after what it found there."""

    def fail(self, why):
        """Something went wrong that further changes could only make worse: refuse them all from now on, saying
        ``why`` (the first reason counts). Nothing is written any more, a checkpoint least of all, so the next mount
        recovers from what flash says."""
        if self.failed is None:
            self.failed = str(why)
        self.stopped = FAILED

    def full(self, what):
        """The error of a device that can take no more: ``what`` was not to be had, and what there is."""
        health = [self.nand.block_health(block) for block in range(self.nand.blocks)]
        live = sum(self.victims.valid[block] for block in range(self.nand.blocks))
        bad = sum(one > 1 for one in health)
        gone = f"; {bad} have gone bad" if bad else ""
        return DeviceFullError(f"{what}: {live:,} pages live in {health.count(0):,} healthy blocks of "
                               f"{self.nand.pages_per_block} pages{gone}")

    def own(self, int kind, Owner owner not None):
        """Pages of that kind are ``owner``'s: cleaning asks it about them and tells it where they went."""
        if self.owners is None:
            self.owners = [None] * KINDS
        self.owners[kind] = owner
        self.owner_at[kind] = <void*> owner

    def owned_pages(self):
        """[(kind, PPA)] of the live pages of every kind but the user's, as their owners know them."""
        return [(kind, ppa) for kind, owner in enumerate(self.owners) if owner is not None and kind != KIND_USER
                for ppa in owner.live_ppas()]

    def keep_free(self, uint32_t blocks):
        """A recovery may have to program so many blocks before its checkpoint: they are kept free like those that the
        checkpoint itself needs. A part asks for them when it is made, before placement is."""
        self.meta_floor += blocks

    def keep_pages(self, uint64_t pages):
        """A part may have so many live pages of its own in flash, in blocks of a stream of its own, one of them open:
        they are not the host's. Asked for as ``keep_free``."""
        self.part_blocks += (pages + self.nand.pages_per_block - 1) // self.nand.pages_per_block + 1

    def translation_ids(self):
        """How many translation pages there may be."""
        return (<Owner> self.owner_at[KIND_TRANSLATION]).ids if self.owner_at[KIND_TRANSLATION] != NULL else 0

    cdef int kind_of(self, uint32_t block) noexcept nogil:
        """What kind of pages is in a block: user pages, unless it is of a stream that another kind's owner has."""
        cdef int kind
        for kind in range(KINDS):
            if (self.owner_at[kind] != NULL
                    and (<Owner> self.owner_at[kind]).stream == self.pool.stream[block]):
                return kind
        return KIND_USER

    cdef int close(self, uint32_t block) noexcept nogil:
        """Placement fills this block no further. It may be cleaned; or, where cleaning keeps away from its stream, be
        erased once nothing in it lives."""
        self.pool.close(block)
        if self.cleaning.cleans(self.pool.stream[block]):
            self.victims.candidate(block)
        else:
            self.victims.candidate_once_dead(block)
        return 0

    cdef int lose(self, int kind, uint32_t ppa) except -1:
        """A page of that kind is gone: its owner must do without."""
        if self.owner_at[kind] != NULL:
            (<Owner> self.owner_at[kind]).page_lost(ppa)
        return 0

    def alarm(self, text):
        """Something was found since the mount that no power cut can have left: a line for those who ask."""
        if self.alarms is None:
            self.alarms = []
        if len(self.alarms) < ALARMS_MOST and text not in self.alarms:
            self.alarms.append(text)

    def why_stopped(self):
        """None, or why the device takes no more changes."""
        return self.failed or UNFINISHED[self.stopped]

    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil:
        """A sequence number that no version of ``lpa`` in flash exceeds, and each version still to be programmed
        does."""
        return 0

    def freeze(self):
        """The image is opened to be read: nothing may be programmed from now on."""
        self.frozen = True

    cdef int will_change(self) except -1 nogil:
        """Before anything is programmed that no request for a change has announced: a read may do that, where the map
        is in flash. DeviceFailedError if the device takes no changes."""
        with gil:
            raise NotImplementedError

    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil:
        """A fresh, erased block; forces a sync when only pending ones are left. DeviceFullError if there is none."""
        with gil:
            raise NotImplementedError

    cdef int make_room(self) except -1 nogil:
        """Clean until a block may be opened for the host."""
        with gil:
            raise NotImplementedError

    cdef bint affords_more(self) except -1 nogil:
        """Whether a stream of cleaning may open a block beside one that it has open already."""
        with gil:
            raise NotImplementedError

    # Whoever programs what placement gave does it in one loop: take an extent, fill in its OOBs, ``program``, enter
    # what was programmed into the tables, ``programmed``; until nothing is left. What is entered, and what OOBs say,
    # differs: the host's pages are bound one extent at a time, moved pages all at the end, a translation page by its
    # owner. Two do not go this way: the metadata log, which has its block from nobody's placement and whose pages no
    # checkpoint counts, and padding, which is not tried elsewhere.

    cdef int barrier(self) except -1 nogil:
        """What was programmed and trimmed is durable then."""
        with gil:
            raise NotImplementedError

    cdef int64_t program(self, const Extent* at, const uint8_t* data, const uint8_t* oobs, int cause, int64_t t_ns,
                         uint32_t* ok) except -1 nogil:
        """Program the extent's pages; ``ok[0]`` of them were, and count. Returns when they are there."""
        cdef int64_t end = self.nand.program(at.block, at.page, at.n, data, oobs, cause, t_ns, ok)
        self.pool.advance(at.block, ok[0])
        self.since_checkpoint += ok[0]
        return end

    cdef int programmed(self, const Extent* at, uint32_t ok) except -1 nogil:
        """All tables know of the ``ok`` pages. If they are not all of the extent, the chip reported a failed program:
        the rest of the block is given up, its pages move out soon, and the pages that are left need another place."""
        if ok:
            self.placement.used(at.block, ok)
        if ok < at.n:
            self.pool.retire(at.block)
            self.placement.failed(at.block)
        return 0

    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil:
        """Program ``n`` pages of an open block that hold nothing, for a placement that leaves a hole before the next
        page. Fewer are programmed if the block takes no more (``pool.next_page`` says where it stands): a program may
        fail, and then the block is given up; one that is full is given up too (``Placement.failed``)."""
        with gil:
            raise NotImplementedError

    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil:
        """As ``open_block``, but this block or none: -1 if it is not free any more, or has gone bad."""
        with gil:
            raise NotImplementedError

    def carry(self, uint32_t pages):
        """Cleaning is going to move groups of blocks that hold up to so many live pages: room for the lists is made
        once, some 40 bytes per page."""
        raise NotImplementedError

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        """Move a block's live pages to where placement puts them and release it. The mapping hears of it when all
        are copied. Returns 1; or 0, with nothing changed, if placement broke the move off (an extent of 0 pages)."""
        with gil:
            raise NotImplementedError

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        """Move the live pages of ``n`` blocks, sorted by LPA throughout, and release the blocks together: one move, as
        ``relocate``, which a power cut undoes as a whole. ``carry`` has made room. Where it cannot be one move (there
        is no room, here or in a validity store in flash, or too many groups were moved since the last checkpoint) the
        blocks are moved one by one; those of another kind's owner always are. Returns 0 if placement broke it off: some
        blocks may be moved then."""
        with gil:
            raise NotImplementedError

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        """Move ``n`` user pages, in ascending order of PPAs, sorted by LPA, and release no block. Those that are not
        live, or do not say whose they are, stay. A crash may undo it, wherever the pages' blocks still hold live ones.
        Where validity in flash has no room for all that is to be reported, they move in several parts, each of them
        sorted. Returns as ``relocate``, if parts before that were moved; ValueError for more pages than ``carry`` made
        room for."""
        with gil:
            raise NotImplementedError
