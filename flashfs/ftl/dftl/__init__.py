"""DFTL's line in the registry; the scheme itself is compiled, in flashfs.parts.paged: other schemes use it too."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Option
from flashfs.ftl.common import MAP_DIES, STRIPE, spread_map, streams_for
from flashfs.ftl.demand_paged import (
    BATTERY,
    CLEANING,
    CMT_BYTES,
    MOVED,
    PROTECTED,
    cleaning_for,
    demand_scheme,
    kept_slots,
    require_room,
    slots_for,
)
from flashfs.parts.battery.map_battery import MapBattery, SavedBitmap, pages_of, region_bytes
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.paged.cached_map import CachedMap

REGION = "dftl"  #: of the NVRAM: the battery's


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    slots = slots_for(ssd.lpas, options)
    mapping = CachedMap(ssd, slots, options["protected"], options["cmt_bytes"] > 0, moved_share=options["moved"])
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


SCHEME = demand_scheme(
    name="dftl",
    title="DFTL",
    paper="A. Gupta et al., DFTL: A Flash Translation Layer Employing Demand-based Selective Caching of Page-level "
    "Address Mappings, ASPLOS 2009",
    about="the page map in translation pages in flash; a cache of entries in DRAM",
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        CMT_BYTES,
        Option("battery", 1, f"1: NVRAM keeps dirty entries, GTD and PVB, a recovery needs no scan; {BATTERY}", high=1),
        MOVED,
        PROTECTED,
    ),
    battery=True,
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "battery": (0, 1), "moved": (0, 20)},
    nvram=_nvram,
    year=2009,
)  # fmt: skip
