"""SlimFTL's placement and cleaning (J. Shin, 3.2 to 3.5): the hash determines the virtual block, and cleaning picks one
of the candidates of the page at hand. So ``clean``, for any block, is not used.

Not in the thesis: if all candidates of a page are full, and cleaning one would gain little, one of them makes way. Its
pages go to other candidates of theirs, and it is empty then (docs/ftl/slimftl.md).
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_WEAR,
    KIND_USER,
    NONE,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_WEAR,
    Oob,
    read_oob,
)
from flashfs.ftl.hashing.tables cimport HIDS, Hasher
from flashfs.ftl.slimftl.mapping cimport CHOSEN_HID, CHOSEN_SHARED, CHOSEN_VBA, NO_BLOCK, SlimMapping
from nandimg._nand cimport PAGE_OK

from flashfs.errors import BindError, DeviceFullError, RoomError

cdef enum:
    ENOUGH = 16              # cleaning a candidate is enough if it gains one page in so many
    MUCH = 3                 # "much" room: a block except one page in so many
    REST = 16                # placements that skip the search after one that failed
    FACTORY_BAD = 1          # a block's health
    LANE_LEAST = 64          # least virtual blocks a lane, more than an LPA has candidates; else one lane


@cython.final
cdef class SlimPlacement(Placement):
    """The hash determines the virtual block; cleaning determines its successor."""
    cdef SlimMapping slim
    cdef SlimCleaning cleaner
    cdef uint32_t kept                     # good blocks that are no virtual block's
    cdef uint32_t margin                   # of those that were good at first, so many may go bad
    cdef uint32_t factory_bad
    cdef uint32_t floor                    # without more free blocks than these a recovery could not end
    cdef uint32_t keeping                  # placements until the next try to make do with fewer blocks
    cdef uint32_t target                   # the block that takes the pages of the one being cleaned
    cdef uint32_t target_vba               # ... that it will stand for
    cdef bint broken                       # a program in it failed
    cdef bint spreads                      # pages being moved go to other candidates of theirs with room
    cdef readonly bint makes_way           # a full candidate may make way; else as in the thesis
    cdef readonly uint64_t made_way        # how often one did
    cdef uint32_t resting                  # placements until the next search for one

    def __cinit__(self, SlimMapping slim, SlimCleaning cleaner, bint makes_way):
        self.ssd = slim.ssd
        self.slim = slim
        self.cleaner = cleaner
        self.makes_way = makes_way
        self.kept = kept_blocks(self.ssd)
        self.factory_bad = self.ssd.nand.count_health(FACTORY_BAD)
        self.margin = margin_of(self.ssd.nand.blocks - self.factory_bad)
        self.floor = self.ssd.meta.checkpoint_blocks + 1
        self.target = self.target_vba = NONE

    cdef int64_t spare(self) noexcept nogil:
        """How many more virtual blocks may get a block. Below 0: as blocks went bad, so many have to do without one, or
        the log, a checkpoint and cleaning would miss theirs at last."""
        cdef int64_t bad = <int64_t> self.ssd.pool.bad_n + self.ssd.pool.retiring_n
        cdef int64_t grown = max(<int64_t> 0, bad - self.factory_bad - self.margin)
        # All of them, less those that went bad; but what went bad before the image was bound was not counted then.
        return max(<int64_t> self.slim.virtual_blocks - grown,
                   <int64_t> self.ssd.pool.blocks - bad - self.kept) - self.slim.standing

    cdef uint32_t room(self, uint32_t vba) noexcept nogil:
        """Pages that may still be programmed for this VBA; one without a block has a block's worth, if it may get one.
        """
        cdef uint32_t block = self.slim.block_of(vba)
        if block == NONE:
            return self.ssd.nand.pages_per_block if self.spare() > 0 else 0
        if self.ssd.pool.state[block] != STATE_OPEN:
            return 0
        return self.ssd.nand.pages_per_block - self.ssd.pool.next_page[block]

    cdef uint32_t reclaimable(self, uint32_t vba) noexcept nogil:
        """Pages that cleaning this VBA would make available; none of one without a block."""
        cdef uint32_t block = self.slim.block_of(vba)
        return 0 if block == NONE else self.ssd.nand.pages_per_block - self.ssd.validity.count(block)

    cdef int die_of(self, uint32_t vba) noexcept nogil:
        """The die for a virtual block's block; -1: any."""
        cdef uint32_t dies = self.ssd.nand.dies, lanes = self.slim.hasher.lanes
        return <int> (vba % dies) if lanes > 1 and lanes % dies == 0 else -1

    cdef uint32_t run_of(self, const uint32_t* lpas, uint32_t n) noexcept nogil:
        """How many pages, from the first on, are of the first one's group."""
        cdef uint64_t group = self.slim.hasher.group_of(lpas[0])
        cdef uint32_t run = 1
        while run < n and self.slim.hasher.group_of(lpas[run]) == group:
            run += 1
        return run

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t vba, choice
        if stream != STREAM_HOST:
            return self.take_moved(stream, lpas, n, out)
        if self.spare() < 0:
            if self.keeping:
                self.keeping -= 1
            elif not self.cleaner.shrink():
                self.keeping = REST
        choice = self.choose(lpas[0])
        vba = choice & CHOSEN_VBA
        while (self.slim.block_of(vba) != NONE
                and not self.ssd.pool.takes_more(self.slim.block_of(vba), CAUSE_HOST, self.ssd.now_ns)):
            self.ssd.pool.close(self.slim.block_of(vba))
            choice = self.choose(lpas[0])
            vba = choice & CHOSEN_VBA
        self.give(choice, self.run_of(lpas, n), STREAM_HOST, CAUSE_HOST, out)
        if choice & CHOSEN_SHARED or self.slim.shared_from(vba):
            out.n = 1  # two pages of one LPA in a run could not be distinguished by liveness
        return 0

    cdef int take_moved(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """Place pages of the virtual block that is being cleaned: in the block that succeeds its own or, if it is
        making way, in another candidate of the page with room. None where no virtual block is being cleaned: a block
        alone says nothing of where its pages may go."""
        cdef uint32_t hid
        out.n = 0
        if self.broken or self.target_vba == NONE:
            return 0
        if self.spreads:
            n = self.run_of(lpas, n)
            hid = self.roomiest(lpas[0])
            if hid:
                return self.give(self.slim.hasher.candidates[hid] | hid << CHOSEN_HID, n, stream, CAUSE_GC, out)
            if self.target == NONE:
                self.target = <uint32_t> self.ssd.open_block(self.die_of(self.target_vba), stream, False, CAUSE_GC)
                self.slim.staying_in = self.target
        out.block = self.target
        out.page = self.ssd.pool.next_page[self.target]
        out.n = n
        out.choice = self.target_vba
        return 0

    cdef uint32_t roomiest(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The HID of the candidate with the most room, except the one that makes way; 0 if none has any."""
        cdef uint32_t hid, vba, room, best = 0, most = 0
        self.slim.hasher.find(lpa)
        for hid in range(1, HIDS + 1):
            vba = self.slim.hasher.candidates[hid]
            room = 0 if vba == self.target_vba else self.room(vba)
            if room > most and (self.slim.block_of(vba) == NONE or self.ssd.pool.takes_more(
                    self.slim.block_of(vba), CAUSE_GC, self.ssd.now_ns)):
                most = room
                best = hid
        return best

    cdef int give(self, uint32_t choice, uint32_t n, int stream, int cause, Extent* out) except -1 nogil:
        """Place pages in the chosen virtual block, which gets a block if it has none."""
        cdef uint32_t vba = choice & CHOSEN_VBA
        out.choice = choice
        if self.slim.block_of(vba) == NONE:
            self.slim.set_block(vba, <uint32_t> self.ssd.open_block(self.die_of(vba), stream, False, cause))
        out.block = self.slim.block_of(vba)
        out.page = self.ssd.pool.next_page[out.block]
        out.n = min(n, self.ssd.nand.pages_per_block - out.page)
        return 0

    cdef uint32_t choose(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The choice for the next version of ``lpa``: a VBA with room, and the HID that names it."""
        cdef uint32_t hid, vba, best
        cdef uint32_t* candidates = self.slim.hasher.candidates
        self.slim.hasher.find(lpa)
        hid = self.first_with_room(candidates)
        if hid:
            return candidates[hid] | hid << CHOSEN_HID
        if self.spare() < 0 and self.ssd.pool.coming() <= self.floor and not self.cleaner.shrink():
            with gil:
                raise self.ssd.full("blocks have gone bad, and the pages fill the others")
        self.slim.hasher.find(lpa)
        best = self.most_reclaimable(candidates)
        if self.makes_way and (best == 0 or self.reclaimable(candidates[best]) * ENOUGH
                               < self.ssd.nand.pages_per_block):
            hid = self.make_way(lpa)
            self.slim.hasher.find(lpa)
            if hid:
                return candidates[hid] | hid << CHOSEN_HID
            best = self.most_reclaimable(candidates)  # one that made way may have no block now
        if best:
            vba = candidates[best]
            self.cleaner.clean_virtual(vba, CAUSE_GC, False)
            return vba | best << CHOSEN_HID
        return self.share(candidates[1]) | 1 << CHOSEN_HID | CHOSEN_SHARED

    cdef uint32_t most_reclaimable(self, const uint32_t* candidates) noexcept nogil:
        """The HID of the candidate that cleaning gains most from, 0 if it gains nothing from any."""
        cdef uint32_t hid, gain, best = 0, most = 0
        for hid in range(1, HIDS + 1):
            gain = self.reclaimable(candidates[hid])
            if gain > most:
                most = gain
                best = hid
        return best

    cdef uint32_t first_with_room(self, const uint32_t* candidates) noexcept nogil:
        """The first HID whose candidate has ``room``, 0 if none has; called for each page that the host writes."""
        cdef const uint32_t* vbt = self.slim.vbt
        cdef const uint8_t* state = self.ssd.pool.state
        cdef const uint32_t* next_page = self.ssd.pool.next_page
        cdef uint32_t hid, block, pages = self.ssd.nand.pages_per_block
        cdef bint spare = self.spare() > 0
        for hid in range(1, HIDS + 1):
            block = ~vbt[candidates[hid]] & NO_BLOCK
            if spare if block == NO_BLOCK else (state[block] == STATE_OPEN and next_page[block] < pages):
                return hid
        return 0

    # --- a full candidate makes way

    cdef uint32_t promise(self, uint32_t vba) noexcept nogil:
        """Pages that this virtual block has room for or, if it is closed, would gain by cleaning."""
        cdef uint32_t block = self.slim.block_of(vba)
        if block == NONE or self.ssd.pool.state[block] == STATE_OPEN:
            return self.room(vba)
        return self.reclaimable(vba)

    cdef uint32_t much(self) noexcept nogil:
        """Room for so many pages is "much": cleaning for that much costs at most half of what it gains."""
        return self.ssd.nand.pages_per_block - self.ssd.nand.pages_per_block // MUCH

    cdef bint is_room_anywhere(self) noexcept nogil:
        cdef uint32_t vba
        for vba in range(self.slim.hasher.slots * self.slim.hasher.lanes):
            if self.promise(vba) >= self.much():
                return True
        return False

    cdef uint32_t make_way(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """Move the pages of a full candidate to other candidates of theirs. Returns the HID of one that has room now; 0
        if there is none, and then the search is skipped for a while, since it takes reads."""
        cdef uint32_t[64] own
        cdef uint32_t hid
        if self.resting:
            self.resting -= 1
            return 0
        if not self.is_room_anywhere():
            self.resting = REST + self.slim.virtual_blocks // REST
            return 0
        for hid in range(1, HIDS + 1):
            own[hid] = self.slim.hasher.candidates[hid]
        for hid in range(1, HIDS + 1):
            if not self.could_leave(own[hid]):
                continue
            self.cleaner.spread(own[hid])
            self.made_way += 1
            return hid if self.room(own[hid]) else 0
        self.resting = REST
        return 0

    cdef bint could_leave(self, uint32_t vba) except -1 nogil:
        """Whether the block's first and last live pages, as samples of all, have much room elsewhere. A virtual block
        that would have it only after cleaning is cleaned."""
        cdef uint32_t block = self.slim.block_of(vba), page
        cdef uint32_t last = self.ssd.nand.pages_per_block - 1
        cdef int way
        if block == NONE:
            return False
        for way in range(2):
            page = 0 if way == 0 else last
            while not self.ssd.validity.is_live(block * self.ssd.nand.pages_per_block + page):
                if page == (last if way == 0 else 0):
                    return False
                page = page + 1 if way == 0 else page - 1
            if not self.has_elsewhere(block, page, vba):
                return False
        return True

    cdef bint has_elsewhere(self, uint32_t block, uint32_t page, uint32_t vba) except -1 nogil:
        cdef uint8_t[2048] raw
        cdef uint8_t status
        cdef uint32_t hid, other, best = NONE, most = 0
        cdef Oob oob
        read_oob(self.ssd.nand, block * self.ssd.nand.pages_per_block + page, raw, &oob, &status, CAUSE_GC,
                 self.ssd.now_ns)
        if status != PAGE_OK or oob.kind != KIND_USER or oob.lpa >= self.ssd.lpas:
            return False
        self.slim.hasher.find(oob.lpa)
        for hid in range(1, HIDS + 1):
            other = self.slim.hasher.candidates[hid]
            if other != vba and self.promise(other) > most:
                most = self.promise(other)
                best = other
        if most < self.much():
            return False
        if self.room(best) == 0:
            self.cleaner.clean_virtual(best, CAUSE_GC, False)
        return True

    cdef uint32_t share(self, uint32_t home) except? 0xFFFFFFFE nogil:
        """Every candidate is full of valid pages: find the next virtual block that has room, or can gain some (3.4)."""
        cdef uint32_t k, vba
        for k in range(1, self.slim.virtual_blocks):
            vba = (home + k) % self.slim.virtual_blocks
            if self.room(vba) == 0 and self.reclaimable(vba):
                self.cleaner.clean_virtual(vba, CAUSE_GC, False)
            if self.room(vba):
                return vba
        with gil:
            raise DeviceFullError("every virtual block is full of valid pages")

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if self.ssd.pool.next_page[block] >= self.ssd.nand.pages_per_block:
            self.ssd.pool.close(block)
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        self.ssd.pool.close(block)
        if block == self.target:
            self.broken = True
        return 0


@cython.final
cdef class SlimCleaning(Cleaning):
    """Clean one of the candidates: its valid pages move in order to a free block, which then stands for its VBA."""
    cdef SlimMapping slim
    cdef SlimPlacement place
    cdef readonly uint64_t cleaned

    def __cinit__(self, SlimMapping slim):
        self.ssd = slim.ssd
        self.slim = slim
        self.open_blocks_rest = True

    def attach(self, SlimPlacement place):
        self.place = place

    cdef int clean(self) except -1 nogil:
        """Room is made within virtual blocks, each of which keeps its block, so this gains nothing, unless blocks that
        went bad are missing. A recovery that lost its checkpoint calls it nevertheless."""
        if self.place.spare() >= 0 or not self.shrink():
            with gil:
                raise self.ssd.full("cleaning gains no block")
        return 0

    cdef bint shrink(self) except -1 nogil:
        """Blocks went bad, so a virtual block has to do without one: an empty one, or of the closed ones that with the
        fewest live pages, which go to other candidates of theirs. Returns whether a block was gained; those of its
        pages without room elsewhere keep one."""
        cdef uint32_t vba, block, live, best = NONE, fewest = self.ssd.nand.pages_per_block
        for vba in range(self.slim.virtual_blocks):
            block = self.slim.block_of(vba)
            if block == NONE:
                continue
            live = self.ssd.validity.count(block)
            if live < fewest and (live == 0 or self.ssd.pool.state[block] != STATE_OPEN):
                fewest = live
                best = vba
        if best == NONE:
            return False
        if fewest:
            self.spread(best)
        else:
            self.ssd.pool.close(self.slim.block_of(best))
            self.clean_virtual(best, CAUSE_GC, False)
        return self.slim.block_of(best) == NONE

    cdef int clean_virtual(self, uint32_t vba, int cause, bint worn) except -1 nogil:
        cdef uint32_t old = self.slim.block_of(vba), fresh
        cdef int stream = STREAM_WEAR if worn else STREAM_GC
        cdef int done = 0
        self.cleaned += 1
        if self.ssd.validity.count(old) == 0:
            self.ssd.relocate(old, stream, cause)
            self.slim.set_block(vba, NO_BLOCK)
            return 0
        while not done:
            fresh = <uint32_t> self.ssd.open_block(self.place.die_of(vba), stream, worn, cause)
            self.place.target = fresh
            self.place.broken = False
            self.place.target_vba = vba
            try:
                done = self.ssd.relocate(old, stream, cause)
            finally:
                self.place.target = self.place.target_vba = NONE
                if not done:
                    self.ssd.pool.release(fresh, self.ssd.now_ns)  # nothing of it was ever bound
        self.slim.set_block(vba, fresh)
        return 0

    cdef int spread(self, uint32_t vba) except -1 nogil:
        """Move the pages to other candidates of theirs, and only those without room there to a successor."""
        cdef uint32_t old = self.slim.block_of(vba)
        cdef int done = 0
        self.cleaned += 1
        self.place.target_vba = self.slim.leaving = vba
        self.place.spreads = True
        try:
            while not done:
                self.place.broken = False
                try:
                    done = self.ssd.relocate(old, STREAM_GC, CAUSE_GC)
                finally:
                    if not done and self.place.target != NONE:
                        self.ssd.pool.release(self.place.target, self.ssd.now_ns)  # nothing of it was ever bound
                        self.place.target = self.slim.staying_in = NONE
            self.slim.set_block(vba, NO_BLOCK if self.place.target == NONE else self.place.target)
        finally:
            self.place.spreads = self.place.broken = False
            self.place.target = self.place.target_vba = self.slim.leaving = self.slim.staying_in = NONE
        return 0

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        cdef uint32_t vba = self.slim.vba_standing(block)
        if vba == NONE:
            if self.ssd.validity.count(block) == 0:
                self.ssd.relocate(block, STREAM_GC, cause)
            return 0                       # else: its live pages could not be found elsewhere
        return self.clean_virtual(vba, cause, cause == CAUSE_WEAR)


def derive(ssd, options):
    """{virtual_blocks, lanes}: the values of options of 0 on this chip. A lane a die, if each lane then has enough
    virtual blocks to choose from, and no virtual block without a lane."""
    count = options["virtual_blocks"] or virtual_blocks_for(ssd)
    lanes = options["lanes"] or (ssd.nand.dies if count >= LANE_LEAST * ssd.nand.dies else 1)
    if lanes > count:
        raise BindError(f"slimftl: lanes={lanes}: there are {count} virtual blocks for them")
    if not options["virtual_blocks"] and (count - count % lanes) * ssd.nand.pages_per_block > ssd.lpas:
        count -= count % lanes
    return {"virtual_blocks": count, "lanes": lanes}


def kept_blocks(ssd):
    """Good blocks that no virtual block may have: for two checkpoints, the log, and cleaning's reserve."""
    return 2 * ssd.meta.checkpoint_blocks + ssd.meta.log_blocks_most + ssd.gc_reserve


def margin_of(good):
    """Of so many good blocks, those kept for blocks that go bad (and for fewer forced syncs): one in 256 and, from 16
    on, one more."""
    return good // 256 + (good >= 16)


def virtual_blocks_for(ssd):
    """How many virtual blocks the chip has blocks for: its good blocks less ``kept_blocks`` and ``margin_of`` them."""
    good = sum(ssd.nand.block_health(block) == 0 for block in range(ssd.nand.blocks))
    count = good - kept_blocks(ssd) - margin_of(good)
    if count <= 0 or count * ssd.nand.pages_per_block <= ssd.lpas:
        raise RoomError(
            f"slimftl: {ssd.lpas} logical pages need more than {-(-ssd.lpas // ssd.nand.pages_per_block)} virtual "
            f"blocks; {good} good blocks leave {max(count, 0)}")
    return count


def build(ssd, options):
    """(mapping, placement, cleaning) for ``options``, those of the scheme resolved and derived."""
    if ssd.nand.blocks >= NO_BLOCK:
        raise BindError(f"slimftl: {ssd.nand.blocks} blocks; a VBT entry has room for {NO_BLOCK - 1}")
    if options["virtual_blocks"] > ssd.nand.blocks:
        raise BindError(f"slimftl: {options['virtual_blocks']} virtual blocks: the chip has {ssd.nand.blocks} blocks")
    hasher = Hasher(options["virtual_blocks"], options["shift"], options["hash"] == "md5",
                    options["candidates"] == "distinct", options["lanes"], options["stripe"])
    slim = SlimMapping(ssd, hasher)
    cleaning = SlimCleaning(slim)
    placement = SlimPlacement(slim, cleaning, options["crowded"] == "make-way")
    cleaning.attach(placement)
    return slim, placement, cleaning
