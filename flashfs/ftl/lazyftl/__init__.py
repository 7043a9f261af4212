"""LazyFTL's line in the registry: DFTL's mapping, of which little may be dirty, and no battery."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Scheme
from flashfs.ftl.common import STRIPE
from flashfs.ftl.demand_paged import (
    CLEANING,
    CMT_BYTES,
    DAMAGE_EVENTS,
    DIRTY,
    EVENTS,
    FENCE,
    PROTECTED,
    built,
    cmt,
    describe_translation,
    drawn,
    facts,
    gtd,
    newer,
    slots_for,
    translation,
)
from flashfs.parts.from_pages.fenced_map import FencedMap
from flashfs.parts.paged.demand_map import saved_bytes


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    mapping = FencedMap(
        ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0, dirty_share=options["dirty"],
        fenced=bool(options["fence"]),
    )  # fmt: skip
    mapping.syncs_first = True
    return built(ssd, options, "lazyftl", mapping)


SCHEME = Scheme(
    name="lazyftl",
    title="LazyFTL",
    paper="D. Ma, J. Feng, G. Li, LazyFTL: A Page-level Flash Translation Layer Optimized for NAND Flash Memory, "
    "SIGMOD 2011, as N. Dayan et al., GeckoFTL, SIGMOD 2016, compare with it",
    about="DFTL's map; one entry in ten of the cache may be dirty, and no battery",
    replaces=("mapping",),
    scheme_oob=0,
    saved_bytes=lambda geometry: saved_bytes(geometry.lpas, geometry.page_bytes),
    build=_build,
    options=(STRIPE, CLEANING, CMT_BYTES, DIRTY, FENCE, PROTECTED),
    describe_translation=describe_translation,
    views={"map": facts, "gtd": gtd, "cmt": cmt, "newer": newer},
    numbered={"translation": ("page", translation)},
    charts=drawn,
    events={**EVENTS, "translation pages written for the bound": lambda ssd: ssd.mapping.bound_writes},
    damage_events=DAMAGE_EVENTS,
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "dirty": (5, 10, 50)},
    year=2011,
    manual="docs/ftl/lazyftl.md",
)
