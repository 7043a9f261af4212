"""LazyFTL as GeckoFTL's paper describes it: DFTL's mapping with a bound on dirty entries, and no battery. The update
areas of LazyFTL's own paper are not built."""

from __future__ import annotations

from typing import Any

from flashfs.ftl.common import MAP_DIES, STRIPE
from flashfs.ftl.demand_paged import (
    CLEANING,
    CMT_BYTES,
    DIRTY,
    FENCE,
    MOVED,
    PROTECTED,
    built,
    demand_scheme,
    slots_for,
)
from flashfs.parts.from_pages.fenced_map import FencedMap


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    mapping = FencedMap(
        ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0, dirty_share=options["dirty"],
        fenced=bool(options["fence"]), moved_share=options["moved"],
    )  # fmt: skip
    mapping.syncs_first = True
    return built(ssd, options, "lazyftl", mapping)


SCHEME = demand_scheme(
    name="lazyftl",
    title="LazyFTL as GeckoFTL's paper describes it",
    paper="D. Ma, J. Feng, G. Li, LazyFTL: A Page-level Flash Translation Layer Optimized for NAND Flash Memory, "
    "SIGMOD 2011, as N. Dayan et al., GeckoFTL, SIGMOD 2016, compare with it",
    about="DFTL's map with a bound on dirty entries, a tenth of the cache, and no battery; no update areas",
    build=_build,
    options=(STRIPE, MAP_DIES, CLEANING, CMT_BYTES, DIRTY, FENCE, MOVED, PROTECTED),
    events={"translation pages written for the bound": lambda ssd: ssd.mapping.bound_writes},
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "dirty": (5, 10, 50), "moved": (0, 20)},
    year=2011,
)
