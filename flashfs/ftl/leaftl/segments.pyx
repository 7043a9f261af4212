"""LeaFTL's log-structured mapping table (ASPLOS'23, 3.4 and 3.7): segments in levels, in groups of 256 LPAs.

Each group is one packed block of memory (group.pyx has its format and the paper's algorithms, blocks.pyx the
allocation). Here runs are learned and inserted, LPAs looked up and trimmed, and groups compacted.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import numpy as np

from flashfs.ftl.leaftl.group cimport (
    BLOCK_MOST, CROWDED, GROUP, HEAD, HOLE, SEGMENT_BYTES, SEGMENTS_MOST, Bits, Segment, View, at_or_before,
    block_bytes, compact, compact_plain, crb_bytes, look_up, members_of, segment_at, slope_at, unmap, update, view,
    without, write_head,
)
from flashfs.ftl.leaftl.blocks cimport ABSENT, GroupBlocks
from flashfs.ftl.leaftl.regression_py cimport check_run, make_rules
from flashfs.ftl.leaftl.regression cimport APPROXIMATE, Piece, learn
from flashfs.ftl.leaftl.slabs cimport block_at

cdef enum:
    PART = 1024                  # points of a run that are learned at once, at least
    OWED_LEAST = 16              # a debt up to this is not worth a compaction
    LEVEL_OWES = 8               # points, for each level that a group grows by


cdef enum:                       # where a segment went in the packed block
    INSTEAD = 1
    BESIDE = 2


cdef void splice(uint8_t* out, const uint8_t* old, uint32_t width, uint32_t first, uint32_t last, uint32_t kept,
                 uint32_t n) noexcept nogil:
    """Copy a column of ``n`` fields, with a gap for ``kept`` others in place of those from ``first`` to ``last``."""
    memcpy(out, old, first * width)
    memcpy(out + (first + kept) * width, old + last * width, (n - last) * width)


cdef uint32_t what_stays(const View* block, uint32_t first, uint32_t last, const Segment* segment,
                         Segment* left) noexcept nogil:
    """List ``segment``, and before and after it what it leaves of the segments ``first`` to ``last`` that it overlaps;
    returns how many in all. 0 if any of them is approximate, or still overlaps."""
    cdef Segment met
    cdef Bits members, rest
    cdef uint32_t i, kept = 0
    cdef bint placed = False
    members_of(segment, &rest, &members)
    for i in range(first, last):
        segment_at(block, i, &met)
        if met.slope & APPROXIMATE:
            return 0
        if not without(&met, &rest, &members):
            continue
        if met.start > <uint32_t> segment.start + segment.length:
            left[kept] = segment[0]
            kept += 1
            placed = True
        elif <uint32_t> met.start + met.length >= segment.start:
            return 0
        left[kept] = met
        kept += 1
    if not placed:
        left[kept] = segment[0]
        kept += 1
    return kept


cdef class Pager:
    """Keeps groups in flash: it puts ABSENT into the directory for a group that it took away."""

    cdef int need(self, uint32_t group) except -1 nogil:
        """Bring back a group that is absent."""
        return 0

    cdef int changes(self, uint32_t group) except -1 nogil:
        """A group in memory is about to be changed."""
        return 0

    cdef bint settled(self, uint32_t group) noexcept nogil:
        """Whether flash has the group unchanged: avoid needless changes of such a group."""
        return False


cdef class SegmentTable(GroupBlocks):
    """The map of ``lpas`` pages, empty. See regression.pyx for ``gamma``, ``pages_per_block`` and ``objective``. Two
    points more than ``pair_most`` LPAs apart do not become one accurate segment. A group is compacted when its debt
    (see ``owe``) exceeds ``grown`` percent of its segments; 0: never for that reason."""

    def __cinit__(self, uint32_t lpas, gamma=0, *, pages_per_block=0, objective="smallest", uint32_t pair_most=GROUP,
                  uint32_t grown=0):
        self.rules = make_rules(gamma, GROUP, pages_per_block, objective)
        self.pair_most = pair_most
        self.grown = grown
        self.pieces_room = GROUP
        self.pieces = <Piece*> malloc(self.pieces_room * sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.pieces)

    # --- groups in flash

    cdef int change(self, uint32_t group) except -1 nogil:
        """Call before a group is changed: brings it into memory and notifies the pager."""
        if not self.paged:
            return 0
        if self.directory[group] == ABSENT:
            self.pager.need(group)
        return self.pager.changes(group)

    def put_elsewhere(self, Pager pager not None):
        """From now on ``pager`` may take groups away, and brings them back when needed."""
        self.pager = pager
        self.used = pager.used
        self.paged = True

    # --- insert

    cdef int insert_run(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Learn a run, sorted by LPA, each LPA once and less than ``lpas``; it is newer than the whole table."""
        cdef uint32_t at = 0, end
        while at < n:
            end = min(n, at + <uint32_t> PART)
            while end < n and not self.parts(lpas, ppas, end):
                end += 1
            self.insert_part(lpas + at, ppas + at, end - at)
            at = end
        return self.spread() if self.slabs.wasteful() else 0

    cdef bint parts(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t at) noexcept nogil:
        """Whether no piece, and no bound on its predictions, spans the boundary before point ``at``."""
        if self.rules.pages_per_block:
            return ppas[at] // self.rules.pages_per_block != ppas[at - 1] // self.rules.pages_per_block
        return lpas[at] // GROUP != lpas[at - 1] // GROUP

    cdef int insert_part(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t count, i = 0, end, group
        if n > self.pieces_room:
            free(self.pieces)
            self.pieces_room = 0
            self.pieces = <Piece*> malloc(n * sizeof(Piece))
            if self.pieces == NULL:
                with gil:
                    raise MemoryError
            self.pieces_room = n
        count = learn(lpas, ppas, n, &self.rules, self.pieces)
        if self.pair_most < GROUP:
            count = self.part_pairs(lpas, ppas, count)
        self.learned += count
        while i < count:
            group = lpas[self.pieces[i].first] // GROUP
            end = i + 1
            while end < count and lpas[self.pieces[end].first] // GROUP == group:
                end += 1
            if end < count:  # most of an update's cost is waiting for a group that is not in the CPU's cache
                self.fetch(lpas[self.pieces[end].first] // GROUP)
            self.insert_pieces(group, lpas, self.pieces + i, end - i)
            i = end
        return 0

    cdef uint32_t part_pairs(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) noexcept nogil:
        """Replace each pair that is too far apart by two single points; returns the number of pieces. Such a pair saves
        8 bytes, but overlaps whatever lies between its points: pages written at random would pile up in tens of
        levels."""
        cdef uint32_t i, k, at, wide = 0
        cdef Piece pair
        for i in range(n):
            wide += self.pieces[i].n == 2 and self.pieces[i].length > self.pair_most
        at = n + wide
        i = n
        while at > i:
            i -= 1
            pair = self.pieces[i]
            if pair.n != 2 or pair.length <= self.pair_most:
                at -= 1
                self.pieces[at] = pair
                continue
            for k in range(2):
                at -= 1
                self.pieces[at].first = pair.first + 1 - k
                self.pieces[at].n = 1
                self.pieces[at].start = lpas[pair.first + 1 - k] % GROUP
                self.pieces[at].length = 0
                self.pieces[at].slope = 0
                self.pieces[at].intercept = ppas[pair.first + 1 - k]
        return n + wide

    cdef void fetch(self, uint32_t group) noexcept nogil:
        """Prefetch the group's block."""
        cdef const uint8_t* block = block_at(self.slabs, self.directory[group])
        prefetch(block)
        prefetch(block + 64)
        prefetch(block + 128)

    cdef int insert_pieces(self, uint32_t group, const uint32_t* lpas, const Piece* pieces,
                           uint32_t n) except -1 nogil:
        """Insert non-overlapping pieces of one group: in the packed block as long as possible, then in the scratch."""
        cdef Segment new
        cdef Bits members
        cdef uint32_t i, j, x, levels, points = 0
        cdef int done
        cdef bint unpacked = False
        self.change(group)
        levels = self.levels_of(group)
        for i in range(n):
            new.start = <uint8_t> pieces[i].start
            new.length = <uint8_t> pieces[i].length
            new.slope = pieces[i].slope
            new.intercept = pieces[i].intercept
            if not unpacked:
                done = self.insert_in_place(group, &new)
                if done:
                    points += pieces[i].n if done == BESIDE else 0
                    continue
                self.make_room(group)
                self.unpack(group)
                unpacked = True
            memset(&members, 0, sizeof(Bits))
            for j in range(pieces[i].first, pieces[i].first + pieces[i].n):
                x = lpas[j] % GROUP
                members.word[x >> 6] |= <uint64_t> 1 << (x & 63)
            if self.scratch.n == SEGMENTS_MOST:
                compact(self.scratch)
                self.crowded += 1
            update(self.scratch, &new, &members)
            points += pieces[i].n
        if unpacked:
            self.pack(group)
        return self.owe(group, points, levels) if self.grown and points else 0

    cdef int make_room(self, uint32_t group) except -1 nogil:
        """Compact a full group that is about to be unpacked for one more segment, if its block can be compacted in
        packed form."""
        cdef uint8_t[BLOCK_MOST] packed
        cdef const uint8_t* block = self.block_of(group)
        cdef View parts
        cdef uint32_t bytes
        if block == NULL:
            return 0
        view(block, &parts)
        if parts.n < SEGMENTS_MOST:
            return 0
        bytes = compact_plain(&parts, packed)
        if bytes:
            view(packed, &parts)
            self.crowded += parts.n < SEGMENTS_MOST  # else it stays full; the caller sees that after unpacking
            return self.put(group, packed, bytes)
        return 0

    cdef uint32_t levels_of(self, uint32_t group) noexcept nogil:
        cdef const uint8_t* block = self.block_of(group)
        return block[0] if block != NULL else 0

    cdef int owe(self, uint32_t group, uint32_t points, uint32_t levels) except -1 nogil:
        """Add ``points`` learned points to the debt of the group, which had ``levels`` before, and compact the group if
        that is due.

        Every segment whose LPAs are all superseded was superseded by at least one point of its own learned since the
        last compaction, and likewise every superseded byte of the CRB. So the points learned bound what a compaction
        would save, without a search. An added level counts as LEVEL_OWES points."""
        cdef const uint8_t* block = self.block_of(group)
        cdef uint32_t debt, n
        if block == NULL or block[0] == 1:
            self.debts[group] = 0
            return 0
        debt = self.debts[group] + points + (LEVEL_OWES * (block[0] - levels) if block[0] > levels else 0)
        self.debts[group] = <uint8_t> min(debt, <uint32_t> 255)
        n = (block_bytes(block) - HEAD - block[0] - crb_bytes(block)) // SEGMENT_BYTES
        if debt <= max(<uint32_t> OWED_LEAST, n * self.grown // 100):
            return 0
        self.compacted += 1
        return self.compact_group(group)

    cdef int insert_in_place(self, uint32_t group, const Segment* segment) except -1 nogil:
        """``update`` for the most frequent case: an accurate segment that leaves nothing of the segments that it meets
        in the top level, or nothing that overlaps it. INSTEAD if it replaced one with the same LPAs, BESIDE if not; 0,
        and nothing is done, in any other case."""
        cdef uint8_t* block = self.block_of(group)
        cdef Segment[3] left
        cdef View old
        cdef uint32_t first, last, kept, bytes, end = <uint32_t> segment.start + segment.length
        if segment.slope & APPROXIMATE:
            return 0
        if block == NULL:
            return self.first_segment(group, segment)
        view(block, &old)
        last = at_or_before(old.starts, <uint32_t> old.counts[0] + 1, end)
        if (segment.length == 0 and last and old.starts[last - 1] == segment.start and old.lengths[last - 1] == 0
                and not slope_at(&old, last - 1) & APPROXIMATE):
            return self.supersede(&old, last - 1, segment)
        first = at_or_before(old.starts, last, segment.start) if segment.length else last
        first -= first > 0 and <uint32_t> old.starts[first - 1] + old.lengths[first - 1] >= segment.start
        kept = what_stays(&old, first, last, segment, left)
        bytes = HEAD + old.levels + old.crb_n + (old.n + kept - (last - first)) * SEGMENT_BYTES
        if kept == 0 or bytes > CROWDED or old.n + kept - (last - first) > SEGMENTS_MOST:
            return 0
        if kept == last - first == 1:
            return self.supersede(&old, first, segment)
        return self.exchange(group, &old, first, last, left, kept, bytes)

    cdef int supersede(self, const View* old, uint32_t at, const Segment* segment) noexcept nogil:
        """Overwrite segment ``at`` with a newer one that covers all its pages."""
        cdef bint same = (old.starts[at] == segment.start and old.lengths[at] == segment.length
                          and slope_at(old, at) == segment.slope)
        (<uint8_t*> old.starts)[at] = segment.start
        (<uint8_t*> old.lengths)[at] = segment.length
        memcpy(<uint8_t*> old.slopes + 2 * at, &segment.slope, 2)
        memcpy(<uint8_t*> old.intercepts + 4 * at, &segment.intercept, 4)
        return INSTEAD if same else BESIDE

    cdef int first_segment(self, uint32_t group, const Segment* segment) except -1 nogil:
        cdef uint8_t* block = self.resized(group, HEAD + 1 + SEGMENT_BYTES)
        write_head(block, 1, 0)
        block[HEAD] = 0
        block[HEAD + 1] = segment.start
        block[HEAD + 2] = segment.length
        memcpy(block + HEAD + 3, &segment.slope, 2)
        memcpy(block + HEAD + 5, &segment.intercept, 4)
        self.tally(block, 1)
        return INSTEAD

    cdef int exchange(self, uint32_t group, const View* old, uint32_t first, uint32_t last, const Segment* left,
                      uint32_t kept, uint32_t bytes) except -1 nogil:
        """Replace segments ``first`` to ``last`` of the top level by ``kept`` others."""
        cdef uint8_t[BLOCK_MOST] packed
        cdef uint8_t* block
        cdef uint32_t i, n = old.n + kept - (last - first), at
        at = <uint32_t> (old.starts - old.counts) + HEAD
        memcpy(packed, old.counts - HEAD, at)
        packed[HEAD] = <uint8_t> (packed[HEAD] + kept - (last - first))
        splice(packed + at, old.starts, 1, first, last, kept, old.n)
        splice(packed + at + n, old.lengths, 1, first, last, kept, old.n)
        splice(packed + at + 2 * n, old.slopes, 2, first, last, kept, old.n)
        splice(packed + at + 4 * n, old.intercepts, 4, first, last, kept, old.n)
        for i in range(kept):
            packed[at + first + i] = left[i].start
            packed[at + n + first + i] = left[i].length
            memcpy(packed + at + 2 * n + 2 * (first + i), &left[i].slope, 2)
            memcpy(packed + at + 4 * n + 4 * (first + i), &left[i].intercept, 4)
        block = self.resized(group, bytes)
        memcpy(block, packed, bytes)
        self.segments += <int64_t> n - old.n
        return BESIDE

    # --- look-up

    cdef int find(self, uint32_t lpa, uint32_t* ppa, uint32_t* levels, bint* approximate) except -1 nogil:
        """Whether ``lpa``, which is less than ``lpas``, is mapped; sets the PPA that its segment predicts (if that is
        approximate, within gamma pages), and how many levels were searched, 0 if the group has none."""
        cdef uint32_t group = lpa // GROUP
        cdef const uint8_t* block
        if self.paged:
            if self.directory[group] == ABSENT:
                self.pager.need(group)
            self.used[group >> 3] |= <uint8_t> (1 << (group & 7))
        block = self.block_of(group)
        levels[0] = 0
        approximate[0] = False
        return block != NULL and look_up(block, lpa % GROUP, ppa, levels, approximate)

    cdef int find_many(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas, uint8_t* levels,
                       uint8_t* approximate) except -1 nogil:
        """``find`` for each; PPA 0xFFFFFFFF if not mapped. ``levels`` and ``approximate`` may be NULL."""
        cdef uint32_t i, searched, ppa = 0
        cdef bint about
        for i in range(n):
            expect(self, lpas, i, n)
            ppas[i] = ppa if self.find(lpas[i], &ppa, &searched, &about) else 0xFFFFFFFF
            if levels != NULL:
                levels[i] = <uint8_t> searched
            if approximate != NULL:
                approximate[i] = about
        return 0

    # --- trim

    cdef int unmap_run(self, const uint32_t* lpas, uint32_t n) except -1 nogil:
        """Unmap those LPAs, which are sorted."""
        cdef Bits gone
        cdef uint32_t i = 0, group, x, levels
        while i < n:
            group = lpas[i] // GROUP
            memset(&gone, 0, sizeof(gone))
            while i < n and lpas[i] // GROUP == group:
                x = lpas[i] % GROUP
                gone.word[x >> 6] |= <uint64_t> 1 << (x & 63)
                i += 1
            if self.directory[group] == 0:
                continue
            self.change(group)
            if gone.word[0] & gone.word[1] & gone.word[2] & gone.word[3] == <uint64_t> -1:
                self.drop_group(group)
                self.debts[group] = 0
                continue
            levels = self.levels_of(group)
            self.unpack(group)
            unmap(self.scratch, &gone)
            self.pack(group)
            if self.grown:
                self.owe(group, 1, levels)
        return self.spread() if self.slabs.wasteful() else 0

    # --- compaction

    cdef int compact_group(self, uint32_t group) except -1 nogil:
        """Compact a group: nothing that newer segments hide is left, and its levels are as few as possible. A group
        that is settled in flash stays as it is."""
        cdef uint8_t[BLOCK_MOST] packed
        cdef const uint8_t* block = self.block_of(group)
        cdef View parts
        cdef uint32_t i, bytes
        if block == NULL or (self.paged and self.pager.settled(group)):
            return 0
        self.debts[group] = 0
        view(block, &parts)
        if block[0] == 1:  # only holes could go: nothing is below them
            for i in range(parts.n):
                if slope_at(&parts, i) & HOLE:
                    break
            else:
                return 0
        bytes = compact_plain(&parts, packed)
        if bytes:
            return self.put(group, packed, bytes)
        self.unpack(group)
        compact(self.scratch)
        return self.pack(group)

    cdef int compact_all(self, bint every=True) except -1 nogil:
        """Compact all groups, or those with debts; then move blocks together if the slabs are wasteful."""
        cdef uint32_t group
        for group in range(self.groups):
            if every or not self.grown or self.debts[group]:
                self.compact_group(group)
        return self.spread() if self.slabs.wasteful() else 0

    # --- for Python

    @property
    def gamma(self):
        """Pages by which an approximate segment may be wrong."""
        return self.rules.gamma

    def insert(self, lpas, ppas):
        """Learn a run: rising LPAs, and their PPAs. It is newer than the whole table. ValueError says what is wrong
        with it."""
        cdef const uint32_t[::1] xs = np.ascontiguousarray(lpas, np.uint32)
        cdef const uint32_t[::1] ys = np.ascontiguousarray(ppas, np.uint32)
        check_run(xs, ys)
        if xs.shape[0]:
            self.known(xs[xs.shape[0] - 1])
            with nogil:
                self.insert_run(&xs[0], &ys[0], <uint32_t> xs.shape[0])

    def lookup(self, lpa):
        """(PPA, levels searched, whether approximate), or None if it is not mapped. IndexError for an LPA beyond the
        device."""
        cdef uint32_t ppa = 0, levels = 0
        cdef bint approximate = False
        return (ppa, levels, approximate) if self.find(self.known(lpa), &ppa, &levels, &approximate) else None

    def lookup_many(self, lpas):
        """Three arrays: PPAs (0xFFFFFFFF: not mapped), levels searched, whether approximate."""
        cdef const uint32_t[::1] xs = np.ascontiguousarray(lpas, np.uint32)
        cdef uint32_t n = <uint32_t> xs.shape[0]
        ppas, levels, approximate = np.empty(n, np.uint32), np.empty(n, np.uint8), np.empty(n, np.uint8)
        cdef uint32_t[::1] to_ppas = ppas
        cdef uint8_t[::1] to_levels = levels
        cdef uint8_t[::1] to_approximate = approximate
        if n:
            self.known(np.max(xs))
            with nogil:
                self.find_many(&xs[0], n, &to_ppas[0], &to_levels[0], &to_approximate[0])
        return ppas, levels, approximate.astype(bool)

    def remove(self, lpas):
        """Unmap those LPAs. ValueError if they do not rise, IndexError for an LPA beyond the device."""
        cdef const uint32_t[::1] xs = np.ascontiguousarray(lpas, np.uint32)
        if xs.shape[0]:
            if np.any(np.diff(np.asarray(xs).astype(np.int64)) <= 0):
                raise ValueError("LPAs to remove: use rising LPAs")
            self.known(xs[xs.shape[0] - 1])
            with nogil:
                self.unmap_run(&xs[0], <uint32_t> xs.shape[0])

    def compact(self, group=None):
        """Compact one group, or all."""
        cdef uint32_t which = self.known_group(group) if group is not None else 0
        cdef bint every = group is None
        with nogil:
            if every:
                self.compact_all(True)
            else:
                self.compact_group(which)

    def sizes(self):
        """As GroupBlocks.sizes, and the memory of the pieces that a run is learned into."""
        sizes = super().sizes()
        return {**sizes, "allocated": sizes["allocated"] + self.pieces_room * sizeof(Piece)}
