"""One group of 256 LPAs of LeaFTL's log-structured mapping table: its packed bytes, and Algorithms 1 and 2 on them.

A block is the format of a group in memory and in flash; offsets are LPAs within the group.

    u8 levels | u16 CRB bytes | u8 segments - 1, a level each | CRB
    n segments, from the top level down: n x u8 start | n x u8 length | n x u16 slope (a half) | n x u32 intercept

A segment is 8 bytes, but each of its four fields lies in a column with those of the others: a look-up reads starts,
then one length, and only where it ends a slope and an intercept. So a crowded group costs a few cache lines, not one or
two for each step.

Three kinds of segment, by their slope: *accurate* (lowest bit 0) holds the LPAs start, start + stride, ... start +
length, where stride = round(1 / slope); *approximate* (lowest bit 1) holds those that the CRB lists for it; a *hole*
(sign bit set; the paper has no trim) is an accurate segment of stride 1 that says "not mapped". The CRB has one run of
LPAs for each approximate segment, sorted by their first LPA, with a null between. A null is 0, and so is LPA 0; but LPA
0 can only be the CRB's first byte, where no null can be.

A look-up finds the topmost segment that holds an LPA. An accurate segment may still hold LPAs that a newer one took, as
long as that one is above it. To change a group it is unpacked (each CRB run becomes a set), changed, and packed again.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from flashfs.ftl.leaftl.regression cimport APPROXIMATE, SLOPE_BITS, STRIDE_MOST, half_floor, stride_of

cdef extern from * nogil:
    int first_bit "__builtin_ctzll" (uint64_t x)
    int bits_above "__builtin_clzll" (uint64_t x)


cdef enum:
    NO_SEGMENT = 0xFFFF


# --- sets of LPAs

cdef inline bint empty(const Bits* set) noexcept nogil:
    return (set.word[0] | set.word[1] | set.word[2] | set.word[3]) == 0


cdef inline bint has(const Bits* set, uint32_t x) noexcept nogil:
    return set.word[x >> 6] >> (x & 63) & 1


cdef inline void add(Bits* set, uint32_t x) noexcept nogil:
    set.word[x >> 6] |= <uint64_t> 1 << (x & 63)


cdef inline void clear(Bits* set) noexcept nogil:
    set.word[0] = set.word[1] = set.word[2] = set.word[3] = 0


cdef inline void unite(Bits* set, const Bits* other) noexcept nogil:
    cdef int i
    for i in range(4):
        set.word[i] |= other.word[i]


cdef inline void meet(Bits* set, const Bits* other) noexcept nogil:
    cdef int i
    for i in range(4):
        set.word[i] &= other.word[i]


cdef inline void take_away(Bits* set, const Bits* other) noexcept nogil:
    cdef int i
    for i in range(4):
        set.word[i] &= ~other.word[i]


cdef inline uint32_t first_of(const Bits* set) noexcept nogil:
    """The smallest member; the set must not be empty."""
    cdef uint32_t i = 0
    while set.word[i] == 0:
        i += 1
    return i * 64 + first_bit(set.word[i])


cdef inline uint32_t last_of(const Bits* set) noexcept nogil:
    cdef uint32_t i = 3
    while set.word[i] == 0:
        i -= 1
    return i * 64 + 63 - bits_above(set.word[i])


cdef void add_range(Bits* set, uint32_t first, uint32_t last) noexcept nogil:
    cdef uint32_t i, low, high
    for i in range(first >> 6, (last >> 6) + 1):
        low = first & 63 if i == first >> 6 else 0
        high = last & 63 if i == last >> 6 else 63
        set.word[i] |= (<uint64_t> -1 >> (63 - high + low)) << low


cdef void members_of(const Segment* segment, const Bits* listed, Bits* out) noexcept nogil:
    """The LPAs that a segment holds: Algorithm 2's bitmap. ``listed``: the LPAs of an approximate one."""
    cdef uint32_t x, start = segment.start, last = start + segment.length, stride
    if segment.slope & APPROXIMATE:
        out[0] = listed[0]
        return
    clear(out)
    stride = stride_of(segment.slope)
    if stride == 1 or start == last:
        add_range(out, start, last)
        return
    x = start
    while x <= last:
        add(out, x)
        x += stride


cdef inline void trim_to(Segment* segment, const Bits* rest) noexcept nogil:
    """Set start and length from the LPAs that are left; slope and intercept stay."""
    cdef uint32_t first = first_of(rest)
    segment.start = <uint8_t> first
    segment.length = <uint8_t> (last_of(rest) - first)


cdef bint without(Segment* segment, Bits* listed, const Bits* taken) noexcept nogil:
    """Algorithm 2, seg_merge: take ``taken`` from a segment; returns whether any LPA is left, and puts those into
    ``listed``."""
    cdef Bits rest
    members_of(segment, listed, &rest)
    take_away(&rest, taken)
    if empty(&rest):
        return False
    trim_to(segment, &rest)
    listed[0] = rest
    return True


# --- packed and unpacked

cdef uint32_t block_bytes(const uint8_t* block) noexcept nogil:
    """Bytes of a block."""
    cdef uint32_t level, n = block[0]
    for level in range(block[0]):
        n += block[HEAD + level]
    return HEAD + block[0] + crb_bytes(block) + n * SEGMENT_BYTES


cdef void unpack_block(const uint8_t* block, Scratch* group) noexcept nogil:
    """Unpack a sound block. ``members`` is not set for accurate segments."""
    cdef uint16_t[GROUP] run_at
    cdef View parts
    cdef uint32_t i, at
    view(block, &parts)
    group.approximate = parts.crb_n > 0
    group.levels = parts.levels
    group.n = parts.n
    for i in range(group.levels):
        group.counts[i] = <uint16_t> (parts.counts[i] + 1)
    for i in range(parts.crb_n):
        if i == 0 or parts.crb[i - 1] == 0 and i > 1:
            run_at[parts.crb[i]] = <uint16_t> i
    for i in range(group.n):
        segment_at(&parts, i, &group.segments[i])
        if group.segments[i].slope & APPROXIMATE:
            clear(&group.members[i])
            at = run_at[group.segments[i].start]
            add(&group.members[i], parts.crb[at])
            at += 1
            while at < parts.crb_n and parts.crb[at] != 0:
                add(&group.members[i], parts.crb[at])
                at += 1


cdef uint32_t write_head(uint8_t* block, uint32_t levels, uint32_t crb_n) noexcept nogil:
    """Write the first bytes of a block; returns how many."""
    block[0] = <uint8_t> levels
    block[1] = crb_n & 255
    block[2] = <uint8_t> (crb_n >> 8)
    return HEAD


cdef uint32_t pack_crb(const Scratch* group, uint8_t* crb) noexcept nogil:
    """Write the CRB of a group; returns its bytes."""
    cdef uint16_t[GROUP] by_start
    cdef Bits starts, run
    cdef uint32_t i, start, n = 0
    if not group.approximate:
        return 0
    clear(&starts)
    for i in range(group.n):
        if group.segments[i].slope & APPROXIMATE:
            add(&starts, group.segments[i].start)
            by_start[group.segments[i].start] = <uint16_t> i
    while not empty(&starts):
        start = first_of(&starts)
        starts.word[start >> 6] &= starts.word[start >> 6] - 1
        if n:
            crb[n] = 0
            n += 1
        run = group.members[by_start[start]]
        for i in range(4):
            while run.word[i]:
                crb[n] = <uint8_t> (i * 64 + first_bit(run.word[i]))
                run.word[i] &= run.word[i] - 1
                n += 1
    return n


cdef uint32_t pack_block(const Scratch* group, uint8_t* block) noexcept nogil:
    """Write the block of a group with at least one segment; returns its bytes."""
    cdef uint32_t i, n = group.n, at = HEAD
    for i in range(group.levels):
        block[at] = <uint8_t> (group.counts[i] - 1)
        at += 1
    i = pack_crb(group, block + at)
    write_head(block, group.levels, i)
    at += i
    for i in range(n):
        block[at + i] = group.segments[i].start
        block[at + n + i] = group.segments[i].length
        memcpy(block + at + 2 * n + 2 * i, &group.segments[i].slope, 2)
        memcpy(block + at + 4 * n + 4 * i, &group.segments[i].intercept, 4)
    return at + n * SEGMENT_BYTES


# --- Algorithm 1

cdef void delete_at(Scratch* group, uint32_t level, uint32_t i) noexcept nogil:
    """Delete segment ``i`` of all, which is in ``level``. The level stays, even if it is empty."""
    group.n -= 1
    group.counts[level] -= 1
    memmove(&group.segments[i], &group.segments[i + 1], (group.n - i) * sizeof(Segment))
    if group.approximate:
        memmove(&group.members[i], &group.members[i + 1], (group.n - i) * sizeof(Bits))


cdef void delete_level(Scratch* group, uint32_t level) noexcept nogil:
    group.levels -= 1
    memmove(&group.counts[level], &group.counts[level + 1], (group.levels - level) * sizeof(uint16_t))


cdef inline uint32_t starts_before(const Segment* level, uint32_t n, uint32_t x) noexcept nogil:
    """How many segments of a level of ``n`` start before ``x``."""
    cdef const Segment* low = level
    cdef uint32_t half
    while n > 0:
        half = (n + 1) >> 1
        low += half & -<uint32_t> (low[half - 1].start < x)
        n -= half
    return <uint32_t> (low - level)


cdef void put(Scratch* group, uint32_t level, uint32_t first, const Segment* new, const Bits* members) noexcept nogil:
    """Insert a segment into ``level``, whose first segment is number ``first`` of all, ordered by start."""
    cdef uint32_t i = first + starts_before(&group.segments[first], group.counts[level], new.start)
    memmove(&group.segments[i + 1], &group.segments[i], (group.n - i) * sizeof(Segment))
    group.segments[i] = new[0]
    group.approximate |= new.slope & APPROXIMATE
    if group.approximate:
        memmove(&group.members[i + 1], &group.members[i], (group.n - i) * sizeof(Bits))
        group.members[i] = members[0]
    group.n += 1
    group.counts[level] += 1


cdef inline bint overlap(const Segment* a, const Segment* b) noexcept nogil:
    return (<uint32_t> a.start <= <uint32_t> b.start + b.length
            and <uint32_t> b.start <= <uint32_t> a.start + a.length)


cdef void claim(Scratch* group, const Bits* taken) noexcept nogil:
    """Take these LPAs from all approximate segments of any level: an LPA is in the CRB once. A segment whose start is
    taken starts at the next LPA that it has left; an empty one is deleted."""
    cdef uint32_t level = 0, i = 0, left
    while level < group.levels:
        left = group.counts[level]
        while left:
            left -= 1
            if group.segments[i].slope & APPROXIMATE and not without(&group.segments[i], &group.members[i], taken):
                delete_at(group, level, i)
            else:
                i += 1
        if group.counts[level] == 0:
            delete_level(group, level)
        else:
            level += 1


cdef void push_down(Scratch* group, const Segment* victim, const Bits* members) noexcept nogil:
    """Put a segment of the top level into the next or, if it overlaps there, into a new level between the two."""
    cdef uint32_t i, first = group.counts[0]
    cdef bint fits = group.levels > 1
    if fits:
        for i in range(first, first + group.counts[1]):
            if overlap(&group.segments[i], victim):
                fits = False
                break
    if not fits:
        memmove(&group.counts[2], &group.counts[1], (group.levels - 1) * sizeof(uint16_t))
        group.counts[1] = 0
        group.levels += 1
    put(group, 1, first, victim, members)


cdef void update(Scratch* group, const Segment* new, const Bits* members) noexcept nogil:
    """Algorithm 1, seg_update at the top level; ``members`` are all LPAs that the segment holds. The scratch has room
    for one segment and one level more than a block; the caller compacts a group that has grown so far."""
    cdef Segment victim
    cdef Bits kept
    cdef uint32_t i = 0
    if new.slope & APPROXIMATE:
        claim(group, members)
    if group.levels == 0:
        group.levels = 1
        group.counts[0] = 0
    i = starts_before(group.segments, group.counts[0], new.start)
    i -= i > 0                   # of those before it, only the last may overlap it
    while i < group.counts[0] and group.segments[i].start <= <uint32_t> new.start + new.length:
        if not overlap(&group.segments[i], new):
            i += 1
        elif not without(&group.segments[i], &group.members[i], members):
            delete_at(group, 0, i)
        elif overlap(&group.segments[i], new):
            victim = group.segments[i]
            kept = group.members[i]
            delete_at(group, 0, i)
            push_down(group, &victim, &kept)
            if group.levels > LEVELS_MOST:  # the new one goes above all others, so order is kept
                compact(group)
                group.levels = max(group.levels, <uint32_t> 1)  # 0 if all were needless holes
                i = 0
        else:
            i += 1
    put(group, 0, 0, new, members)


# --- trim, which the paper does not have

cdef void keep_mapped(const Scratch* group, Bits* set) noexcept nogil:
    """Reduce ``set`` to the LPAs that a look-up would find."""
    cdef Bits seen, mapped, own
    cdef uint32_t i
    clear(&seen)
    clear(&mapped)
    for i in range(group.n):
        members_of(&group.segments[i], &group.members[i], &own)
        take_away(&own, &seen)
        unite(&seen, &own)
        if not group.segments[i].slope & HOLE:
            unite(&mapped, &own)
    meet(set, &mapped)


cdef void dig(Scratch* group, const Bits* gone, const Bits* held) noexcept nogil:
    """Add holes over the LPAs ``held``, each over as many of them as a run of ``gone`` has, and no longer."""
    cdef Segment hole
    cdef Bits members
    cdef uint32_t x = 0, first, last
    hole.slope = HOLE_SLOPE
    hole.intercept = 0
    while x < GROUP:
        if not has(held, x):
            x += 1
            continue
        first = last = x
        while x < GROUP and has(gone, x):
            if has(held, x):
                last = x
            x += 1
        hole.start = <uint8_t> first
        hole.length = <uint8_t> (last - first)
        clear(&members)
        add_range(&members, first, last)
        if group.n == SEGMENTS_MOST or group.levels == LEVELS_MOST:
            compact(group)
        update(group, &hole, &members)


cdef void unmap(Scratch* group, const Bits* gone) noexcept nogil:
    """Unmap those LPAs: take them from every segment whose ends or CRB can express that; where an accurate segment has
    them in its middle, cover them with a hole."""
    cdef Bits mapped = gone[0], held, own
    cdef uint32_t level = 0, i = 0, left
    keep_mapped(group, &mapped)
    if empty(&mapped):
        return
    clear(&held)
    while level < group.levels:
        left = group.counts[level]
        while left:
            left -= 1
            if not group.segments[i].slope & HOLE:
                if not without(&group.segments[i], &group.members[i], gone):
                    delete_at(group, level, i)
                    continue
                members_of(&group.segments[i], &group.members[i], &own)
                meet(&own, gone)
                unite(&held, &own)
            i += 1
        if group.counts[level] == 0:
            delete_level(group, level)
        else:
            level += 1
    dig(group, gone, &held)
    for i in range(group.n):
        if not group.segments[i].slope & HOLE:
            return
    group.n = group.levels = 0


# --- compaction

cdef void drop_hidden(Scratch* group) noexcept nogil:
    """From the top down, each segment keeps only LPAs that no segment above it holds; then from the bottom up, a hole
    keeps only LPAs that a segment below it holds. Each remaining segment of several pages has its LPAs in
    ``members``."""
    cdef Bits seen, own
    cdef uint32_t i, n = 0
    cdef bint holes = False
    clear(&seen)
    for i in range(group.n):
        if group.segments[i].length == 0 and not group.segments[i].slope & (APPROXIMATE | HOLE):
            if not has(&seen, group.segments[i].start):  # a single page: most of what a crowded group has
                add(&seen, group.segments[i].start)
                group.segments[n] = group.segments[i]
                n += 1
            continue
        holes |= (group.segments[i].slope & HOLE) != 0
        group.segments[n] = group.segments[i]
        group.members[n] = group.members[i]
        if without(&group.segments[n], &group.members[n], &seen):
            unite(&seen, &group.members[n])
            n += 1
    group.n = n
    if not holes:
        return
    clear(&seen)
    for i in range(group.n, 0, -1):
        n -= 1
        group.segments[n] = group.segments[i - 1]
        group.members[n] = group.members[i - 1]
        if group.segments[n].slope & HOLE:
            own = group.members[n]
            meet(&own, &seen)
            if empty(&own):
                n += 1
            else:
                trim_to(&group.segments[n], &own)
        else:
            members_of(&group.segments[n], &group.members[n], &own)
            unite(&seen, &own)
    group.n -= n
    memmove(&group.segments[0], &group.segments[n], group.n * sizeof(Segment))
    memmove(&group.members[0], &group.members[n], group.n * sizeof(Bits))


cdef bint is_compact(const Scratch* group) noexcept nogil:
    """Whether it is one level without holes: then no segment hides another."""
    cdef uint32_t i
    cdef uint16_t any = 0
    if group.levels != 1:
        return False
    for i in range(group.n):
        any |= group.segments[i].slope
    return not any & HOLE


cdef void compact(Scratch* group) noexcept nogil:
    """The result of the paper's level-by-level merging, at once: hidden segments are gone, and each segment is as high
    as newer ones that overlap it allow. The levels are as few as the order permits."""
    cdef uint8_t[GROUP] under
    cdef uint8_t[SEGMENTS_MOST + 2] level_of
    cdef uint32_t i, x, level, start
    if is_compact(group):
        return
    drop_hidden(group)
    memset(under, 0, sizeof(under))
    memset(group.counts, 0, sizeof(group.counts))
    group.levels = 0
    for i in range(group.n):
        start = group.segments[i].start
        level = under[start]
        if group.segments[i].length == 0:
            under[start] = <uint8_t> (level + 1)
        else:
            for x in range(start + 1, start + group.segments[i].length + 1):
                level = max(level, <uint32_t> under[x])
            memset(under + start, level + 1, <uint32_t> group.segments[i].length + 1)
        level_of[i] = <uint8_t> level
        group.levels = max(group.levels, level + 1)
        group.counts[level] += 1
    order(group, level_of)


cdef void order(Scratch* group, const uint8_t* level_of) noexcept nogil:
    """Sort the segments by level, and in each by start; no two of a level have the same start. The segments of each
    start, one start after another, go to the next places of their levels."""
    cdef uint16_t[GROUP + 1] places
    cdef uint16_t[GROUP] newest
    cdef uint16_t[SEGMENTS_MOST + 2] before
    cdef Bits starts
    cdef uint32_t i, k, at, start, level
    clear(&starts)
    for i in range(group.n):
        start = group.segments[i].start
        before[i] = newest[start] if has(&starts, start) else <uint16_t> NO_SEGMENT
        newest[start] = <uint16_t> i
        add(&starts, start)
    places[0] = 0
    for level in range(group.levels):
        places[level + 1] = places[level] + group.counts[level]
    for k in range(4):
        while starts.word[k]:
            i = newest[64 * k + first_bit(starts.word[k])]
            starts.word[k] &= starts.word[k] - 1
            while i != NO_SEGMENT:
                at = places[level_of[i]]
                places[level_of[i]] += 1
                group.spare[at] = group.segments[i]
                if group.approximate:
                    group.spare_members[at] = group.members[i]
                i = before[i]
    memcpy(group.segments, group.spare, group.n * sizeof(Segment))
    if group.approximate:
        memcpy(group.members, group.spare_members, group.n * sizeof(Bits))


# --- the same for a plain block: a map of gamma 0 has only such until something is trimmed

cdef struct Kept:                # segments with LPAs left, from the top level down
    uint32_t n, levels
    uint8_t[SEGMENTS_MOST] start, length, level, source
    uint16_t[LEVELS_MOST + 2] counts


cdef bint is_plain(const View* block) noexcept nogil:
    """Whether it has neither approximate segments nor holes."""
    cdef uint32_t i
    cdef uint16_t any = 0
    for i in range(block.n):
        any |= slope_at(block, i)
    return not any & (APPROXIMATE | HOLE)


cdef void paint(const View* block, uint8_t* owner) noexcept nogil:
    """Set the segment that each LPA is found in. Entries of LPAs in no segment are undefined."""
    cdef uint32_t i = block.n, x, last, stride
    while i > 0:                 # the topmost has the last word
        i -= 1
        x = block.starts[i]
        owner[x] = <uint8_t> i
        if block.lengths[i]:
            last = x + block.lengths[i]
            stride = stride_of(slope_at(block, i))
            while x <= last:
                owner[x] = <uint8_t> i
                x += stride


cdef bint ends_of(const View* block, uint32_t i, const uint8_t* owner, uint32_t* first, uint32_t* last) noexcept nogil:
    """The first and last LPA found in segment ``i``, which has several LPAs; returns whether there is any."""
    cdef uint32_t stride = stride_of(slope_at(block, i))
    first[0] = block.starts[i]
    last[0] = first[0] + block.lengths[i]
    while owner[first[0]] != <uint8_t> i:
        if first[0] == last[0]:
            return False
        first[0] += stride
    while owner[last[0]] != <uint8_t> i:
        last[0] -= stride
    return True


cdef void keep(const View* block, const uint8_t* owner, Kept* kept) noexcept nogil:
    """Find which segments have LPAs left, and on which level they go. No branch depends on whether a single page is
    left: that is unpredictable."""
    cdef uint8_t[GROUP] under
    cdef uint32_t i, x, first, last, level, n = 0
    cdef bint left
    memset(under, 0, sizeof(under))
    memset(kept.counts, 0, sizeof(kept.counts))
    kept.levels = 0
    for i in range(block.n):
        first = last = block.starts[i]
        if block.lengths[i] == 0:
            left = owner[first] == <uint8_t> i
            level = under[first]
            under[first] = <uint8_t> (level + left)
        else:
            left = ends_of(block, i, owner, &first, &last)
            level = 0
            if left:
                for x in range(first, last + 1):
                    level = max(level, <uint32_t> under[x])
                memset(under + first, level + 1, last - first + 1)
        kept.start[n] = <uint8_t> first
        kept.length[n] = <uint8_t> (last - first)
        kept.level[n] = <uint8_t> level
        kept.source[n] = <uint8_t> i
        if level:
            kept.counts[level] += left
        n += left
        kept.levels = max(kept.levels, level + left)
    kept.n = kept.counts[0] = n
    for level in range(1, kept.levels):
        kept.counts[0] -= kept.counts[level]


cdef uint32_t compact_plain(const View* block, uint8_t* out) noexcept nogil:
    """``compact`` of a plain block into ``out``; returns the bytes, or 0 if it needs ``compact``."""
    cdef Kept kept
    cdef uint8_t[GROUP] owner
    if block.n > SEGMENTS_MOST or not is_plain(block):
        return 0
    paint(block, owner)
    keep(block, owner, &kept)
    if kept.levels > LEVELS_MOST or HEAD + kept.levels + kept.n * SEGMENT_BYTES > CROWDED:
        return 0
    return put_kept(block, &kept, out)


cdef uint32_t put_kept(const View* block, const Kept* kept, uint8_t* out) noexcept nogil:
    """Write the block of those segments; returns its bytes."""
    cdef uint16_t[GROUP] newest
    cdef uint16_t[SEGMENTS_MOST] before
    cdef uint16_t[LEVELS_MOST + 2] places
    cdef uint32_t level, x, i, at, n = kept.n
    cdef uint8_t* columns = out + write_head(out, kept.levels, 0)
    places[0] = 0
    for level in range(kept.levels):
        columns[level] = <uint8_t> (kept.counts[level] - 1)
        places[level + 1] = places[level] + kept.counts[level]
    columns += kept.levels
    memset(newest, 0xFF, sizeof(newest))
    for i in range(n):           # segments of the same start are on different levels
        before[i] = newest[kept.start[i]]
        newest[kept.start[i]] = <uint16_t> i
    for x in range(GROUP):
        i = newest[x]
        while i != NO_SEGMENT:
            at = places[kept.level[i]]
            places[kept.level[i]] += 1
            columns[at] = <uint8_t> x
            columns[n + at] = kept.length[i]
            memcpy(columns + 2 * n + 2 * at, block.slopes + 2 * <uint32_t> kept.source[i], 2)
            memcpy(columns + 4 * n + 4 * at, block.intercepts + 4 * <uint32_t> kept.source[i], 4)
            i = before[i]
    return <uint32_t> (columns - out) + n * SEGMENT_BYTES


# --- what must hold

cdef const char* levels_fault(const View* block) noexcept nogil:
    cdef Segment segment
    cdef uint32_t level, _i, at = 0, after, stride
    for level in range(block.levels):
        after = 0
        for _i in range(<uint32_t> block.counts[level] + 1):
            segment_at(block, at, &segment)
            at += 1
            if <uint32_t> segment.start + segment.length >= GROUP:
                return b"a segment ends beyond the group"
            if segment.start < after:
                return b"the segments of a level are not sorted, or overlap"
            after = <uint32_t> segment.start + segment.length + 1
            if segment.slope & HOLE:
                if segment.slope != HOLE_SLOPE:
                    return b"a hole's slope is not -1"
            elif segment.slope & APPROXIMATE:
                if segment.slope & SLOPE_BITS > 0x7BFF:
                    return b"a slope is not a number"
            elif segment.slope:
                stride = stride_of(segment.slope)
                if not 1 <= stride <= STRIDE_MOST or (
                        segment.slope != half_floor(1.0 / stride) & ~<uint16_t> APPROXIMATE):
                    return b"an accurate segment's slope is not the one of its stride"
                if segment.length % stride:
                    return b"an accurate segment's last LPA is not on its stride"
            elif segment.length:
                return b"a segment of slope 0 has more than one LPA"
    return NULL


cdef const char* runs_fault(const View* block, int* run_end) noexcept nogil:
    """What is wrong with the CRB by itself; sets ``run_end`` at the first LPA of each run to its last."""
    cdef Bits seen
    cdef uint32_t i, start = 0
    cdef bint begins = True
    clear(&seen)
    for i in range(block.crb_n):
        if i and block.crb[i] == 0:
            if begins or i + 1 == block.crb_n:
                return b"the CRB has a null without a run on both sides"
            begins = True
            continue
        if has(&seen, block.crb[i]):
            return b"the CRB has an LPA twice"
        add(&seen, block.crb[i])
        if begins:
            if i and block.crb[i] < start:
                return b"the CRB's runs are not sorted by their first LPAs"
            start = block.crb[i]
        elif block.crb[i] < block.crb[i - 1]:
            return b"a run of the CRB is not sorted"
        begins = False
        run_end[start] = block.crb[i]
    return NULL


cdef const char* crb_fault(const View* block) noexcept nogil:
    cdef int[GROUP] run_end
    cdef const char* fault
    cdef uint32_t i
    for i in range(GROUP):
        run_end[i] = -1
    fault = runs_fault(block, run_end)
    if fault != NULL:
        return fault
    for i in range(block.n):
        if slope_at(block, i) & APPROXIMATE:
            if run_end[block.starts[i]] != <int> block.starts[i] + block.lengths[i]:
                return b"an approximate segment does not start and end with a run of the CRB of its own"
            run_end[block.starts[i]] = -1
    for i in range(GROUP):
        if run_end[i] >= 0:
            return b"the CRB has a run of no segment"
    return NULL


cdef const char* fault_of(const uint8_t* block, uint32_t bytes) noexcept nogil:
    """What is wrong with an arbitrary block, or NULL. A sound block has these properties: it is as long as its head
    says; it has 1 to 255 levels and at most 256 segments; in each level the segments are sorted and do not overlap;
    accurate segments have the slope of their stride, and end on it; each approximate one has a run of the CRB that
    begins with its start and ends with its end, and no run is left over; the runs are sorted, and are ordered by their
    starts; no LPA is twice in the CRB, so no two approximate segments have the same start."""
    cdef View parts
    cdef const char* fault
    if bytes < HEAD or block[0] == 0 or bytes < HEAD + <uint32_t> block[0] or bytes != block_bytes(block):
        return b"it is not as long as its head says"
    view(block, &parts)
    if parts.n > SEGMENTS_MOST:
        return b"it has more than 256 segments"
    if parts.crb_n > GROUP + GROUP // 2:
        return b"its CRB is longer than any can be"
    fault = levels_fault(&parts)
    return fault if fault != NULL else crb_fault(&parts)
