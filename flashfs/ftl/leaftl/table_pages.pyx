# distutils: language = c++
"""A log-structured mapping table under a DRAM budget (LeaFTL, 3.4 and 3.8): groups in translation pages, brought back
when they are asked for.

A *leaf* is a run of groups that fit one translation page (on chips of small pages, a few). Groups differ in size, from
nothing to 2.7 kB, so leaves hold from one group to 256: writing back cuts a run of changed groups into as few leaves as
they fit. No leaf crosses a *region* of 256 groups, which keeps the directory of leaves (the paper's GMD) in small
sorted pieces: 4 bytes and its home's PPA a leaf.

A leaf is clean if it is in flash as it is; then its groups may leave memory, whole leaves at a time, those first that
nobody looked at for long (second chance: a bit a group is set by a look-up, and cleared when the clock's hand comes
by). Any other leaf is here, has no home, and goes with the next checkpoint. A change makes a leaf so, and its home
superseded. Between requests, changed leaves are written back when they take more than half of the budget.

A page that cannot be read is made again: validity says which pages are live, and their OOBs, all read, which of them
are of LPAs of this leaf. While a recovery is under way nobody knows that; it starts over without a checkpoint.
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from flashfs.ftl.leaftl.group cimport BLOCK_MOST, GROUP, HOLE, View, fault_of, intercept_at, predict, slope_at, view
from flashfs.ftl.leaftl.learn cimport Piece
from flashfs.engine.parts cimport IN_TABLE, Engine
from flashfs.engine.pool cimport KIND_TRANSLATION, NONE
from flashfs.ftl.leaftl.segments cimport ABSENT, Pager, SegmentTable
from flashfs.engine.translation cimport Directory, TranslationPages, Witness, take_witnesses

import struct

from flashfs.errors import MapLostError

cdef enum:
    REGION = 256             # groups
    HEAD = 16                # bytes: magic, u32 first group, u16 groups, u16 0, u32 bytes in all
MAGIC = b"FFLF"
SHARE_LEAST = 8              #: leaves that must fit a budget
IN_FLASH = 0xFFFF            #: in the section ``groups``, in place of a length


def leaf_pages(page_bytes):
    """Pages that the largest leaf of one group takes."""
    return -(-(HEAD + 2 + BLOCK_MOST) // page_bytes)


cdef class LeafDirectory(Directory):
    """The homes of leaves, as cleaning asks for them."""

    def __cinit__(self, TablePages pages not None):
        self.pages = pages

    cdef uint32_t home_of(self, uint32_t id) noexcept nogil:
        return self.pages.home_of(id)

    cdef int set_home(self, uint32_t id, uint32_t ppa) noexcept nogil:
        return self.pages.set_home(id, ppa)

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        return self.pages.lost(ppa)


cdef class TablePages(Pager):
    """The pages of one table. ``tend`` is to be called between requests."""

    def __cinit__(self, Engine ssd not None, SegmentTable table not None):
        self.ssd = ssd
        self.table = table
        self.span = leaf_pages(ssd.nand.page_bytes)
        self.store = TranslationPages(ssd, LeafDirectory(self), table.groups * self.span)
        ssd.own(KIND_TRANSLATION, self.store)
        self.capacity = self.span * ssd.nand.page_bytes
        self.regions_n = (table.groups + REGION - 1) // REGION
        self.regions = <Region*> calloc(max(1, self.regions_n), sizeof(Region))
        self.changed = <uint8_t*> malloc(table.groups // 8 + 1)
        self.used = <uint8_t*> calloc(table.groups // 8 + 1, 1)
        self.buffer = <uint8_t*> malloc(self.capacity)
        if not (self.regions and self.changed and self.used and self.buffer):
            raise MemoryError
        memset(self.changed, 0xFF, table.groups // 8 + 1)

    def __dealloc__(self):
        if self.regions != NULL:
            self.free_leaves()
        free(self.regions)
        free(self.changed)
        free(self.used)
        free(self.buffer)

    # --- leaves

    cdef uint32_t groups_of(self, uint32_t region) noexcept nogil:
        return min(<uint32_t> REGION, self.table.groups - region * REGION)

    cdef int free_leaves(self) noexcept nogil:
        cdef uint32_t region
        for region in range(self.regions_n):
            free(self.regions[region].leaves)
            free(self.regions[region].homes)
        return 0

    cdef int clear(self) noexcept nogil:
        """No leaf was ever written, and all groups are here."""
        self.free_leaves()
        memset(self.regions, 0, self.regions_n * sizeof(Region))
        memset(self.changed, 0xFF, self.table.groups // 8 + 1)
        self.clean_bytes = 0
        self.written = self.leaves_n = 0
        self.hand_region = self.hand_leaf = self.back_region = 0
        return 0

    cdef int split_up(self, uint32_t region) except -1 nogil:
        """The region gets its first leaf, of all its groups."""
        cdef Leaf leaf
        if self.regions[region].n:
            return 0
        leaf.first = 0
        leaf.n = <uint16_t> self.groups_of(region)
        leaf.clean = False
        leaf.here = leaf.proved = True
        leaf.bytes = 0
        return self.insert_leaf(self.regions + region, 0, leaf, NULL)

    cdef int reserve(self, Region* region, uint32_t more) except -1 nogil:
        """Room for so many leaves more."""
        cdef uint32_t room = region.room
        cdef void* grown
        if region.n + more > room:
            room = max(<uint32_t> region.n + more, 2 * room)
            grown = realloc(region.leaves, room * sizeof(Leaf))
            if grown != NULL:
                region.leaves = <Leaf*> grown
                grown = realloc(region.homes, room * self.span * 4)
            if grown == NULL:
                with gil:
                    raise MemoryError
            region.homes = <uint32_t*> grown
            region.room = <uint16_t> room
        return 0

    cdef int insert_leaf(self, Region* region, uint32_t at, Leaf leaf, const uint32_t* homes) except -1 nogil:
        cdef uint32_t k
        self.reserve(region, 1)
        memmove(region.leaves + at + 1, region.leaves + at, (region.n - at) * sizeof(Leaf))
        memmove(region.homes + (at + 1) * self.span, region.homes + at * self.span, (region.n - at) * self.span * 4)
        region.leaves[at] = leaf
        for k in range(self.span):
            region.homes[at * self.span + k] = homes[k] if homes != NULL else NONE
        region.n += 1
        self.leaves_n += 1
        return 0

    cdef int64_t leaf_of(self, uint32_t group) noexcept nogil:
        """Where in its region the group's leaf is; -1 if the region was never split up."""
        cdef Region* region = self.regions + group // REGION
        cdef uint32_t low = 0, high = region.n, middle, x = group % REGION
        if region.n == 0:
            return -1
        while high - low > 1:
            middle = (low + high) // 2
            if region.leaves[middle].first <= x:
                low = middle
            else:
                high = middle
        return low

    cdef int replace(self, uint32_t number, uint32_t first, uint32_t n, const uint32_t* homes) except -1 nogil:
        """``n`` groups from ``first`` (of the region) on, all in changed leaves, are a clean leaf now. What is left of
        those in front of it and behind stays changed."""
        cdef Region* region = self.regions + number
        cdef Leaf leaf, old
        cdef uint32_t at = <uint32_t> self.leaf_of(number * REGION + first), gone = at, end = first + n, i
        old = region.leaves[at]
        self.splits += old.first < first or <uint32_t> old.first + old.n > end
        if old.first < first:
            region.leaves[at].n = <uint16_t> (first - old.first)
            at += 1
            gone = at
            if <uint32_t> old.first + old.n > end:  # it goes on behind
                leaf = old
                leaf.first = <uint16_t> end
                leaf.n = <uint16_t> (old.first + old.n - end)
                self.insert_leaf(region, at, leaf, NULL)
        while gone < region.n and <uint32_t> region.leaves[gone].first + region.leaves[gone].n <= end:
            gone += 1
        if gone < region.n and region.leaves[gone].first < end:
            i = end - region.leaves[gone].first
            region.leaves[gone].first = <uint16_t> end
            region.leaves[gone].n -= <uint16_t> i
        self.merges += gone > at + 1
        memmove(region.leaves + at, region.leaves + gone, (region.n - gone) * sizeof(Leaf))
        memmove(region.homes + at * self.span, region.homes + gone * self.span, (region.n - gone) * self.span * 4)
        region.n -= <uint16_t> (gone - at)
        self.leaves_n -= gone - at
        leaf.first = <uint16_t> first
        leaf.n = <uint16_t> n
        leaf.clean = True
        leaf.here = leaf.proved = True
        leaf.bytes = 0
        for i in range(number * REGION + first, number * REGION + end):
            leaf.bytes += self.table.group_bytes(i)
            self.changed[i >> 3] &= <uint8_t> ~(1 << (i & 7))
        self.clean_bytes += leaf.bytes
        self.written += 1
        return self.insert_leaf(region, at, leaf, homes)

    # --- what the table asks

    cdef int need(self, uint32_t group) except -1 nogil:
        cdef uint32_t region = group // REGION, at = <uint32_t> self.leaf_of(group)
        self.shrink(self.capacity)
        if not self.load(region, at):
            self.rebuild(region, at)
        return 0

    cdef int changes(self, uint32_t group) except -1 nogil:
        cdef Region* region
        cdef Leaf* leaf
        cdef uint32_t at, i, k
        if self.changed[group >> 3] >> (group & 7) & 1:
            return 0
        region = self.regions + group // REGION
        at = <uint32_t> self.leaf_of(group)
        leaf = region.leaves + at
        self.clean_bytes -= leaf.bytes
        leaf.clean = False
        self.written -= 1
        for i in range(group - group % REGION + leaf.first, group - group % REGION + leaf.first + leaf.n):
            self.changed[i >> 3] |= <uint8_t> (1 << (i & 7))
        for k in range(self.span):
            if region.homes[at * self.span + k] != NONE:
                self.store.supersede(region.homes[at * self.span + k])
                region.homes[at * self.span + k] = NONE
        return 0

    cdef bint settled(self, uint32_t group) noexcept nogil:
        return not self.changed[group >> 3] >> (group & 7) & 1

    # --- from flash

    cdef bint load(self, uint32_t region, uint32_t at) except -1 nogil:
        """The leaf's groups; False, and they are as before, if any of its pages is not what it should be."""
        cdef Leaf* leaf = self.regions[region].leaves + at
        cdef uint32_t* homes = self.regions[region].homes + at * self.span
        cdef uint32_t first = region * REGION + leaf.first, i, k, bytes = 0
        cdef bint whole = False
        self.loads += 1
        for k in range(self.span):
            if homes[k] == NONE:
                break
            if not self.store.read(homes[k], first * self.span + k, self.buffer + k * self.ssd.nand.page_bytes):
                return False
            bytes += self.ssd.nand.page_bytes
        memset(self.buffer + bytes, 0, self.capacity - bytes)
        for i in range(first, first + leaf.n):
            self.table.directory[i] = 0
        try:
            whole = self.parse(first, leaf.n)
        finally:
            if not whole:
                self.forget(first, leaf.n)
        if not whole:
            return False
        if not (leaf.proved or self.strict):
            if not self.names_live_pages(first, leaf.n):
                self.forget(first, leaf.n)
                return False
            leaf.proved = True
        leaf.here = True
        leaf.bytes = 0
        for i in range(first, first + leaf.n):
            leaf.bytes += self.table.group_bytes(i)
        self.clean_bytes += leaf.bytes
        return True

    cdef bint names_live_pages(self, uint32_t first, uint32_t n) except -1 nogil:
        """Whether groups that were written before this mount, and that were just read, say of LPAs that they are where
        pages live. What is a guess is not asked: whoever reads such a page finds out."""
        cdef uint32_t[GROUP] lpas
        cdef uint32_t[GROUP] ppas
        cdef uint8_t[GROUP] about
        cdef uint32_t group, i, some
        for group in range(first, first + n):
            some = min(<uint32_t> GROUP, self.table.lpas - group * GROUP)
            for i in range(some):
                lpas[i] = group * GROUP + i
            self.table.find_many(lpas, some, ppas, NULL, about)
            for i in range(some):
                if ppas[i] != NONE and not about[i] and not self.ssd.validity.is_live(ppas[i]):
                    return False
        return True

    cdef int forget(self, uint32_t first, uint32_t n) noexcept nogil:
        """Those groups are not here."""
        cdef uint32_t i
        for i in range(first, first + n):
            self.table.drop_group(i)
            self.table.directory[i] = ABSENT
        return 0

    cdef bint parse(self, uint32_t first, uint32_t n) except -1 nogil:
        """What the buffer holds becomes groups ``first`` to ``first + n - 1``, unless it is something else."""
        cdef uint32_t word = 0, at = HEAD, i, total = 0
        cdef uint16_t bytes = 0
        memcpy(&word, self.buffer + 4, 4)
        memcpy(&bytes, self.buffer + 8, 2)
        memcpy(&total, self.buffer + 12, 4)
        if memcmp(self.buffer, b"FFLF", 4) != 0 or word != first or bytes != n or total > self.capacity:
            return False
        for i in range(first, first + n):
            if at + 2 > total:
                return False
            memcpy(&bytes, self.buffer + at, 2)
            at += 2
            if bytes > total - at or not self.plausible(self.buffer + at, bytes):
                return False
            if bytes and self.table.load_group(i, self.buffer + at, bytes) != NULL:
                return False
            at += bytes
        return at == total

    cdef bint plausible(self, const uint8_t* block, uint32_t bytes) noexcept nogil:
        """Whether it is a group's block, and leads to pages of this chip alone."""
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        cdef uint32_t i
        cdef uint16_t slope
        cdef View parts
        if bytes == 0:
            return True
        if bytes > BLOCK_MOST or fault_of(block, bytes) != NULL:
            return False
        view(block, &parts)
        for i in range(parts.n):
            slope = slope_at(&parts, i)
            if slope & HOLE:
                continue
            if (predict(slope, intercept_at(&parts, i), parts.starts[i]) >= pages
                    or predict(slope, intercept_at(&parts, i), <uint32_t> parts.starts[i] + parts.lengths[i]) >= pages):
                return False
        return True

    cdef int rebuild(self, uint32_t region, uint32_t at) except -1 nogil:
        """The leaf's pages cannot be read: its groups are made of what the live pages say, and changed."""
        cdef Leaf* leaf = self.regions[region].leaves + at
        cdef uint32_t first = region * REGION + leaf.first, n = leaf.n, i, nobody = NONE
        cdef int before = self.ssd.stopped
        cdef bint done = False
        cdef Witness* seen
        if self.strict:
            with gil:
                raise MapLostError(f"the translation page of LPAs {first * GROUP} to {(first + n) * GROUP - 1} cannot "
                                   "be read")
        seen = <Witness*> calloc(n * GROUP, sizeof(Witness))
        if seen == NULL:
            with gil:
                raise MemoryError
        self.rebuilds += 1
        self.rebuilt = True
        with gil:
            self.ssd.alarm(f"{self.named(region, at)}: it is made again; LPAs that no live page names are holes now")
        try:
            take_witnesses(self.ssd, first * GROUP, n * GROUP, seen, &nobody)
            self.ssd.stopped = IN_TABLE
            leaf.here = True
            leaf.bytes = 0
            for i in range(first, first + n):
                self.table.directory[i] = 0
            self.changes(first)
            self.place_witnesses(first, n, seen, nobody)
            self.ssd.stopped = before
            done = True
        finally:
            free(seen)
            if not done and leaf.here:  # half of a leaf would read as holes
                self.forget(first, n)
                leaf.here = False
        return 0

    cdef int place_witnesses(self, uint32_t first, uint32_t n, const Witness* seen, uint32_t nobody) except -1 nogil:
        """Each LPA goes where its newest page is. If there is a page that is nobody's, all others go there: what may be
        lost must not read as if it had never been."""
        cdef uint32_t i, lpa
        cdef Piece piece
        memset(&piece, 0, sizeof(piece))
        piece.n = 1
        for i in range(n * GROUP):
            lpa = first * GROUP + i
            if lpa >= self.table.lpas or (seen[i].next_seq == 0 and nobody == NONE):
                continue
            piece.start = lpa % GROUP
            piece.intercept = seen[i].ppa if seen[i].next_seq else nobody
            self.table.insert_pieces(lpa // GROUP, &lpa, &piece, 1)
        return 0

    cdef int load_all(self) except -1 nogil:
        """Every group is here."""
        cdef uint32_t region, at
        for region in range(self.regions_n):
            for at in range(self.regions[region].n):
                if not self.regions[region].leaves[at].here and not self.load(region, at):
                    self.rebuild(region, at)
        return 0

    cdef int borrow(self, uint32_t group) except -1 nogil:
        """Its leaf, for a look that is not the host's: nothing is evicted for it, and ``give_back`` takes it away."""
        cdef uint32_t region = group // REGION, at = <uint32_t> self.leaf_of(group)
        if not self.load(region, at):
            self.rebuild(region, at)
        return 0

    cdef int give_back(self, uint32_t group) noexcept nogil:
        cdef uint32_t region = group // REGION, at = <uint32_t> self.leaf_of(group)
        if self.regions[region].leaves[at].clean:
            self.evict(region, at)
            self.evictions -= 1
        return 0

    # --- out of memory

    cdef uint64_t dirty_bytes(self) noexcept nogil:
        return self.table.slabs.taken_bytes - self.clean_bytes

    cdef uint64_t share(self) noexcept nogil:
        """Bytes of the budget that are for groups: what their directory has grown to is not."""
        cdef uint64_t grown = self.leaves_n * (4 + 4 * self.span) + 4 * self.store.known()
        return self.limit - min(self.limit - 1, grown)

    cdef int shrink(self, uint64_t more) noexcept nogil:
        """Evict until ``more`` bytes fit the budget, or nothing is left that may go."""
        while self.limit and self.table.slabs.taken_bytes + more > self.share() and self.evict_one():
            pass
        return 0

    cdef bint evict_one(self) noexcept nogil:
        """The next clean leaf that nobody looked at since the hand came by last; whether there was one."""
        cdef Region* region
        cdef uint32_t passes = 0, first
        cdef Leaf* leaf
        while self.clean_bytes and passes < 3:
            region = self.regions + self.hand_region
            if self.hand_leaf >= region.n:
                self.hand_leaf = 0
                self.hand_region += 1
                if self.hand_region == self.regions_n:
                    self.hand_region = 0
                    passes += 1
                continue
            leaf = region.leaves + self.hand_leaf
            self.hand_leaf += 1
            first = self.hand_region * REGION + leaf.first
            if leaf.clean and leaf.here and not self.was_used(first, leaf.n):
                self.evict(self.hand_region, self.hand_leaf - 1)
                return True
        return False

    cdef bint was_used(self, uint32_t first, uint32_t n) noexcept nogil:
        """Whether any of these groups was looked at; from now on, none was."""
        cdef uint32_t i
        cdef bint used = False
        for i in range(first, first + n):
            used |= self.used[i >> 3] >> (i & 7) & 1
            self.used[i >> 3] &= <uint8_t> ~(1 << (i & 7))
        return used

    cdef int evict(self, uint32_t region, uint32_t at) noexcept nogil:
        cdef Leaf* leaf = self.regions[region].leaves + at
        self.forget(region * REGION + leaf.first, leaf.n)
        self.clean_bytes -= leaf.bytes
        leaf.bytes = 0
        leaf.here = False
        self.evictions += 1
        return 0

    # --- to flash

    cdef int tend(self) except -1 nogil:
        """Between requests: at most half of the budget is changed leaves, and no more than all of it in use."""
        self.most_bytes = max(self.most_bytes, self.table.slabs.taken_bytes)
        if self.limit == 0:
            return 0
        if self.dirty_bytes() > self.share() // 2:
            self.write_back(self.share() // 4)
        return self.shrink(0)

    cdef int write_back(self, uint64_t target) except -1 nogil:
        """Write changed leaves, region by region, until no more than ``target`` bytes are changed; each region once."""
        cdef uint32_t _
        for _ in range(self.regions_n):
            while self.write_one(self.back_region):
                if self.dirty_bytes() <= target:
                    return 0
            self.back_region = (self.back_region + 1) % self.regions_n
        return 0

    cdef bint write_one(self, uint32_t number) except -1 nogil:
        """One leaf of the region's first changed groups, as many as fit; False if nothing there is changed."""
        cdef uint32_t first, end, i, bytes = 0, groups = self.groups_of(number), base = number * REGION
        cdef uint32_t[16] homes                     # more than the span of the smallest pages
        first = 0
        while first < groups and (self.settled(base + first) or self.table.group_bytes(base + first) == 0):
            first += 1
        if first == groups:
            return False
        self.store.ensure(self.span)                # may clean, and so change what is here: look again
        self.split_up(number)
        first = 0
        while first < groups and (self.settled(base + first) or self.table.group_bytes(base + first) == 0):
            first += 1
        if first == groups:
            return True
        end = first
        while end < groups and not self.settled(base + end):
            end += 1
        end = self.gather(base + first, base + end, &bytes) - base
        for i in range(self.span):
            homes[i] = NONE
        self.reserve(self.regions + number, 2)      # what can fail comes before what it is for
        self.program(base + first, bytes, homes)
        self.replace(number, first, end - first, homes)
        return True

    cdef uint32_t gather(self, uint32_t first, uint32_t end, uint32_t* bytes) noexcept nogil:
        """Groups from ``first`` on, up to ``end``, into the buffer as far as they fit; returns behind the last."""
        cdef uint32_t at = HEAD, group = first, size
        cdef uint16_t word
        memset(self.buffer, 0, self.capacity)
        while group < end:
            size = self.table.group_bytes(group)
            if at + 2 + size > self.capacity:
                break
            word = <uint16_t> size
            memcpy(self.buffer + at, &word, 2)
            self.table.save_group(group, self.buffer + at + 2)
            at += 2 + size
            group += 1
        memcpy(self.buffer, b"FFLF", 4)
        memcpy(self.buffer + 4, &first, 4)
        word = <uint16_t> (group - first)
        memcpy(self.buffer + 8, &word, 2)
        memcpy(self.buffer + 12, &at, 4)
        bytes[0] = at
        return group

    cdef int program(self, uint32_t first, uint32_t bytes, uint32_t* homes) except -1 nogil:
        """The buffer to flash, at ``homes``. If that fails midway, none of it counts."""
        cdef uint32_t k, pages = (bytes + self.ssd.nand.page_bytes - 1) // self.ssd.nand.page_bytes
        with gil:
            try:
                for k in range(pages):
                    homes[k] = self.store.program(first * self.span + k, self.buffer + k * self.ssd.nand.page_bytes)
            except BaseException:
                for k in range(pages):
                    if homes[k] != NONE:
                        self.store.supersede(homes[k])
                raise
        return 0

    # --- homes: what cleaning and recovery ask

    cdef uint32_t home_of(self, uint32_t id) noexcept nogil:
        """Where page ``id`` is, or NONE if there is no such page now."""
        cdef uint32_t group = id // self.span
        cdef int64_t at
        if group >= self.table.groups:
            return NONE
        at = self.leaf_of(group)
        if at < 0 or self.regions[group // REGION].leaves[at].first != group % REGION:
            return NONE
        return self.regions[group // REGION].homes[at * self.span + id % self.span]

    cdef int set_home(self, uint32_t id, uint32_t ppa) noexcept nogil:
        """Page ``id``, which has a home, was moved."""
        cdef uint32_t group = id // self.span
        if self.home_of(id) != NONE:
            self.regions[group // REGION].homes[self.leaf_of(group) * self.span + id % self.span] = ppa
        return 0

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """The page there cannot be read, and is about to be erased. A leaf that has it as its home is changed from now
        on: from memory, or made again."""
        cdef uint32_t number, i, k
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                for k in range(self.span):
                    if self.regions[number].homes[i * self.span + k] == ppa:
                        if self.regions[number].leaves[i].here:
                            self.changes(number * REGION + self.regions[number].leaves[i].first)
                        else:
                            self.rebuild(number, i)
                        return 0
        return 0

    # --- checkpoints

    def saved_leaves(self):
        """The section ``gmd``: of each clean leaf its first group, how many groups, and ``span`` PPAs, u32 each."""
        cdef uint32_t number, i, k
        out = bytearray()
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                if self.regions[number].leaves[i].clean:
                    leaf = self.regions[number].leaves[i]
                    homes = [self.regions[number].homes[i * self.span + k] for k in range(self.span)]
                    out += struct.pack(f"<{2 + self.span}I", number * REGION + leaf.first, leaf.n, *homes)
        return out

    def take_leaves(self, saved):
        """The inverse: those leaves are in flash, and only there. ValueError says what cannot be."""
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        cdef uint32_t[16] homes
        cdef uint32_t first, n, k, i, end = 0
        entry = struct.Struct(f"<{2 + self.span}I")
        if len(saved) % entry.size:
            raise ValueError(f"gmd section of {len(saved)} bytes: {entry.size} a leaf are needed")
        self.clear()
        self.store.reset()
        seen = set()
        for first_group, groups, *ppas in entry.iter_unpack(saved):
            used = [ppa for ppa in ppas if ppa != NONE]
            if (first_group < end or not 1 <= groups <= REGION or first_group + groups > self.table.groups
                    or first_group // REGION != (first_group + groups - 1) // REGION or ppas[:len(used)] != used
                    or not used or max(used) >= pages or not seen.isdisjoint(used) or len(set(used)) != len(used)):
                raise ValueError(f"gmd section: no leaf has {groups} groups from {first_group} on at {ppas}")
            seen.update(used)
            first, n = first_group, groups
            end = first + n
            for k in range(self.span):
                homes[k] = ppas[k]
            self.split_up(first // REGION)
            for i in range(first, end):
                if self.table.directory[i]:
                    raise ValueError(f"group {i}: in the section groups, and in that of leaves")
            self.replace(first // REGION, first % REGION, n, homes)
            k = <uint32_t> self.leaf_of(first)
            self.evict(first // REGION, k)
            self.regions[first // REGION].leaves[k].proved = False
        self.evictions = 0

    def forget_counts(self):
        self.loads = self.evictions = self.rebuilds = self.splits = self.merges = 0
        self.most_bytes = self.table.slabs.taken_bytes
        self.store.forget_counts()

    cdef uint32_t homes_n(self) noexcept nogil:
        """How many translation pages are homes."""
        cdef uint32_t number, i, n = 0
        for number in range(self.regions_n):
            for i in range(self.regions[number].n * self.span):
                n += self.regions[number].homes[i] != NONE
        return n

    def homes(self):
        """The PPAs of all translation pages that are homes."""
        cdef uint32_t number, i, k
        return [self.regions[number].homes[i * self.span + k] for number in range(self.regions_n)
                for i in range(self.regions[number].n) for k in range(self.span)
                if self.regions[number].homes[i * self.span + k] != NONE]

    def leaves(self):
        """Every leaf that was ever written: {"first_group", "groups", "state", "bytes", "ppas"}."""
        cdef uint32_t number, i, k
        out = []
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                leaf = self.regions[number].leaves[i]
                ppas = [self.regions[number].homes[i * self.span + k] for k in range(self.span)]
                out.append({
                    "first_group": number * REGION + leaf.first, "groups": leaf.n,
                    "state": ("in memory and flash" if leaf.here else "in flash") if leaf.clean else "changed",
                    "bytes": leaf.bytes, "ppas": [ppa for ppa in ppas if ppa != NONE],
                })
        return out

    def sizes(self):
        """(bytes as a controller packs them, as allocated): 4 a leaf and 4 a page of it, two bits a group, the leaf
        that is being read or written."""
        cdef uint32_t number
        leaves = sum(self.regions[number].n for number in range(self.regions_n))
        room = sum(self.regions[number].room for number in range(self.regions_n))
        bits = 2 * (self.table.groups // 8 + 1)
        packed, allocated = self.store.tables()
        return (
            packed + leaves * (4 + 4 * self.span) + bits + self.capacity,
            allocated + room * (sizeof(Leaf) + 4 * self.span) + self.regions_n * sizeof(Region) + bits + self.capacity,
        )

    cdef str named(self, uint32_t region, uint32_t at):
        """What is wrong with a leaf that could not be loaded."""
        cdef uint32_t first = region * REGION + self.regions[region].leaves[at].first
        cdef uint32_t end = first + self.regions[region].leaves[at].n
        return (f"the translation page of LPAs {first * GROUP} to {end * GROUP - 1} cannot be read, or is not what it "
                "should be")

    def problems_in_flash(self):
        """Reads every leaf that is in flash alone, and says which are not what they should be. No figure counts it."""
        cdef uint32_t number, i
        counted = self.loads, self.evictions
        problems = []
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                if self.regions[number].leaves[i].here:
                    continue
                if self.load(number, i):
                    self.evict(number, i)
                    continue
                problems.append(self.named(number, i))
        self.loads, self.evictions = counted
        return problems

    def check(self):
        """Leaves follow each other without a gap; a clean one has a home and any other none; what is absent is of a
        clean one; the bytes counted are there."""
        cdef uint32_t number, i, group, end
        cdef uint64_t clean = 0
        problems = []
        for number in range(self.regions_n):
            end = 0
            for i in range(self.regions[number].n):
                leaf = self.regions[number].leaves[i]
                if leaf.first != end:
                    problems.append(f"region {number}: leaf {i} begins at group {leaf.first}, not at {end}")
                end = leaf.first + leaf.n
                if (self.regions[number].homes[i * self.span] != NONE) != leaf.clean:
                    problems.append(f"region {number}: leaf {i}, {'' if leaf.clean else 'not '}clean, against its home")
                clean += leaf.bytes if leaf.clean and leaf.here else 0
                for group in range(number * REGION + leaf.first, number * REGION + end):
                    if (self.table.directory[group] == ABSENT) == leaf.here or self.settled(group) != leaf.clean:
                        problems.append(f"group {group}: not as its leaf says")
            if self.regions[number].n and end != self.groups_of(number):
                problems.append(f"region {number}: its leaves end at group {end}")
        if clean != self.clean_bytes:
            problems.append(f"{self.clean_bytes} bytes of clean groups counted, {clean} there")
        return problems
