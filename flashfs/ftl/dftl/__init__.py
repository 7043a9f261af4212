"""DFTL's line in the registry; the scheme itself is compiled, in flashfs.engine: others take it as it is."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import MAP_DIES, STRIPE, spread_map, streams_for
from flashfs.ftl.demand_paged import (
    BATTERY,
    CLEANING,
    CMT_BYTES,
    DAMAGE_EVENTS,
    EVENTS,
    FROM_BATTERY,
    PROTECTED,
    battery_says,
    cleaning_for,
    cmt,
    describe_translation,
    drawn,
    facts,
    gtd,
    kept_slots,
    newer,
    require_room,
    slots_for,
    translation,
)
from flashfs.parts.battery.map_battery import MapBattery, SavedBitmap, pages_of, region_bytes
from flashfs.parts.defaults.defaults import PageBitmap
from flashfs.parts.paged.cached_map import CachedMap
from flashfs.parts.paged.demand_map import saved_bytes

REGION = "dftl"  #: of the NVRAM: the battery's


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    slots = slots_for(ssd.lpas, options)
    mapping = CachedMap(ssd, slots, options["protected"], options["cmt_bytes"] > 0)
    placement = streams_for(ssd, options, "dftl")
    pages = pages_of(ssd.lpas, ssd.nand.page_bytes)
    require_room(ssd, pages, "dftl")
    spread_map(ssd, options, placement)
    cleaning = cleaning_for(ssd, options, [2 * pages], mapping.store)
    if ssd.nand.region(REGION) is None:  # bound without a battery
        return mapping, PageBitmap(ssd), placement, cleaning
    kept = MapBattery(ssd, REGION, MapBattery.slots_for(ssd.nand, ssd.lpas, REGION), not options["battery"])
    validity = SavedBitmap(ssd)
    validity.attach(kept)
    mapping.keep_in(kept)
    return mapping, validity, placement, cleaning


def _nvram(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    """The battery's region."""
    return {REGION: region_bytes(geometry, kept_slots(geometry, options, dram))} if options["battery"] else {}


def _map(device: Any) -> dict[str, Any]:
    """The mapping in figures."""
    return {**facts(device), **battery_says(device)}


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
        MAP_DIES,
        CLEANING,
        CMT_BYTES,
        Option("battery", 1, f"1: NVRAM keeps dirty entries, GTD and PVB, a recovery needs no scan; {BATTERY}", high=1),
        PROTECTED,
    ),
    describe_translation=describe_translation,
    views={"map": _map, "gtd": gtd, "cmt": cmt, "newer": newer},
    numbered={"translation": ("page", translation)},
    charts=_charts,
    events={**FROM_BATTERY, **EVENTS},
    damage_events=DAMAGE_EVENTS,
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "battery": (0, 1)},
    nvram=_nvram,
    year=2009,
    manual="docs/ftl/dftl.md",
)  # fmt: skip
