# cold
"""Views of LeaFTL's table: totals, a group's levels and segments, the segment of an LPA."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.leaftl.group cimport GROUP, HOLE, LEVELS_MOST, View, slope_at, view
from flashfs.ftl.leaftl.regression cimport APPROXIMATE, stride_of
from flashfs.ftl.leaftl.blocks cimport ABSENT
from flashfs.ftl.leaftl.segments cimport SegmentTable

from math import ceil

cdef enum:
    CRB_MOST = GROUP + GROUP // 2          # bytes in a group's CRB


def survey(SegmentTable table not None):
    """Totals of all groups, counted now: segments by kind, groups and segments by level, bytes. Entry i of a histogram
    counts those that have i: ``groups_by_levels`` levels, ``groups_by_crb_bytes`` bytes in the CRB,
    ``segments_by_points`` LPAs, superseded or not (holes have none); ``segments_by_level`` begins with the top."""
    cdef uint64_t[LEVELS_MOST + 1] groups
    cdef uint64_t[LEVELS_MOST + 1] segments
    cdef uint64_t[GROUP + 1] points
    cdef uint64_t[CRB_MOST + 1] crbs
    cdef uint64_t about = 0, holes = 0
    cdef uint32_t group, level, i, at
    cdef const uint8_t* block
    cdef View parts
    memset(groups, 0, sizeof(groups))
    memset(segments, 0, sizeof(segments))
    memset(points, 0, sizeof(points))
    memset(crbs, 0, sizeof(crbs))
    with nogil:
        for group in range(table.groups):
            block = table.block_of(group)
            if block == NULL:
                continue
            view(block, &parts)
            groups[parts.levels] += 1
            crbs[parts.crb_n] += 1
            count_points(&parts, points)
            at = 0
            for level in range(parts.levels):
                segments[level] += <uint32_t> parts.counts[level] + 1
                for i in range(at, at + parts.counts[level] + 1):
                    about += slope_at(&parts, i) & APPROXIMATE
                    holes += (slope_at(&parts, i) & HOLE) != 0
                at += <uint32_t> parts.counts[level] + 1
    sizes = table.sizes()
    return {
        "segments": table.segments,
        "accurate": table.segments - about - holes,
        "approximate": about,
        "holes": holes,
        "groups": table.mapped_groups,
        "groups_by_levels": trimmed([groups[i] for i in range(LEVELS_MOST + 1)]),
        "segments_by_level": trimmed([segments[i] for i in range(LEVELS_MOST)]),
        "segments_by_points": trimmed([points[i] for i in range(GROUP + 1)]),
        "groups_by_crb_bytes": trimmed([crbs[i] for i in range(CRB_MOST + 1)]),
        "crb_bytes": table.crb_bytes,
        "modelled_bytes": sizes["modelled"],
        "paper_bytes": sizes["paper"],
    }


cdef int count_points(const View* block, uint64_t* points) noexcept nogil:
    """Count each segment except holes in ``points``, by the number of LPAs that it holds."""
    cdef uint32_t i, at = 0, run
    cdef uint16_t slope
    for i in range(block.n):
        slope = slope_at(block, i)
        if not slope & (APPROXIMATE | HOLE):
            points[block.lengths[i] // stride_of(slope) + 1 if block.lengths[i] else 1] += 1
    while at < block.crb_n:                # a run for each approximate segment; only the first byte may be LPA 0
        run = 1
        while at + run < block.crb_n and block.crb[at + run] != 0:
            run += 1
        points[run] += 1
        at += run + 1
    return 0


def explain(SegmentTable table not None, uint32_t lpa):
    """The segment that a look-up of an LPA finds, and its prediction."""
    cdef uint32_t ppa = NONE, levels = 0
    cdef bint about = False
    out = {"group": lpa // GROUP, "offset": lpa % GROUP}
    if table.directory[lpa // GROUP] == ABSENT:
        return {**out, "level": "in flash", "ppa": None}
    if not table.find(lpa, &ppa, &levels, &about):
        return {**out, "level": None, "ppa": None}
    level = table.dump(lpa // GROUP)["levels"][levels - 1]
    segment = next(piece for piece in level if lpa % GROUP in piece["lpas"])
    return {
        **out,
        "level": levels - 1,
        "kind": segment["kind"],
        "segment": f"{segment['start']} to {segment['end']}, {len(segment['lpas'])} LPAs",
        "slope": segment["slope"],
        "intercept": segment["intercept"],
        "ppa": ppa,
    }


def group_of(SegmentTable table not None, group):
    """One group: SegmentTable.dump, each segment with the first and the last PPA that it predicts."""
    held = table.dump(group)
    for level in held["levels"]:
        for segment in level:
            for end, x in (("first_ppa", segment["start"]), ("last_ppa", segment["end"])):
                ppa = ceil(segment["slope"] * x) + segment["intercept"] & NONE
                segment[end] = None if segment["kind"] == "hole" else ppa
    return held


def largest_group(SegmentTable table not None):
    """The group that takes most bytes, 0 if none takes any."""
    cdef uint32_t group, best = 0
    for group in range(table.groups):
        if table.group_bytes(group) > table.group_bytes(best):
            best = group
    return best


def trimmed(list counts):
    """Remove the zeros at the end."""
    while counts and counts[len(counts) - 1] == 0:
        counts.pop()
    return counts
