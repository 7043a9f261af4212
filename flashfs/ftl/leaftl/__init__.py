"""LeaFTL's line in the registry; the scheme itself is compiled, in mapping.pyx."""

from __future__ import annotations

import struct
from typing import Any

from flashfs.engine.views import block_map
from flashfs.errors import UsageError
from flashfs.ftl import BYTES, Option, Scheme, charts
from flashfs.ftl.common import MAP_DIES, spread_map, streams_for
from flashfs.ftl.leaftl.lookup import oob_bytes
from flashfs.ftl.leaftl.mapping import SegmentMap
from flashfs.ftl.leaftl.recovery import saved_bytes
from flashfs.ftl.leaftl.table_pages import MAGIC
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap

NO_PAGE = 2**32 - 1  #: in a page's list: no neighbour of the same run
BUFFER_BYTES = 8 << 20
BANDS_MOST = 12  #: blocks of a group that are drawn


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    mapping = SegmentMap(ssd, options["gamma"], options["compact_every"], options["compact_grown"])
    placement = streams_for(ssd, options, "leaftl", by_block=True, pads=options["pad"] == "block")
    spread_map(ssd, options, placement)
    if options["table_bytes"]:
        mapping.limit_groups(options["table_bytes"])
    return mapping, PageBitmap(ssd), placement, Greedy(ssd)


def _describe_oob(raw: bytes) -> dict[str, Any]:
    """The stamp of a page: the LPAs of the pages before and after it that were programmed with it."""
    listed = [None if lpa == NO_PAGE else lpa for (lpa,) in struct.iter_unpack("<I", raw[: len(raw) // 8 * 8])]
    return {"before": listed[: len(listed) // 2], "behind": listed[len(listed) // 2 :]} if listed else {}


def _describe_translation(number: int, raw: bytes) -> dict[str, Any]:
    """The groups of a translation page, and how many bytes each takes. On chips of small pages a translation page takes
    a few pages of flash, each continuing the previous one."""
    magic, first, groups, size = struct.unpack_from("<4sIHxxI", raw)
    if magic != MAGIC:
        return {"groups": "goes on from the page in front"}
    sizes, at = [], 16
    for _ in range(groups):
        if at + 2 > len(raw):
            break
        (n,) = struct.unpack_from("<H", raw, at)
        sizes.append(n)
        at += 2 + n
    return {"groups": f"{first} to {first + groups - 1}", "bytes": size, "group_bytes": sizes}


def _gmd(device: Any) -> list[dict[str, Any]]:
    """The directory of translation pages: each page with its PPAs."""
    return list(device.ssd.mapping.directory.entries())


def _map(device: Any) -> dict[str, Any]:
    """The whole table in figures."""
    mapped = int(block_map.block_map(device.ssd)["valid"].sum()) - len(device.ssd.mapping.translation_pages())
    figures = device.ssd.mapping.survey()
    return {
        "entries": device.ssd.lpas,
        "gamma": device.ssd.mapping.gamma,
        "mapped": mapped,
        "fill": round(mapped / device.ssd.lpas, 6),
        **figures,
        **{name: _in_ranges(figures[name]) for name in ("segments_by_points", "groups_by_crb_bytes")},
        "translation_pages": len(device.ssd.mapping.translation_pages()),
        "lpas_a_segment": round(mapped / figures["segments"], 3) if figures["segments"] else None,
    }


def _in_ranges(counts: list[int]) -> dict[str, int]:
    """A histogram of up to some hundred entries in ranges that double: 0, 1, 2 to 3, 4 to 7, ..."""
    out = {}
    for bits in range(len(counts).bit_length() + 1):
        first, end = 1 << bits >> 1, 1 << bits
        if n := sum(counts[first:end]):
            out[str(first) if end - first < 2 else f"{first} to {end - 1}"] = n
    return out


def _group(device: Any, number: int | None) -> dict[str, Any]:
    """The levels, segments and CRB of one group; by default of the group that takes most bytes."""
    mapping = device.ssd.mapping
    if number is None:
        number = mapping.largest_group()
    if not 0 <= number < mapping.table.groups:
        raise UsageError(f"group {number}: {device.path} has groups 0 to {mapping.table.groups - 1}, of 256 LPAs each")
    held = mapping.group_of(number)
    rows = [
        {
            "level": level, "kind": segment["kind"], "start": segment["start"], "end": segment["end"],
            "lpas": len(segment["lpas"]), "slope": round(segment["slope"], 6), "intercept": segment["intercept"],
            "first_ppa": segment["first_ppa"], "last_ppa": segment["last_ppa"],
        }
        for level, segments in enumerate(held["levels"]) for segment in segments
    ]  # fmt: skip
    return {
        "group": number, "first_lpa": number * 256, "bytes": held["bytes"], "levels": len(held["levels"]),
        "segments": rows, "crb": [{"start": run[0], "lpas": run} for run in held["crb"]],
    }  # fmt: skip


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    figures = _map(device)
    levels = [[str(n), count] for n, count in enumerate(figures["groups_by_levels"]) if n]
    return [
        charts.facts(figures),
        charts.picture(device, where),
        charts.bars("Levels", "levels of a group", "groups", levels,
                    "How deep the groups of 256 LPAs are: a look-up begins at the top, and most end there."),
        charts.runs(device, where),
        _drawn(device, device.ssd.mapping.largest_group(), where),
    ]  # fmt: skip


def _drawn(device: Any, number: int, where: Any) -> dict[str, Any]:
    """A group's segments as lines over the pages that they map, a band for each block that they point into."""
    per_block = device.ssd.nand.pages_per_block
    bands: dict[int, dict[str, Any]] = {}
    for level, segments in enumerate(device.ssd.mapping.group_of(number)["levels"]):
        for segment in segments:
            if segment["kind"] == "hole":
                continue
            block = segment["first_ppa"] // per_block
            empty = {"label": f"block {block}", "y_most": per_block - 1, "lines": [], "points": []}
            band = bands.setdefault(block, empty)
            band["lines"].append({
                "x1": segment["start"], "y1": segment["first_ppa"] % per_block, "x2": segment["end"],
                "y2": segment["last_ppa"] % per_block, "kind": segment["kind"],
                "title": f"level {level}: {segment['kind']}, LPAs {segment['start']} to {segment['end']}",
            })  # fmt: skip
    for lpa, ppa in enumerate(where.window(number * 256, 256).tolist(), number * 256):
        its_band = bands.get(ppa // per_block) if ppa != NO_PAGE else None
        if its_band is not None:
            met = device.ssd.mapping.explain(lpa)["ppa"] == ppa
            its_band["points"].append([lpa % 256, ppa % per_block, met])
    shown = [bands[block] for block in sorted(bands)]
    about = (f"Group {number}, LPAs {number * 256} to {number * 256 + 255}, the one that takes most bytes: each line "
             "is a segment, each dot a page; red ones cost one more read.")  # fmt: skip
    if len(shown) > BANDS_MOST:
        about += f" The first {BANDS_MOST} of its {len(shown)} blocks."
    return charts.lines("Segments of a group", "LPA in the group", "page in the block", 255, shown[:BANDS_MOST], about)


#: a group has 256 LPAs and is cut up from about 90 segments on; a region has 256 groups, and so 65,536 LPAs
_EVENTS = {
    "groups compacted": lambda ssd: ssd.mapping.table.compacted,
    "look-ups that a segment misled": lambda ssd: ssd.mapping.mispredictions,
    "translation pages written": lambda ssd: ssd.mapping.store.programs,
    "translation pages split": lambda ssd: ssd.mapping.directory.splits,
    "translation pages merged": lambda ssd: ssd.mapping.directory.merges,
    "translation pages loaded": lambda ssd: ssd.mapping.pages.loads,
    "translation pages evicted": lambda ssd: ssd.mapping.pages.evictions,
}

SCHEME = Scheme(
    name="leaftl",
    title="LeaFTL",
    paper="J. Sun et al., LeaFTL: A Learning-based Flash Translation Layer for Solid-State Drives, ASPLOS 2023",
    about="line segments of 8 bytes, learned from runs of pages that lie in LPA order",
    replaces=("mapping", "placement"),
    scheme_oob=oob_bytes(0),
    oob_for=lambda options: oob_bytes(int(options.get("gamma", 0))),
    saved_bytes=lambda geometry: saved_bytes(geometry.lpas),
    build=_build,
    options=(
        MAP_DIES,
        Option("gamma", 0, "pages by which a learned segment may be wrong; each takes 8 bytes of OOB per page",
               high=16, fixed=True),
        Option("pad", "open", "what a flush does with a half-filled block: continues in it later, or fills it with "
               "pads",
               choices=("open", "block")),
        Option("table_bytes", 0, "bytes of groups that are kept in memory, the others in flash; 0: all, or what --dram "
               "leaves", high=1 << 40, unit=BYTES),
        Option("compact_grown", 25, "percent of its segments that a group may owe before it is compacted; 0: any",
               high=100),
        Option("compact_every", 1_000_000, "pages that the host writes between compactions of the whole table; 0: "
               "never", high=1 << 40),
    ),
    buffer_bytes=BUFFER_BYTES,
    buffer_in_order=True,
    describe_oob=_describe_oob,
    describe_translation=_describe_translation,
    views={"map": _map, "gmd": _gmd},
    numbered={"segments": ("GROUP", _group)},
    about_views={
        "map": "the map in figures",
        "gmd": "where its translation pages are",
        "segments": "levels, segments and CRB of a group",
    },
    charts=_charts,
    events=_EVENTS,
    damage_events={"a translation page was made again": lambda ssd: ssd.mapping.rebuilds},
    tight={"table_bytes": (1, 1_500, 6_000, 15_000)},
    varied={"table_bytes": (0, 4_000, 20_000)},
    year=2023,
    manual="docs/ftl/leaftl.md",
)  # fmt: skip
