# One group of the log-structured mapping table: its packed bytes, and Algorithms 1 and 2 on them; see _group.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from flashfs._learn cimport predict, stride_of

cdef enum:
    GROUP = 256                  # LPAs
    HEAD = 3                     # bytes in front of a block: u8 levels, u16 CRB bytes
    LEVELS_MOST = 255
    SEGMENTS_MOST = 256          # one more, and the group is compacted
    CROWDED = 2052               # bytes above which a group is compacted: a segment for each LPA in one level
    BLOCK_MOST = 2752            # head, 255 levels, 256 LPAs and 127 nulls, 256 segments
    HOLE = 0x8000                # in a slope: the segment's LPAs are not mapped
    HOLE_SLOPE = 0xBC00          # -1: a hole of neighbours
    SEGMENT_BYTES = 8

cdef packed struct Segment:
    uint8_t start                # offset in the group
    uint8_t length               # to the last LPA
    uint16_t slope
    uint32_t intercept

cdef struct Bits:                # a set of a group's LPAs
    uint64_t[4] word

cdef struct Work:                # a segment out of its block
    Segment segment
    Bits members                 # of an approximate one: its LPAs in the CRB

cdef struct Scratch:             # a group out of its block, from the top level down
    uint32_t levels, n
    uint16_t[LEVELS_MOST + 2] counts
    Work[SEGMENTS_MOST + 2] work
    Work[SEGMENTS_MOST + 2] spare

cdef extern from "string.h" nogil:
    void* memchr(const void* s, int c, size_t n)
    void* memrchr(const void* s, int c, size_t n)

cdef uint32_t block_bytes(const uint8_t* block) noexcept nogil
cdef const char* fault_of(const uint8_t* block, uint32_t bytes) noexcept nogil
cdef void unpack_block(const uint8_t* block, Scratch* group) noexcept nogil
cdef uint32_t pack_block(const Scratch* group, uint8_t* block) noexcept nogil
cdef void members_of(const Work* work, Bits* out) noexcept nogil
cdef bint without(Work* work, const Bits* taken) noexcept nogil
cdef void update(Scratch* group, const Work* new) noexcept nogil
cdef void unmap(Scratch* group, const Bits* gone) noexcept nogil
cdef void compact(Scratch* group) noexcept nogil
cdef void sort_level(Work* work, uint32_t n) noexcept nogil


cdef inline uint32_t crb_bytes(const uint8_t* block) noexcept nogil:
    return block[1] | <uint32_t> block[2] << 8


cdef inline const uint8_t* crb_of(const uint8_t* block) noexcept nogil:
    return block + HEAD + block[0]


cdef inline const Segment* segments_of(const uint8_t* block) noexcept nogil:
    return <const Segment*> (block + HEAD + block[0] + crb_bytes(block))


cdef inline uint32_t at_or_before(const Segment* level, uint32_t n, uint32_t x) noexcept nogil:
    """How many of a level's ``n`` segments start at ``x`` or before."""
    cdef uint32_t low = 0, middle
    while n > 0:
        middle = n >> 1
        if level[low + middle].start <= x:
            low += middle + 1
            n -= middle + 1
        else:
            n = middle
    return low


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
    """Algorithm 1's look-up of offset ``x``: whether it is mapped; what its segment predicts, and levels searched."""
    cdef uint32_t level, n, at, away
    cdef int owner = -2
    cdef const Segment* segment = segments_of(block)
    for level in range(block[0]):
        n = <uint32_t> block[HEAD + level] + 1
        at = at_or_before(segment, n, x)
        if at:
            at -= 1
            away = x - segment[at].start
            if away <= segment[at].length:
                if segment[at].slope & 1:
                    if owner == -2:
                        owner = owner_in_crb(crb_of(block), crb_bytes(block), x)
                    if owner == segment[at].start:
                        levels[0] = level + 1
                        approximate[0] = True
                        ppa[0] = predict(segment[at].slope, segment[at].intercept, x)
                        return True
                elif away == 0 or segment[at].slope == 0x3C00 or away % stride_of(segment[at].slope) == 0:
                    levels[0] = level + 1
                    approximate[0] = False
                    ppa[0] = predict(segment[at].slope, segment[at].intercept, x)
                    return segment[at].slope & HOLE == 0
        segment += n
    levels[0] = block[0]
    approximate[0] = False
    return False
