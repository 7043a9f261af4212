"""u-FTL's line in the registry: a B-tree of translation pages, and the page validity bitmap in flash."""

from __future__ import annotations

from typing import Any

from flashfs.engine.cached_map import CachedMap
from flashfs.engine.defaults import Greedy
from flashfs.engine.flash_bitmap import FlashBitmap
from flashfs.ftl import Option, Scheme
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.ftl.demand_paged import (
    CMT_BYTES,
    DAMAGE_EVENTS,
    EVENTS,
    FANOUT,
    NODES,
    PROTECTED,
    cmt,
    describe_words,
    drawn,
    facts,
    gtd,
    newer,
    plant,
    require_room,
    slots_for,
    translation,
    tree,
    tree_mapping_sections,
)

FRAMES = Option("frames", 4, "pages of the validity bitmap in DRAM", low=1, high=1 << 16)


def _reports(geometry: Any) -> int:
    """That wait in DRAM: those of a whole run, fewer where pages are small, since a checkpoint has them."""
    return int(min(768, geometry.page_bytes // 5))


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, options["frames"], log=_reports(ssd.nand))
    mapping = CachedMap(ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0)
    pages = plant(mapping, options)
    placement = streams_for(ssd, options, "muftl")
    require_room(ssd, pages, "muftl")
    return mapping, validity, placement, Greedy(ssd)


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {**tree_mapping_sections(geometry, options), **FlashBitmap.section_bytes(geometry, _reports(geometry))}


def _pvb(device: Any) -> list[dict[str, Any]]:
    """The pages of the validity bitmap: each that was programmed, and where."""
    ppas = device.ssd.validity.page_ppas()
    return [{"page": page, "ppa": ppa} for page, ppa in enumerate(ppas) if ppa is not None]


def _describe_validity(device: Any, number: int, raw: bytes) -> dict[str, Any]:
    """A page of the bitmap: the live pages of each of its blocks that has any."""
    each = -(-device.nand.pages_per_block // 64) * 8
    first, blocks = number * (len(raw) // each), range(len(raw) // each)
    live = {first + at: int.from_bytes(raw[at * each : (at + 1) * each], "little") for at in blocks}
    rows = [
        {"block": block, "live": bits.bit_count(), "pages": [page for page in range(8 * each) if bits >> page & 1]}
        for block, bits in live.items() if bits
    ]  # fmt: skip
    return {"page_of_bitmap": number, "first_block": first, "blocks": rows}


SCHEME = Scheme(
    name="muftl",
    title="u-FTL",
    paper="Y.-G. Lee et al., u-FTL: A Memory-Efficient Flash Translation Layer Supporting Multiple Mapping "
    "Granularities, EMSOFT 2008, as N. Dayan et al., GeckoFTL, SIGMOD 2016, compare with it",
    about="DFTL's cache over a B-tree in flash; the page validity bitmap in flash pages",
    replaces=("mapping", "validity"),
    scheme_oob=0,
    saved_bytes=lambda geometry: sum(tree_mapping_sections(geometry, {"fanout": 0}).values()),
    sections=_sections,
    build=_build,
    options=(STRIPE, CMT_BYTES, FANOUT, FRAMES, NODES, PROTECTED),
    describe_translation=describe_words,
    describe_validity=_describe_validity,
    views={"map": facts, "gtd": gtd, "cmt": cmt, "newer": newer, "tree": tree, "pvb": _pvb},
    numbered={"translation": ("page", translation)},
    charts=drawn,
    events={
        **EVENTS,
        "nodes of the tree written": lambda ssd: ssd.mapping.gtd.node_programs,
        "pages of the bitmap written": lambda ssd: ssd.validity.pages_in_flash.programs,
    },
    damage_events={**DAMAGE_EVENTS, "a page of the bitmap was made again": lambda ssd: ssd.validity.rebuilds},
    tight={"cmt_bytes": (200, 500, 2_000), "frames": (1, 2), "fanout": (2, 4), "nodes": (1, 2)},
    varied={"cmt_bytes": (0, 300, 1_500), "frames": (1, 4), "nodes": (1, 8)},
    year=2008,
    manual="docs/ftl/muftl.md",
)
