# One group of the log-structured mapping table: its packed bytes, and Algorithms 1 and 2 on them; see group.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from flashfs.ftl.leaftl.regression cimport predict, stride_of

cdef enum:
    GROUP = 256                  # LPAs
    HEAD = 3                     # bytes at the start of a block: u8 levels, u16 CRB bytes
    LEVELS_MOST = 255
    SEGMENTS_MOST = 256          # one more, and the group is compacted
    CROWDED = 2052               # bytes above which a group is compacted: a segment for each LPA in one level
    BLOCK_MOST = 2752            # head, 255 levels, 256 LPAs and 127 nulls, 256 segments
    HOLE = 0x8000                # flag in a slope: the segment's LPAs are not mapped
    HOLE_SLOPE = 0xBC00          # -1: a hole has stride 1
    SEGMENT_BYTES = 8

cdef struct Segment:             # 8 bytes in a block too, but there each field has a column of its own
    uint8_t start                # offset in the group
    uint8_t length               # to the last LPA
    uint16_t slope
    uint32_t intercept

cdef struct View:                # the parts of a block
    uint32_t levels, crb_n, n    # n segments
    const uint8_t* counts        # of segments less 1, a level each
    const uint8_t* crb
    const uint8_t* starts
    const uint8_t* lengths
    const uint8_t* slopes        # two bytes each, not aligned
    const uint8_t* intercepts    # four

cdef struct Bits:                # a set of a group's LPAs
    uint64_t[4] word

cdef struct Scratch:             # an unpacked group, from the top level down
    uint32_t levels, n
    bint approximate             # some segment is or was: ``members`` must move with ``segments``
    uint16_t[LEVELS_MOST + 2] counts
    Segment[SEGMENTS_MOST + 2] segments
    Bits[SEGMENTS_MOST + 2] members  # of an approximate segment: its LPAs in the CRB; else undefined
    Segment[SEGMENTS_MOST + 2] spare
    Bits[SEGMENTS_MOST + 2] spare_members

cdef extern from "string.h" nogil:
    void* memchr(const void* s, int c, size_t n)
    void* memrchr(const void* s, int c, size_t n)

cdef uint32_t block_bytes(const uint8_t* block) noexcept nogil
cdef uint32_t write_head(uint8_t* block, uint32_t levels, uint32_t crb_n) noexcept nogil
cdef const char* fault_of(const uint8_t* block, uint32_t bytes) noexcept nogil
cdef void unpack_block(const uint8_t* block, Scratch* group) noexcept nogil
cdef uint32_t pack_block(const Scratch* group, uint8_t* block) noexcept nogil
cdef void members_of(const Segment* segment, const Bits* listed, Bits* out) noexcept nogil
cdef bint without(Segment* segment, Bits* listed, const Bits* taken) noexcept nogil
cdef void update(Scratch* group, const Segment* new, const Bits* members) noexcept nogil
cdef void unmap(Scratch* group, const Bits* gone) noexcept nogil
cdef void compact(Scratch* group) noexcept nogil
cdef uint32_t compact_plain(const View* block, uint8_t* out) noexcept nogil


cdef inline uint32_t crb_bytes(const uint8_t* block) noexcept nogil:
    return block[1] | <uint32_t> block[2] << 8


cdef inline void view(const uint8_t* block, View* out) noexcept nogil:
    """Find the parts of a sound block."""
    cdef uint32_t i
    out.levels = block[0]
    out.crb_n = crb_bytes(block)
    out.counts = block + HEAD
    out.n = out.levels
    for i in range(out.levels):
        out.n += out.counts[i]
    out.crb = out.counts + out.levels
    out.starts = out.crb + out.crb_n
    out.lengths = out.starts + out.n
    out.slopes = out.lengths + out.n
    out.intercepts = out.slopes + 2 * out.n


cdef inline uint16_t slope_at(const View* block, uint32_t i) noexcept nogil:
    cdef uint16_t slope
    memcpy(&slope, block.slopes + 2 * i, 2)
    return slope


cdef inline uint32_t intercept_at(const View* block, uint32_t i) noexcept nogil:
    cdef uint32_t intercept
    memcpy(&intercept, block.intercepts + 4 * i, 4)
    return intercept


cdef inline void segment_at(const View* block, uint32_t i, Segment* out) noexcept nogil:
    out.start = block.starts[i]
    out.length = block.lengths[i]
    out.slope = slope_at(block, i)
    out.intercept = intercept_at(block, i)


cdef inline uint32_t at_or_before(const uint8_t* starts, uint32_t n, uint32_t x) noexcept nogil:
    """How many of ``n`` sorted starts, all different, are ``x`` or less. At most 255 - x starts are more, and at most
    x + 1 are not: in a crowded level that leaves few to search. No branch depends on them: half would be
    mispredicted."""
    cdef uint32_t half, first = n + x - 255 if n + x > 255 else 0
    cdef const uint8_t* low = starts + first
    n = min(n, x + 1) - first
    if n == 0:
        return first
    while n > 1:
        half = n >> 1
        low += half & -<uint32_t> (low[half] <= x)
        n -= half
    return <uint32_t> (low - starts) + (low[0] <= x)


cdef inline int owner_in_crb(const uint8_t* crb, uint32_t n, uint32_t x) noexcept nogil:
    """The start of the approximate segment that holds ``x``, or -1. Offset 0 can only be the first byte: any other 0 is
    a null."""
    cdef const uint8_t* found
    cdef const uint8_t* null
    if x == 0:
        return 0 if n and crb[0] == 0 else -1
    found = <const uint8_t*> memchr(crb, <int> x, n)
    if found == NULL:
        return -1
    null = <const uint8_t*> memrchr(crb + 1, 0, found - crb - 1) if found > crb else NULL
    return crb[0] if null == NULL else null[1]


cdef inline bint look_up(const uint8_t* block, uint32_t x, uint32_t* ppa, uint32_t* levels,
                         bint* approximate) noexcept nogil:
    """Algorithm 1's look-up of offset ``x``: returns whether it is mapped; sets what its segment predicts, and levels
    searched."""
    cdef View parts
    cdef uint32_t level, at, away, first = 0
    cdef uint16_t slope
    cdef int owner = -2
    view(block, &parts)
    for level in range(parts.levels):
        at = first + at_or_before(parts.starts + first, <uint32_t> parts.counts[level] + 1, x) - 1
        if at + 1 > first:
            away = x - parts.starts[at]
            if away <= parts.lengths[at]:
                slope = slope_at(&parts, at)
                if slope & 1:
                    if owner == -2:
                        owner = owner_in_crb(parts.crb, parts.crb_n, x)
                    if owner == parts.starts[at]:
                        levels[0] = level + 1
                        approximate[0] = True
                        ppa[0] = predict(slope, intercept_at(&parts, at), x)
                        return True
                elif away == 0 or slope == 0x3C00 or away % stride_of(slope) == 0:
                    levels[0] = level + 1
                    approximate[0] = False
                    ppa[0] = predict(slope, intercept_at(&parts, at), x)
                    return slope & HOLE == 0
        first += <uint32_t> parts.counts[level] + 1
    levels[0] = parts.levels
    approximate[0] = False
    return False
