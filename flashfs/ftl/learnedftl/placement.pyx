# distutils: language = c++
"""LearnedFTL's placement and cleaning: superblocks in the order of VPPNs, each opened for a group of translation pages.

The host fills a few at a time, in *slots*. A group that writes and has none opens one if there are enough free blocks;
else it borrows from the slot with the most room (the paper's opportunistic cross-group allocation). A superblock of
which much is lent loses its owner.

Superblocks of groups are *homes*, and all others *logs*. A group is cleaned as a whole: all its pages, wherever they
are, move to a home, sorted by LPA (``LearnedMap.order_group``). A log is cleaned by itself once few of its pages live:
how few follows from the spare space. Until then the next group is put in order, that of which models know the fewest
pages: its pages in all logs die, and its old home with them. So order costs what cleaning costs anyway, also where few
superblocks are spare. Where there is much spare space no group would need to move: groups move for the models' sake
too, as far as ``budget`` allows, once models know half of their pages no more.

This is done before the host's next page is placed, when no slot has room: pages of the mapping written in between use
blocks that are kept free, and if those run out, the superblock with the fewest live pages is cleaned, whatever group
owns it.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport CAUSE_GC, CAUSE_HOST, NONE, STATE_FREE, STREAM_GC, STREAM_HOST, STREAM_MAP
from flashfs.parts.superblocks.superblocks cimport SuperblockGreedy, Superblocks
from flashfs.engine.blocks.victims cimport EMPTIED
from flashfs.ftl.learnedftl.mapping cimport LearnedMap

cdef extern from "<math.h>" nogil:
    double sqrt(double)

cdef double FALLS = 1.27     # by how much the live share of a log falls with the root of the spare space
cdef double LIVE_LEAST = 0.25, LIVE_MOST = 0.8

cdef enum:
    DEAR = 40                # pages moved for one gained: more are too many while there are free blocks
    VAIN = 6                 # times as dear as the cheapest superblock: a group that has hardly changed is left alone

SLOTS_MOST = 16
_SLOT_NAMES = "group"


def add_streams(ssd, slots, most):
    """Add the stream for groups that are put in order, and after it those of the slots beyond the first, whose stream
    is the host's; returns the former. There are streams for ``most`` slots, unused ones with no block open: pages and
    checkpoints have the numbers of streams, and another mount may have other options."""
    order = ssd.pool.add_stream("ordered", CAUSE_GC, ssd.nand.dies if slots else 0)
    for slot in range(1, most):
        ssd.pool.add_stream(f"{_SLOT_NAMES}{slot}", CAUSE_HOST, ssd.nand.dies if slot < slots else 0)
    return order


cdef class GroupSuperblocks(Superblocks):
    """Superblocks for the groups of a LearnedMap, ``slots`` of them open for the host."""

    def join(self, LearnedMap map not None, SuperblockGreedy cleaner not None, int order_stream, uint32_t slots):
        """Connect placement, the mapping (which has the groups) and cleaning. The slots' streams follow
        ``order_stream``, as ``add_streams`` made them."""
        cdef uint32_t i
        self.map = map
        self.groups = map.groups
        self.cleaner = cleaner
        self.slots = slots
        self.order_blocks = max(self.dies, (self.groups.group_lpas + self.groups.pages_per_block - 1)
                                // self.groups.pages_per_block)
        self.order_stream = order_stream
        self.lender = <uint8_t*> malloc(self.groups.n)
        if self.lender == NULL:
            raise MemoryError
        self.slot_stream[0] = STREAM_HOST
        for i in range(1, self.slots):
            self.slot_stream[i] = order_stream + <int> i
        self.forget()

    def __dealloc__(self):
        free(self.lender)

    def forget(self):
        cdef uint32_t i
        for i in range(self.slots):
            self.slot_owner[i] = NONE
        memset(self.lender, 0xFF, self.groups.n)
        self.seen_free = self.seen_pending = self.seen_opened = NONE

    def attach(self):
        """A superblock that was open at an unmount continues as its group's; after a recovery, as that of the next
        group that writes."""
        cdef uint32_t slot
        super().attach()
        self.forget()
        for slot in range(self.slots):
            if self.turn_to(self.slot_stream[slot]):
                self.slot_owner[slot] = self.groups.owner[self.offset[self.slot_stream[slot]]]

    # --- where the host's pages go

    cdef int make_ready(self, int stream) except -1 nogil:
        """Moves may be reported to the mapping here, so clean here if needed."""
        if stream != STREAM_HOST:
            return 0
        if not self.has_room():
            self.clean_for_groups()
        return self.ssd.make_room()

    cdef bint choose(self, int stream) noexcept nogil:
        """As for any superblock. It is no group's before it is opened for one."""
        if not Superblocks.choose(self, stream):
            return False
        self.groups.disown(self.offset[stream])
        return True

    cdef bint has_room(self) noexcept nogil:
        """Whether any slot has room. Groups borrow until none has: a superblock cleaned sooner would lie empty."""
        cdef uint32_t slot
        for slot in range(self.slots):
            if self.turn_to(self.slot_stream[slot]):
                return True
        return False

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        return 0 if stream == STREAM_HOST else Superblocks.run_room(self, stream)

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t run = 1
        if stream == self.order_stream and self.order_blocks == self.dies and not self.turn_to(stream):
            stream = STREAM_GC              # the superblock has bad blocks, and too little room for the group
        if stream != STREAM_HOST:
            return Superblocks.take(self, stream, lpas, n, out)
        self.taking = self.groups.of(lpas[0])
        while run < n and self.groups.of(lpas[run]) == self.taking:
            run += 1
        self.taking_from = self.slot_for(self.taking)
        return Superblocks.take(self, self.slot_stream[self.taking_from], lpas, run, out)

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if self.ssd.pool.stream[block] == self.slot_stream[self.taking_from] and self.taking != NONE:
            self.groups.wrote(self.taking, block // self.dies, n)
            self.taking = NONE
        return Superblocks.used(self, block, n)

    cdef uint32_t slot_for(self, uint32_t group) except? 0xFFFFFFFE nogil:
        """The slot that a page of the group goes to."""
        cdef uint32_t slot, idle = NONE, lost = NONE
        for slot in range(self.slots):
            if not self.turn_to(self.slot_stream[slot]):
                idle = slot
            elif self.slot_owner[slot] == group:
                return slot
            elif self.slot_owner[slot] == NONE:
                lost = slot
        if lost != NONE:                    # a superblock that was open at the mount
            self.slot_owner[lost] = group
            self.groups.open(self.offset[self.slot_stream[lost]], group)
            return lost
        if idle != NONE and self.at_hand() >= self.kept() + self.dies:
            return self.begin(idle, group)
        slot = self.borrow(group)
        return self.begin(idle, group) if slot == NONE else slot

    cdef uint32_t begin(self, uint32_t slot, uint32_t group) except? 0xFFFFFFFE nogil:
        """Open another superblock for the group. If no block is free, ``fresh`` finds one."""
        self.slot_owner[slot] = group
        if self.choose(self.slot_stream[slot]):
            self.groups.open(self.offset[self.slot_stream[slot]], group)
        self.seen_free = NONE
        return slot

    cdef uint32_t borrow(self, uint32_t group) noexcept nogil:
        """The slot that the group borrowed from before, or else the one with the most room; NONE if none has any."""
        cdef uint32_t slot = self.lender[group], room, most = 0
        if slot < self.slots and self.turn_to(self.slot_stream[slot]):
            return slot
        self.lender[group] = 0xFF
        for slot in range(self.slots):
            room = self.room_of(self.slot_stream[slot])
            if room > most:
                most = room
                self.lender[group] = <uint8_t> slot
        return self.lender[group] if most else NONE

    cdef uint32_t room_of(self, int stream) noexcept nogil:
        """Pages that can still be programmed in the stream's superblock."""
        cdef uint32_t die, block, room = 0
        for die in range(self.dies):
            block = self.open_of[stream * self.most + die]
            if block != NONE:
                room += self.ssd.pool.pages_per_block - self.ssd.pool.next_page[block]
            elif (self.to_open[stream * self.dies + die]
                    and self.ssd.pool.state[self.offset[stream] * self.dies + die] == STATE_FREE):
                room += self.ssd.pool.pages_per_block
        return room

    # --- what is free

    cdef uint32_t kept(self) noexcept nogil:
        """Blocks that are kept free: the reserve, those for putting a group in order (a superblock, or more if a single
        translation page has more LPAs than that), and those that the map will open soon: blocks that it fills in turn
        are full at about the same time."""
        return self.ssd.meta_floor + self.ssd.gc_reserve + self.order_blocks + self.map_owes()

    cdef uint32_t map_owes(self) noexcept nogil:
        """If translation pages go to several blocks in turn: how much of those is filled, in blocks."""
        cdef uint32_t i, block, width = self.width[STREAM_MAP]
        cdef uint64_t filled = 0
        if width <= 1:
            return 0
        for i in range(width):
            block = self.open_of[STREAM_MAP * self.most + i]
            filled += self.ssd.pool.pages_per_block if block == NONE else self.ssd.pool.next_page[block]
        return <uint32_t> (filled // self.ssd.pool.pages_per_block)

    cdef uint32_t at_hand(self) noexcept nogil:
        """Free blocks, without those of superblocks that are being filled. Recounted when the pool has changed."""
        cdef uint32_t i, die
        cdef int stream
        if (self.seen_free != self.ssd.pool.free_n or self.seen_pending != self.ssd.pool.pending_n
                or self.seen_opened != <uint32_t> self.opened_n):
            self.seen_free = self.ssd.pool.free_n
            self.seen_pending = self.ssd.pool.pending_n
            self.seen_opened = <uint32_t> self.opened_n
            self.promised = 0
            for i in range(self.slots):
                stream = self.slot_stream[i]
                for die in range(self.dies):
                    if (self.to_open[stream * self.dies + die]
                            and self.ssd.pool.state[self.offset[stream] * self.dies + die] == STATE_FREE):
                        self.promised += 1
        return max(self.ssd.pool.free_n + self.ssd.pool.pending_n, self.promised) - self.promised

    # --- cleaning

    cdef int clean_for_groups(self) except -1 nogil:
        """Clean until the next superblock may be opened: a superblock without live pages, else a log of which little
        lives, else the next group; what is cheapest by itself, whatever it is, if there is no room for a group."""
        cdef Candidates found
        cdef uint32_t group, block, tries = 0
        while self.at_hand() < self.kept() + self.dies and tries < 2 * self.superblocks:
            tries += 1
            block = self.ssd.victims.fewest()
            if block != NONE and self.ssd.victims.listed[block] == EMPTIED:
                self.ssd.relocate(block, STREAM_GC, CAUSE_GC)
                continue
            self.look_round(&found)
            if found.dead == NONE and self.cleaner.goes_alone(block, found.moves, found.gain):
                self.ssd.relocate(block, STREAM_GC, CAUSE_GC)
                continue
            group = self.next_group(&found)
            if found.dead != NONE:
                self.cleaner.empty(found.dead)
            elif group != NONE:
                self.clean_group(group)
            elif found.cheapest != NONE and found.moves <= found.gain * DEAR:
                self.groups.disown(found.cheapest)
                self.cleaner.empty(found.cheapest)
            else:
                break
        return 0

    cdef uint32_t next_group(self, const Candidates* found) noexcept nogil:
        """The group to be put in order before the cheapest superblock is cleaned by itself, or NONE."""
        cdef uint32_t group
        if self.at_hand() < self.kept():
            return NONE
        group = self.map.most_unknown()
        if group == NONE:
            return NONE
        if self.groups.may_move() and 2 * self.map.unknown_of(group) >= self.groups.group_lpas:
            return group
        if found.cheapest != NONE and (
                found.moves <= found.gain * self.worth(found)
                or <uint64_t> self.groups.group_lpas * found.gain > VAIN * found.moves * self.map.unknown_of(group)):
            return NONE
        return group

    cdef double worth(self, const Candidates* found) noexcept nogil:
        """How many moves a page is worth that cleaning of a superblock by itself gains. The share of a log that may
        live falls with the square root of the spare space: 0.68 with 6.25 % of the live pages, 0.55 with 12.5 %, and a
        third with 28 %. (Found by trial there; between 0.65 and 0.72 of 6.25 % the WAF differs by a fiftieth.)"""
        cdef double pages = <double> self.superblocks * self.groups.superblock_pages
        cdef double live = 1 - FALLS * sqrt(max(0.0, pages / max(<uint64_t> 1, found.live) - 1))
        live = min(LIVE_MOST, max(LIVE_LEAST, live))
        return live / (1 - live)

    cdef int look_round(self, Candidates* found) noexcept nogil:
        """Look at all superblocks: for one without live pages, and for the one that is cheapest to clean by itself.
        Pages of a home count twice: they will be put in order again."""
        cdef uint32_t offset
        cdef uint64_t live, closed, one
        found.dead = found.cheapest = NONE
        found.live = found.moves = found.gain = 0
        for offset in range(self.superblocks):
            closed = self.cleaner.count(offset, &live)
            found.live += live
            if live == closed:
                continue
            if live == 0 and found.dead == NONE:
                found.dead = offset
            one = 2 * live if self.groups.is_own(offset) else live
            if found.cheapest == NONE or one * found.gain < found.moves * (closed - live):
                found.cheapest = offset
                found.moves = one
                found.gain = closed - live
        return 0

    cdef int clean_group(self, uint32_t group) except -1 nogil:
        """Move all pages of the group, in the order of their LPAs; unless models know most of them: then few of its
        pages are dead, or they lie in superblocks that may be cleaned by themselves."""
        cdef uint32_t unknown = 0, n = self.map.find_group(group, &unknown)
        self.groups.settle(group, unknown)
        if n == 0 or <uint64_t> unknown * 100 < <uint64_t> n * self.groups.share:
            return 0
        self.begin_order(group, n)
        self.map.order_group(n, self.order_stream)
        self.groups.settle(group, 0)
        self.groups.spend(n)
        return 0

    def order(self, uint32_t group):
        """For measurements: put the group in order now, if there is room and enough of it has changed."""
        if group >= self.groups.n:
            raise ValueError(f"group {group}: there are {self.groups.n}")
        if self.at_hand() >= self.kept():
            self.clean_group(group)

    cdef int begin_order(self, uint32_t group, uint32_t n) except -1 nogil:
        """Prepare to put ``n`` pages of the group in order: in the superblock used last for that if it has room for
        all, or else in another one."""
        cdef uint32_t die, at = self.order_stream * self.most
        if self.room_of(self.order_stream) >= n:
            return self.groups.add(self.offset[self.order_stream], n)
        for die in range(self.dies):
            if self.open_of[at + die] != NONE:
                self.shut(self.open_of + at + die)
        memset(self.to_open + self.order_stream * self.dies, 0, self.dies)
        if self.choose(self.order_stream):
            self.groups.open(self.offset[self.order_stream], group)
        return 0
