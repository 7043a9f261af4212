"""S-FTL's line in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import BYTES, Option
from flashfs.ftl.common import MAP_DIES, STRIPE
from flashfs.ftl.demand_paged import CLEANING, SHARE, built, cache_bytes_for, demand_scheme
from flashfs.ftl.sftl.mapping import SftlMap


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    mapping = SftlMap(ssd, cache_bytes_for(ssd.lpas, options), options["dirty_buffer"], options["cmt_bytes"] > 0)
    return built(ssd, options, "sftl", mapping)


SCHEME = demand_scheme(
    name="sftl",
    title="S-FTL",
    paper="S. Jiang et al., S-FTL: An Efficient Address Translation for Flash Memory by Exploiting Spatial Locality, "
    "MSST 2011",
    about="DFTL's map; whole translation pages are cached, condensed by their runs",
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        Option("cmt_bytes", 0, "bytes of the cache of condensed pages and of its dirty buffer, a page at least; 0: "
               f"what --dram leaves, or as much as dftl has for one LPA in {SHARE}", high=1 << 40, unit=BYTES),
        Option("dirty_buffer", 10, "per cent of that for dirty entries of pages that left", high=90),
    ),
    events={"entries that left for the dirty buffer": lambda ssd: ssd.mapping.buffered,
            "pages written for the dirty buffer": lambda ssd: ssd.mapping.buffer_writes},
    tight={"cmt_bytes": (500, 1_500, 4_000), "dirty_buffer": (0, 30), "map_dies": (1, 3)},
    varied={"cmt_bytes": (0, 500, 4_000), "dirty_buffer": (0, 10, 50)},
    chips=("tiny-112",),  # five translation pages
    year=2011,
)  # fmt: skip
