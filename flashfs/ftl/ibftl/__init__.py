"""IB-FTL's line in the registry: a B-tree of translation pages, and the page validity log."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Option
from flashfs.ftl.common import MAP_DIES, STRIPE, spread_map, streams_for
from flashfs.ftl.demand_paged import (
    CLEANING,
    CMT_BYTES,
    DIRTY,
    FANOUT,
    FENCE,
    MOVED,
    NODES,
    PROTECTED,
    cleaning_for,
    demand_scheme,
    describe_words,
    plant,
    require_room,
    slots_for,
    tree,
    tree_mapping_sections,
)
from flashfs.ftl.ibftl import views
from flashfs.parts.from_pages.fenced_log import FencedLog
from flashfs.parts.from_pages.fenced_map import FencedMap

LOG = Option("log", 200, "entries of the validity log (X), per cent of the pages beyond the logical ones", low=100,
             high=10_000)  # fmt: skip


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FencedLog(ssd, share=options["log"])
    mapping = FencedMap(
        ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0, dirty_share=options["dirty"],
        fenced=bool(options["fence"]), moved_share=options["moved"],
    )  # fmt: skip
    mapping.syncs_first = True
    pages = plant(mapping, options)
    placement = streams_for(ssd, options, "ibftl")
    require_room(ssd, pages, "ibftl")
    spread_map(ssd, options, placement)
    cleaning = cleaning_for(
        ssd, options, (2 * pages, 2 * validity.pages_most), mapping.store, validity.pages_in_flash)
    return mapping, validity, placement, cleaning


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {**tree_mapping_sections(geometry, options), **FencedLog.section_bytes(geometry)}


SCHEME = demand_scheme(
    name="ibftl",
    validity_in_flash=True,
    title="IB-FTL",
    paper="P.-C. Huang, Y.-H. Chang, T.-W. Kuo, An Index-Based Management Scheme with Adaptive Caching for Huge-Scale "
    "Low-Cost Embedded Flash Storages, TODAES 2013, as N. Dayan et al., GeckoFTL, SIGMOD 2016, compare with it",
    about="LazyFTL's cache over a B-tree in flash; dead pages in a log in flash, a chain a block",
    replaces=("mapping", "validity"),
    saved_bytes=lambda geometry: sum(tree_mapping_sections(geometry, {"fanout": 0}).values()),
    sections=_sections,
    build=_build,
    options=(STRIPE, MAP_DIES, CLEANING, CMT_BYTES, DIRTY, FANOUT, FENCE, LOG, MOVED, NODES, PROTECTED),
    describe_translation=describe_words,
    describe_validity=views.describe,
    views={"tree": tree, "pvl": views.log},
    numbered={"chain": ("block", views.chain)},
    about_views={
        "tree": "the nodes of the map",
        "pvl": "the validity log and its pages",
        "chain": "the log's entries of a block",
    },
    pictures=views.drawn,
    events={
        "translation pages written for the bound": lambda ssd: ssd.mapping.bound_writes,
        "nodes of the tree written": lambda ssd: ssd.mapping.gtd.node_programs,
        "pages of the log written": lambda ssd: ssd.validity.flushes,
        "entries of the log that were logged again": lambda ssd: ssd.validity.reinserted,
        "entries of the log that were discarded": lambda ssd: ssd.validity.discarded,
    },
    damage_events={"the log was made again": lambda ssd: ssd.validity.rebuilds},
    tight={"cmt_bytes": (200, 500, 2_000), "fanout": (2, 4), "nodes": (1, 2), "log": (100, 200)},
    varied={"cmt_bytes": (0, 300, 1_500), "dirty": (5, 10, 50), "nodes": (1, 8), "log": (100, 200, 400),
            "moved": (0, 20)},
    chips=("tiny-112",),  # the tree has nodes there
    year=2013,
)
