"""TPFTL's line in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Option, Scheme
from flashfs.ftl.common import MAP_DIES, STRIPE
from flashfs.ftl.demand_paged import (
    CLEANING,
    DAMAGE_EVENTS,
    EVENTS,
    PREFETCHING,
    SHARE,
    built,
    cache_bytes_for,
    cmt,
    describe_translation,
    drawn,
    facts,
    gtd,
    newer,
    nodes,
    translation,
)
from flashfs.parts.paged.demand_map import saved_bytes
from flashfs.parts.paged.tpftl_map import UNIT_TAKES, TpMap


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    how = options["prefetch"]
    mapping = TpMap(
        ssd,
        cache_bytes_for(ssd.lpas, options),
        options["cmt_bytes"] > 0,
        request_level=how in ("both", "request"),
        selective_level=how in ("both", "selective"),
    )
    return built(ssd, options, "tpftl", mapping)


SCHEME = Scheme(
    name="tpftl",
    title="TPFTL",
    paper="Y. Zhou et al., An Efficient Page-level FTL to Optimize Address Translation in Flash Memory, EuroSys 2015",
    about="DFTL's map; the cache has nodes of translation pages, prefetches, and writes a node's entries together",
    replaces=("mapping",),
    scheme_oob=0,
    saved_bytes=lambda geometry: saved_bytes(geometry.lpas, geometry.page_bytes),
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        Option("cmt_bytes", 0, f"bytes of the cached mapping table, {UNIT_TAKES} per node and chunk of 9 entries; 0: "
               f"what --dram leaves, or as much as dftl has for one LPA in {SHARE}", high=1 << 40),
        Option("prefetch", "both", "what a miss loads beside its entry: the rest of the request; while requests go "
               "through the LPAs in order, as many as are cached before it", choices=PREFETCHING),
    ),
    describe_translation=describe_translation,
    views={"map": facts, "gtd": gtd, "cmt": cmt, "nodes": nodes, "newer": newer},
    numbered={"translation": ("page", translation)},
    charts=drawn,
    events={**EVENTS, "entries prefetched": lambda ssd: ssd.mapping.prefetched,
            "nodes that left": lambda ssd: ssd.mapping.cmt.deaths},
    damage_events=DAMAGE_EVENTS,
    tight={"cmt_bytes": (500, 900, 3_000), "map_dies": (1, 3)},
    varied={"cmt_bytes": (0, 600, 3_000), "prefetch": PREFETCHING},
    chips=("tiny-112",),  # five translation pages
    year=2015,
    manual="docs/ftl/tpftl.md",
)  # fmt: skip
