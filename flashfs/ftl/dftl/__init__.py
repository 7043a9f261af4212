"""DFTL's line in the registry; the scheme itself is compiled, in flashfs.engine: others take it as it is."""

from __future__ import annotations

from typing import Any

from flashfs.engine.cached_map import CachedMap
from flashfs.engine.cmt import ENTRY_BYTES
from flashfs.engine.defaults import Greedy, PageBitmap
from flashfs.engine.demand import saved_bytes
from flashfs.engine.map_battery import MapBattery, SavedBitmap, pages_of, region_bytes
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.ftl.demand_paged import (
    CMT_BYTES,
    DAMAGE_EVENTS,
    EVENTS,
    PROTECTED,
    cmt,
    describe_translation,
    drawn,
    facts,
    gtd,
    newer,
    require_room,
    slots_for,
    translation,
)

REGION = "dftl"  #: of the NVRAM: the battery's


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    slots = slots_for(ssd.lpas, options)
    mapping = CachedMap(ssd, slots, options["protected"], options["cmt_bytes"] > 0)
    placement = streams_for(ssd, options, "dftl")
    require_room(ssd, pages_of(ssd.lpas, ssd.nand.page_bytes), "dftl")
    if ssd.nand.region(REGION) is None:  # bound without a battery
        return mapping, PageBitmap(ssd), placement, Greedy(ssd)
    kept = MapBattery(ssd, REGION, MapBattery.slots_for(ssd.nand, ssd.lpas, REGION), not options["battery"])
    validity = SavedBitmap(ssd)
    validity.attach(kept)
    mapping.keep_in(kept, validity)
    return mapping, validity, placement, Greedy(ssd)


def _nvram(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    """The battery's region, with room for the cache that these options ask for, or that ``dram`` may make of it: the
    other tables take their part of that, so the cache comes out somewhat smaller."""
    if not options["battery"]:
        return {}
    slots = slots_for(geometry.lpas, options)
    if dram is not None and not options["cmt_bytes"]:
        slots = max(slots, min(geometry.lpas, dram // ENTRY_BYTES))
    return {REGION: region_bytes(geometry, slots)}


def _map(device: Any) -> dict[str, Any]:
    """The mapping in figures."""
    saved = device.ssd.mapping.saved
    return {**facts(device), "battery": saved.says() if saved is not None else "none: bound without"}


def _charts(device: Any) -> list[dict[str, Any]]:
    return [charts.facts(_map(device)), *drawn(device)[1:]]


SCHEME = Scheme(
    name="dftl",
    title="DFTL",
    paper="A. Gupta et al., DFTL: A Flash Translation Layer Employing Demand-based Selective Caching of Page-level "
    "Address Mappings, ASPLOS 2009",
    about="the page map in translation pages in flash; a cache of entries in DRAM",
    replaces=("mapping",),
    scheme_oob=0,
    saved_bytes=lambda geometry: saved_bytes(geometry.lpas, geometry.page_bytes),
    build=_build,
    options=(
        STRIPE,
        CMT_BYTES,
        Option("battery", 1, "1: NVRAM keeps dirty entries, GTD and PVB, a recovery needs no scan; room is laid out "
               "when the image is bound, and a larger --dram of later does not let the CMT outgrow it", high=1),
        PROTECTED,
    ),
    describe_translation=describe_translation,
    views={"map": _map, "gtd": gtd, "cmt": cmt, "newer": newer},
    numbered={"translation": ("page", translation)},
    charts=_charts,
    events={"recoveries from the battery": lambda ssd: ssd.mapping.known_without_scan() is not None, **EVENTS},
    damage_events=DAMAGE_EVENTS,
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "battery": (0, 1)},
    nvram=_nvram,
    year=2009,
    manual="docs/ftl/dftl.md",
)  # fmt: skip
