# distutils: language = c++
"""Cleaning by superblocks whose entries in NVRAM move along (Remap-SSD, section 4.4): room for those is made first."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_GC, FLAG_LOST, KIND_USER, NONE, STATE_OPEN, STREAM_GC
from flashfs.engine.blocks.victims cimport LISTED
from flashfs.engine.device.ssd cimport Ssd
from flashfs.parts.superblocks.superblocks cimport SuperblockGreedy
from flashfs.ftl.remapssd.mapping cimport RemapTable

from flashfs.errors import CorruptError

cdef enum:
    ENDS_LEAST = 4           # segments that are free for a move, beside those that its entries fill

cdef class EntryRoom:
    """Prepares moves of a superblock's pages. ``shed_n`` pages were written out for a single LPA, since NVRAM could not
    take the entries of all LPAs that share a page. ``alone``: while entries are looked up no die begins an
    operation. ``ends``: in how many superblocks a move may end at most."""

    def __cinit__(self, Ssd ssd not None, RemapTable mapping not None, bint alone=False, uint32_t ends=4):
        self.ssd = ssd
        self.ends = ends
        self.mapping = mapping
        self.alone = alone
        self.page = <uint8_t*> malloc(ssd.nand.page_bytes)
        if self.page == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.page)

    cdef int64_t begin(self, uint32_t superblock, uint32_t block, uint64_t live) except -1 nogil:
        """Make room for the entries of the superblock, or of that one of its blocks (NONE: all), of which ``live``
        pages will move; and read them. Returns the virtual end time. DeviceFullError rather than that pages which are
        written out take blocks that are kept for a checkpoint."""
        cdef uint64_t valid = self.mapping.rmm.valid_of(superblock, block), lost = 0
        cdef int64_t start, end
        if not self.mapping.rmm.looks_up(superblock):
            return self.ssd.now_ns
        self.ssd.map_ns = self.ssd.now_ns
        while valid and not self.mapping.rmm.gain(self.segments_for(valid)):
            if self.room() <= live:
                with gil:
                    raise self.ssd.full("NVRAM has no room for the entries of what cleaning moves")
            if not self.shed(superblock, block, &lost):
                self.shed_lost(superblock, block)
                lost -= 1
            valid = self.mapping.rmm.valid_of(superblock, block)
        start = max(self.ssd.now_ns, self.ssd.map_ns)
        end = self.mapping.rmm.charge_lookup(superblock, CAUSE_GC, start)
        if self.alone:
            self.ssd.nand.hold(start, end)
        self.mapping.charged = superblock
        return end

    cdef uint64_t segments_for(self, uint64_t valid) noexcept nogil:
        """Segments that so many entries may take after a move: copies go to ``ends`` superblocks at most, each of which
        begins one."""
        return self.mapping.rmm.segments_for(valid) + max(<uint64_t> ENDS_LEAST, min(valid, <uint64_t> self.ends))

    cdef bint fits(self, uint32_t superblock, uint32_t block, uint64_t live) except -1 nogil:
        """Whether cleaning has room for ``live`` pages of that superblock, or of that block of it, and for those that
        are shed before they move."""
        cdef uint64_t valid
        if not self.mapping.rmm.looks_up(superblock):
            return True
        valid = self.mapping.rmm.valid_of(superblock, block)
        return valid == 0 or self.mapping.rmm.gain(self.segments_for(valid)) or valid + live <= self.room()

    cdef bint may_evacuate(self, uint32_t block) except -1 nogil:
        """As ``fits``, for wear levelling and for blocks to be retired: they can wait. If so, room is made."""
        cdef uint64_t live = self.ssd.victims.valid[block]
        if not self.fits(block // self.ssd.nand.dies, block, live):
            return False
        self.begin(block // self.ssd.nand.dies, block, live)
        return True

    cdef uint64_t room(self) noexcept nogil:
        """Pages that cleaning may program before it frees a block: in its open blocks, and in free ones that are not
        reserved for a checkpoint."""
        cdef uint64_t pages = 0
        cdef uint32_t block, spare = self.ssd.pool.free_n + self.ssd.pool.pending_n
        for block in range(self.ssd.pool.blocks):
            if self.ssd.pool.state[block] == STATE_OPEN and self.ssd.pool.stream[block] == STREAM_GC:
                pages += self.ssd.pool.pages_per_block - self.ssd.pool.next_page[block]
        if spare > self.ssd.meta_floor:
            pages += <uint64_t> (spare - self.ssd.meta_floor) * self.ssd.pool.pages_per_block
        return pages

    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil:
        """The block with the fewest live pages; if NVRAM is full, the one among those with room to write out the pages
        that its entries share, if there is any."""
        cdef uint32_t* valid = self.ssd.victims.valid
        cdef uint32_t first = self.ssd.victims.fewest(), best = NONE, block
        if first == NONE or valid[first] == 0 or self.fits(first // self.ssd.pool.dies, first, valid[first]):
            return first
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.victims.listed[block] == LISTED and valid[block] < self.ssd.pool.pages_per_block
                    and (best == NONE or valid[block] < valid[best])
                    and self.fits(block // self.ssd.pool.dies, block, valid[block])):
                best = block
        return first if best == NONE else best

    cdef int64_t begin_block(self) except -1 nogil:
        """As ``begin``, for the block that cleaning takes next if it takes single blocks. Making room may write pages
        out, which may change that block."""
        cdef uint32_t block = self.victim(), before = NONE
        cdef int64_t end = self.ssd.now_ns
        while block != NONE and block != before and self.ssd.victims.valid[block]:  # else nothing of it moves
            end = max(end, self.begin(block // self.ssd.nand.dies, block, self.ssd.victims.valid[block]))
            before = block
            block = self.victim()
        return end

    cdef bint shed(self, uint32_t superblock, uint32_t block, uint64_t* lost) except -1 nogil:
        """Write a page of its own for an LPA that an entry brought to a page of this superblock, or of that block of
        it; False if there is none. It gets a new sequence number or, if the host's version in the buffer or on its way
        to flash already has one, the number below that. ``lost``: valid entries to skip, whose pages cannot be read."""
        cdef uint32_t lpa = self.mapping.rmm.nth_valid(superblock, block, lost[0])
        cdef int64_t end
        while lpa != NONE and not self.read_out(lpa, &end):
            lost[0] += 1
            lpa = self.mapping.rmm.nth_valid(superblock, block, lost[0])
        if lpa == NONE:
            return False
        self.write_out(lpa, 0, end)
        self.shed_n += 1
        return True

    cdef bint shed_lost(self, uint32_t superblock, uint32_t block) except -1 nogil:
        """As ``shed``, if no shared page can be read: the LPA gets a page marked as lost, as it would if its page were
        moved. Such entries would otherwise keep the superblock forever."""
        cdef uint32_t lpa = self.mapping.rmm.nth_valid(superblock, block, 0)
        if lpa == NONE:
            with gil:
                raise CorruptError(f"NVRAM has no room for the entries of superblock {superblock}, and none is found")
        memset(self.page, 0, self.ssd.nand.page_bytes)
        self.write_out(lpa, FLAG_LOST, self.ssd.now_ns)
        self.ssd.mover.lost_pages += 1
        self.shed_n += 1
        return True

    cdef bint read_out(self, uint32_t lpa, int64_t* t_ns) except -1 nogil:
        """Read the LPA's page in flash into ``page``; False if it cannot be read. The write buffer may have a newer
        version, with its own number."""
        cdef uint32_t ppa = self.mapping.at(lpa)
        cdef int wrong = 1
        t_ns[0] = self.ssd.reader.read_one(lpa, ppa, self.page, self.ssd.now_ns, &wrong)
        if wrong:                          # a page that fails once may read at the second try
            t_ns[0] = self.ssd.reader.read_one(lpa, ppa, self.page, t_ns[0], &wrong)
        return not wrong

    cdef int write_out(self, uint32_t lpa, uint8_t flags, int64_t t_ns) except -1 nogil:
        """Append ``page`` with these flags in its OOB. The host may itself be in the middle of an append, which makes
        room: its state is kept, and this page is not taken for one that waits for its fingerprint."""
        cdef uint32_t appended = self.ssd.appended
        cdef int64_t known = self.ssd.known[0]
        cdef bint noted = self.mapping.notes_prints
        cdef uint64_t seq = self.ssd.seq_before(lpa)
        if seq == self.ssd.seq:            # a trim may have that number, and more to unmap
            self.ssd.seq += 1
            seq = self.ssd.seq
        self.mapping.notes_prints = False
        self.ssd.append_flags = flags
        try:
            self.ssd.append(STREAM_GC, KIND_USER, &lpa, &seq, 1, self.page if self.ssd.nand.keeps_data else NULL,
                            CAUSE_GC, t_ns, NULL)
        finally:
            self.ssd.appended = appended
            self.ssd.known[0] = known
            self.mapping.notes_prints = noted
        return 0


cdef class RemapGreedy(Greedy):
    """Cleaning by single blocks, on a chip too small for superblocks."""

    def __cinit__(self, Engine ssd, EntryRoom room=None, **__):
        if room is None:
            raise ValueError("cleaning of a device that remaps needs room for entries")
        self.entries = room

    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil:
        return self.entries.victim()

    cdef int clean(self) except -1 nogil:
        cdef int64_t before = self.ssd.now_ns
        self.ssd.now_ns = self.entries.begin_block()
        try:
            return Greedy.clean(self)
        finally:
            self.ssd.now_ns = before

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        return Greedy.evacuate(self, block, cause) if self.entries.may_evacuate(block) else 0


cdef class RemapSuperblocks(SuperblockGreedy):
    """Cleaning by superblocks, as in the paper."""

    def __cinit__(self, Engine ssd, EntryRoom room=None, **__):
        if room is None:
            raise ValueError("cleaning of a device that remaps needs room for entries")
        self.entries = room

    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil:
        return self.entries.victim()

    cdef int clean(self) except -1 nogil:
        cdef uint64_t live
        cdef uint32_t offset = self.fewest()
        if offset != NONE:
            self.count(offset, &live)
        if offset == NONE or not self.entries.fits(offset, NONE, live):  # no superblock: take a single block
            self.entries.begin_block()
            return Greedy.clean(self)
        return SuperblockGreedy.clean(self)

    cdef int empty(self, uint32_t offset) except -1 nogil:
        cdef int64_t before = self.ssd.now_ns
        cdef uint64_t live
        self.count(offset, &live)
        self.ssd.now_ns = self.entries.begin(offset, NONE, live)
        try:
            return SuperblockGreedy.empty(self, offset)
        finally:
            self.ssd.now_ns = before

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        return SuperblockGreedy.evacuate(self, block, cause) if self.entries.may_evacuate(block) else 0
