"""u-FTL's line in the registry: a B-tree of translation pages, and the page validity bitmap in flash."""

from __future__ import annotations

from typing import Any

from flashfs.engine.cached_map import CachedMap
from flashfs.engine.flash_bitmap import FlashBitmap
from flashfs.ftl import Option, Scheme
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.ftl.demand_paged import (
    CLEANING,
    CMT_BYTES,
    DAMAGE_EVENTS,
    EVENTS,
    FANOUT,
    NODES,
    PROTECTED,
    cleaning_for,
    cmt,
    describe_words,
    drawn,
    facts,
    gtd,
    plant,
    require_room,
    slots_for,
    tree,
    tree_mapping_sections,
)

WAITING = Option("waiting", 1 << 16, "reports for the validity bitmap that may wait in DRAM between requests, as far "
                 "as there is room; 0: each goes to its page of the bitmap at once", high=1 << 16)  # fmt: skip
FRAMES = Option("frames", 4, "pages of the validity bitmap in DRAM", low=1, high=1 << 16)


def _reports(geometry: Any) -> int:
    """That wait in DRAM: those of a whole run, fewer where pages are small, since a checkpoint has them."""
    return int(min(768, geometry.page_bytes // 5))


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, options["frames"], log=_reports(ssd.nand), waiting=options["waiting"])
    mapping = CachedMap(ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0)
    pages = plant(mapping, options)
    placement = streams_for(ssd, options, "muftl")
    require_room(ssd, pages, "muftl")
    cleaning = cleaning_for(
        ssd, options, (2 * pages, 2 * validity.directory.n), mapping.store, validity.pages_in_flash)
    return mapping, validity, placement, cleaning


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {**tree_mapping_sections(geometry, options), **FlashBitmap.section_bytes(geometry, _reports(geometry))}


def _pvb(device: Any) -> list[dict[str, Any]]:
    """The pages of the validity bitmap: each that was programmed, and where."""
    ppas = device.ssd.validity.page_ppas()
    return [{"page": page, "ppa": ppa} for page, ppa in enumerate(ppas) if ppa is not None]


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
    options=(STRIPE, CLEANING, CMT_BYTES, FANOUT, FRAMES, NODES, PROTECTED, WAITING),
    describe_translation=describe_words,
    views={"map": facts, "gtd": gtd, "cmt": cmt, "tree": tree, "pvb": _pvb},
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
