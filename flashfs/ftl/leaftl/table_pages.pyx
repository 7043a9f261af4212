# distutils: language = c++
"""A log-structured mapping table under a DRAM budget (LeaFTL, 3.4 and 3.8): groups in translation pages, loaded on
demand.

gmd.pyx has the groups of each translation page. Writing back cuts a run of changed groups into as few pages as they
fit. A translation page is clean if flash has it unchanged; then its groups may leave memory, all of a page together,
the least recently used first (second chance: a look-up sets a group's bit, and the clock's hand clears it when it
passes). Any other page is in memory, not in flash, and goes into the next checkpoint. A change makes a page such, and
supersedes its version in flash. Between requests, changed pages are written back when they take more than half of the
budget. A page that cannot be read is handled as for every such mapping (flashfs.parts.paged.paged_map).
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from flashfs.parts.paged.paged_map cimport PagedMapping
from flashfs.engine.contract.engine cimport IN_TABLE
from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.leaftl.gmd cimport REGION, Gmd, Region, TransPage
from flashfs.ftl.leaftl.group cimport BLOCK_MOST, GROUP, HOLE, View, fault_of, intercept_at, predict, slope_at, view
from flashfs.ftl.leaftl.regression cimport Piece
from flashfs.ftl.leaftl.blocks cimport ABSENT
from flashfs.ftl.leaftl.segments cimport Pager, SegmentTable

cdef enum:
    HEAD = 16                # bytes: magic, u32 first group, u16 groups, u16 0, u32 bytes in all
    SPAN_MOST = 16           # bound on pages of flash for a translation page: more than the smallest pages need
MAGIC = b"FFLF"
SHARE_LEAST = 8              #: translation pages that must fit a budget
IN_FLASH = 0xFFFF            #: in the section ``groups``, in place of a length


def span_of(page_bytes):
    """Pages of flash that a translation page may take: the largest group must fit."""
    return -(-(HEAD + 2 + BLOCK_MOST) // page_bytes)


cdef class TablePages(Pager):
    """The groups of one table, in the translation pages of ``mapping``, with the directory ``gmd``."""

    def __cinit__(self, PagedMapping mapping not None, SegmentTable table not None, Gmd gmd not None):
        self.mapping = mapping
        self.ssd = mapping.ssd
        self.table = table
        self.gmd = gmd
        self.capacity = gmd.span * self.ssd.nand.page_bytes
        self.changed = <uint8_t*> malloc(table.groups // 8 + 1)
        self.used = <uint8_t*> calloc(table.groups // 8 + 1, 1)
        self.buffer = <uint8_t*> malloc(self.capacity)
        if not (self.changed and self.used and self.buffer):
            raise MemoryError
        memset(self.changed, 0xFF, table.groups // 8 + 1)

    def __dealloc__(self):
        free(self.changed)
        free(self.used)
        free(self.buffer)

    cdef int clear(self) noexcept nogil:
        """Reset: no translation page was ever written, and all groups are in memory."""
        self.gmd.clear()
        memset(self.changed, 0xFF, self.table.groups // 8 + 1)
        self.clean_bytes = 0
        self.hand_region = self.hand_page = self.back_region = 0
        return 0

    cdef uint32_t id_of(self, uint32_t region, uint32_t at) noexcept nogil:
        """The id of translation page ``at`` of a region."""
        return (region * REGION + self.gmd.regions[region].pages[at].first) * self.gmd.span

    # --- what the table asks

    cdef int need(self, uint32_t group) except -1 nogil:
        cdef uint32_t region = group // REGION, at = <uint32_t> self.gmd.place_of(group)
        self.shrink(self.capacity)
        if not self.load(region, at):
            self.mapping.rebuild(self.id_of(region, at))
        return 0

    cdef int changes(self, uint32_t group) except -1 nogil:
        cdef Region* region
        cdef TransPage* page
        cdef uint32_t at, i, k
        if self.changed[group >> 3] >> (group & 7) & 1:
            return 0
        region = self.gmd.regions + group // REGION
        at = <uint32_t> self.gmd.place_of(group)
        page = region.pages + at
        self.clean_bytes -= page.bytes
        page.clean = False
        for i in range(group - group % REGION + page.first, group - group % REGION + page.first + page.n):
            self.changed[i >> 3] |= <uint8_t> (1 << (i & 7))
        for k in range(self.gmd.span):
            if region.ppas[at * self.gmd.span + k] != NONE:
                self.mapping.store.supersede(region.ppas[at * self.gmd.span + k])
                region.ppas[at * self.gmd.span + k] = NONE
        return 0

    cdef bint settled(self, uint32_t group) noexcept nogil:
        return not self.changed[group >> 3] >> (group & 7) & 1

    # --- from flash

    cdef bint load(self, uint32_t region, uint32_t at) except -1 nogil:
        """Load the groups of a translation page; False, and they stay absent, if it cannot be read or is wrong."""
        cdef TransPage* page = self.gmd.regions[region].pages + at
        cdef uint32_t* ppas = self.gmd.regions[region].ppas + at * self.gmd.span
        cdef uint32_t first = region * REGION + page.first, i, k, bytes = 0
        cdef bint whole = False
        self.loads += 1
        for k in range(self.gmd.span):
            if ppas[k] == NONE:
                break
            if not self.mapping.store.read(ppas[k], first * self.gmd.span + k,
                                           self.buffer + k * self.ssd.nand.page_bytes):
                return False
            bytes += self.ssd.nand.page_bytes
        memset(self.buffer + bytes, 0, self.capacity - bytes)
        for i in range(first, first + page.n):
            self.table.directory[i] = 0
        try:
            whole = self.parse(first, page.n)
        finally:
            if not whole:
                self.forget(first, page.n)
        if not whole:
            return False
        if not (page.proved or self.mapping.strict):
            if not self.names_live_pages(first, page.n):
                self.forget(first, page.n)
                return False
            page.proved = True
        page.here = True
        page.bytes = 0
        for i in range(first, first + page.n):
            page.bytes += self.table.group_bytes(i)
        self.clean_bytes += page.bytes
        return True

    cdef bint names_live_pages(self, uint32_t first, uint32_t n) except -1 nogil:
        """Whether groups that were written before this mount, and were just read, map LPAs to live pages only. Guesses
        are not checked: a read of such a page detects a wrong one."""
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
        """Drop those groups from memory."""
        cdef uint32_t i
        for i in range(first, first + n):
            self.table.drop_group(i)
            self.table.directory[i] = ABSENT
        return 0

    cdef bint parse(self, uint32_t first, uint32_t n) except -1 nogil:
        """Load groups ``first`` to ``first + n - 1`` from the buffer; False if it is not a page of these."""
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
        """Whether it is a group's block, and predicts only pages of this chip."""
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

    cdef int remade(self, uint32_t id, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Rebuild the groups of an unreadable translation page from its live pages, one segment each, and mark them as
        changed."""
        cdef uint32_t group = id // self.gmd.span, first, i
        cdef TransPage* page = self.gmd.regions[group // REGION].pages + self.gmd.place_of(group)
        cdef int before = self.ssd.stopped
        cdef bint done = False
        cdef Piece piece
        memset(&piece, 0, sizeof(piece))
        piece.n = 1
        first = group - group % REGION + page.first
        try:
            self.ssd.stopped = IN_TABLE
            page.here = True
            page.bytes = 0
            for i in range(first, first + page.n):
                self.table.directory[i] = 0
            self.changes(first)
            for i in range(n):
                piece.start = lpas[i] % GROUP
                piece.intercept = ppas[i]
                self.table.insert_pieces(lpas[i] // GROUP, lpas + i, &piece, 1)
            self.ssd.stopped = before
            done = True
        finally:
            if not done:  # the missing half would read as unmapped
                self.forget(first, page.n)
                page.here = False
        return 0

    cdef int load_all(self) except -1 nogil:
        """Load every group."""
        cdef uint32_t region, at
        for region in range(self.gmd.regions_n):
            for at in range(self.gmd.regions[region].n):
                if not self.gmd.regions[region].pages[at].here and not self.load(region, at):
                    self.mapping.rebuild(self.id_of(region, at))
        return 0

    cdef int borrow(self, uint32_t group) except -1 nogil:
        """Load the group's translation page for a look-up that is not the host's: nothing is evicted for it, and
        ``give_back`` drops it again."""
        cdef uint32_t region = group // REGION, at = <uint32_t> self.gmd.place_of(group)
        if not self.load(region, at):
            self.mapping.rebuild(self.id_of(region, at))
        return 0

    cdef int give_back(self, uint32_t group) noexcept nogil:
        cdef uint32_t region = group // REGION, at = <uint32_t> self.gmd.place_of(group)
        if self.gmd.regions[region].pages[at].clean:
            self.evict(region, at)
            self.evictions -= 1
        return 0

    # --- out of memory

    cdef uint64_t dirty_bytes(self) noexcept nogil:
        return self.table.slabs.taken_bytes - self.clean_bytes

    cdef uint64_t share(self) noexcept nogil:
        """Bytes of the budget that are left for groups beside their directory."""
        cdef uint64_t grown = self.gmd.pages_n * (4 + 4 * self.gmd.span) + 4 * self.mapping.store.known()
        return self.limit - min(self.limit - 1, grown)

    cdef int shrink(self, uint64_t more) noexcept nogil:
        """Evict until ``more`` bytes fit the budget, or no clean page is left."""
        while self.limit and self.table.slabs.taken_bytes + more > self.share() and self.evict_one():
            pass
        return 0

    cdef bint evict_one(self) noexcept nogil:
        """Evict the next clean page not used since the hand passed it last; returns whether there was one."""
        cdef Region* region
        cdef uint32_t passes = 0, first
        cdef TransPage* page
        while self.clean_bytes and passes < 3:
            region = self.gmd.regions + self.hand_region
            if self.hand_page >= region.n:
                self.hand_page = 0
                self.hand_region += 1
                if self.hand_region == self.gmd.regions_n:
                    self.hand_region = 0
                    passes += 1
                continue
            page = region.pages + self.hand_page
            self.hand_page += 1
            first = self.hand_region * REGION + page.first
            if page.clean and page.here and not self.was_used(first, page.n):
                self.evict(self.hand_region, self.hand_page - 1)
                return True
        return False

    cdef bint was_used(self, uint32_t first, uint32_t n) noexcept nogil:
        """Whether any of these groups was used; clears their bits."""
        cdef uint32_t i
        cdef bint used = False
        for i in range(first, first + n):
            used |= self.used[i >> 3] >> (i & 7) & 1
            self.used[i >> 3] &= <uint8_t> ~(1 << (i & 7))
        return used

    cdef int evict(self, uint32_t region, uint32_t at) noexcept nogil:
        cdef TransPage* page = self.gmd.regions[region].pages + at
        self.forget(region * REGION + page.first, page.n)
        self.clean_bytes -= page.bytes
        page.bytes = 0
        page.here = False
        self.evictions += 1
        return 0

    # --- to flash

    cdef bint write_next(self) except -1 nogil:
        """Write one translation page of changed groups, region by region; False if no group is changed."""
        cdef uint32_t _
        for _ in range(self.gmd.regions_n):
            if self.write_one(self.back_region):
                return True
            self.back_region = (self.back_region + 1) % self.gmd.regions_n
        return False

    cdef bint write_one(self, uint32_t number) except -1 nogil:
        """Write the region's first changed groups, as many as fit a page; False if none is changed."""
        cdef uint32_t first = self.first_changed(number), groups = self.gmd.groups_of(number), base = number * REGION
        cdef uint32_t[SPAN_MOST] ppas
        cdef uint32_t end, bytes = 0
        if first == groups:
            return False
        self.mapping.store.ensure(self.gmd.span)    # may clean, and so change groups: look again
        self.gmd.split_up(number)
        first = end = self.first_changed(number)
        if first == groups:
            return True
        while end < groups and not self.settled(base + end):
            end += 1
        end = self.gather(base + first, base + end, &bytes) - base
        self.gmd.reserve(self.gmd.regions + number, 2)      # what can fail comes before the programs
        memset(ppas, 0xFF, sizeof(ppas))
        self.mapping.store.program_all((base + first) * self.gmd.span, self.buffer,
                                       (bytes + self.ssd.nand.page_bytes - 1) // self.ssd.nand.page_bytes, ppas)
        return self.written(number, first, end - first, ppas)

    cdef uint32_t first_changed(self, uint32_t number) noexcept nogil:
        """The first group of a region that must be written; its number of groups if there is none."""
        cdef uint32_t at = 0, groups = self.gmd.groups_of(number), base = number * REGION
        while at < groups and (self.settled(base + at) or self.table.group_bytes(base + at) == 0):
            at += 1
        return at

    cdef bint written(self, uint32_t number, uint32_t first, uint32_t n, const uint32_t* ppas) except -1 nogil:
        """``n`` groups from ``first`` (of the region) on were written to ``ppas``: mark them as clean."""
        cdef TransPage* page = self.gmd.replace(number, first, n, ppas)
        cdef uint32_t i
        for i in range(number * REGION + first, number * REGION + first + n):
            page.bytes += self.table.group_bytes(i)
            self.changed[i >> 3] &= <uint8_t> ~(1 << (i & 7))
        self.clean_bytes += page.bytes
        return True

    cdef uint32_t gather(self, uint32_t first, uint32_t end, uint32_t* bytes) noexcept nogil:
        """Put groups from ``first`` up to ``end`` into the buffer as far as they fit; returns the end of those."""
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

    # --- checkpoints

    def take(self, saved):
        """Load what Gmd.saved gave: those translation pages are in flash only. ValueError says what is wrong."""
        cdef uint32_t[SPAN_MOST] ppas
        cdef uint32_t first, n, k, i
        found = self.gmd.parsed(saved, <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block)
        self.clear()
        self.mapping.store.reset()
        for first_group, groups, places in found:
            first, n = first_group, groups
            for k in range(self.gmd.span):
                ppas[k] = places[k]
            for i in range(first, first + n):
                if self.table.directory[i]:
                    raise ValueError(f"group {i}: in the section groups, and in a translation page")
            self.gmd.split_up(first // REGION)
            self.written(first // REGION, first % REGION, n, ppas)
            k = <uint32_t> self.gmd.place_of(first)
            self.evict(first // REGION, k)
            self.gmd.regions[first // REGION].pages[k].proved = False
        self.evictions = 0

    cdef bint is_sound(self, uint32_t id) except -1:
        """Whether a translation page is in memory, or can be read; the read is not counted."""
        cdef uint32_t group = id // self.gmd.span, region = group // REGION, at = <uint32_t> self.gmd.place_of(group)
        cdef bint sound
        if id % self.gmd.span or self.gmd.regions[region].pages[at].here:
            return True
        sound = self.load(region, at)
        self.loads -= 1
        if sound:
            self.evict(region, at)
            self.evictions -= 1
        return sound

    # --- for people

    def forget_counts(self):
        self.loads = self.evictions = 0
        self.most_bytes = self.table.slabs.taken_bytes
        self.gmd.forget_counts()

    def sizes(self):
        """(bytes as a controller packs them, as allocated): the directory, two bits a group, the page being read or
        written, and the store's accounting."""
        own = 2 * (self.table.groups // 8 + 1) + self.capacity
        parts = self.gmd.sizes(), self.mapping.store.tables()
        return sum(packed for packed, _ in parts) + own, sum(allocated for _, allocated in parts) + own

    def check(self):
        """As Gmd.check; absent groups are of clean pages; the count of clean bytes is right."""
        cdef uint32_t number, i, group
        cdef uint64_t clean = 0
        problems = self.gmd.check()
        for number in range(self.gmd.regions_n):
            for i in range(self.gmd.regions[number].n):
                page = self.gmd.regions[number].pages[i]
                clean += page.bytes if page.clean and page.here else 0
                for group in range(number * REGION + page.first, number * REGION + page.first + page.n):
                    if (self.table.directory[group] == ABSENT) == page.here or self.settled(group) != page.clean:
                        problems.append(f"group {group}: not as its translation page says")
        if clean != self.clean_bytes:
            problems.append(f"{self.clean_bytes} bytes of clean groups counted, {clean} there")
        return problems
