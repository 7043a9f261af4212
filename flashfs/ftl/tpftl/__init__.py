"""TPFTL's line in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import BYTES, Option
from flashfs.ftl.common import MAP_DIES, STRIPE
from flashfs.ftl.demand_paged import CLEANING, PREFETCHING, SHARE, built, cache_bytes_for, demand_scheme, nodes
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


SCHEME = demand_scheme(
    name="tpftl",
    title="TPFTL",
    paper="Y. Zhou et al., An Efficient Page-level FTL to Optimize Address Translation in Flash Memory, EuroSys 2015",
    about="DFTL's map; the cache has nodes of translation pages, prefetches, and writes a node's entries together",
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        Option("cmt_bytes", 0, f"bytes of the cached mapping table, {UNIT_TAKES} per node and chunk of 9 entries; 0: "
               f"what --dram leaves, or as much as dftl has for one LPA in {SHARE}", high=1 << 40, unit=BYTES),
        Option("prefetch", "both", "what a miss loads beside its entry: the rest of the request; while requests go "
               "through the LPAs in order, as many as are cached before it", choices=PREFETCHING),
    ),
    views={"nodes": nodes},
    about_views={"nodes": "the nodes of the cache"},
    events={"entries prefetched": lambda ssd: ssd.mapping.prefetched,
            "nodes that left": lambda ssd: ssd.mapping.cmt.deaths},
    tight={"cmt_bytes": (500, 900, 3_000), "map_dies": (1, 3)},
    varied={"cmt_bytes": (0, 600, 3_000), "prefetch": PREFETCHING},
    chips=("tiny-112",),  # five translation pages
    year=2015,
)  # fmt: skip
