"""u-FTL's line in the registry: a B-tree of translation pages, and the page validity bitmap in flash."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import Option
from flashfs.ftl.common import MAP_DIES, STRIPE, spread_map, streams_for
from flashfs.ftl.demand_paged import (
    BATTERY,
    CLEANING,
    CMT_BYTES,
    FANOUT,
    MOVED,
    NODES,
    PROTECTED,
    cleaning_for,
    demand_scheme,
    describe_words,
    kept_slots,
    plant,
    require_room,
    slots_for,
    tree,
    tree_mapping_sections,
    tree_words,
)
from flashfs.parts.battery.map_battery import MapBattery, region_bytes
from flashfs.parts.paged.cached_map import CachedMap
from flashfs.parts.validity.bitmap_battery import frames_words
from flashfs.parts.validity.flash_bitmap import FlashBitmap, bitmap_pages, log_entries

REGION = "muftl"  #: of the NVRAM: the battery's

WAITING = Option("waiting", 1 << 16, "reports for the validity bitmap that may wait in DRAM between requests, as far "
                 "as there is room; 0: each goes to its page of the bitmap at once", high=1 << 16)  # fmt: skip
FRAMES = Option("frames", 4, "pages of the validity bitmap in DRAM", low=1, high=1 << 16)


def _reports(geometry: Any) -> int:
    """Reports that wait in DRAM: those of a whole run; fewer if pages are small, since a checkpoint has them."""
    return int(min(768, geometry.page_bytes // 5))


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, options["frames"], log=_reports(ssd.nand), waiting=options["waiting"])
    mapping = CachedMap(ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0,
                        moved_share=options["moved"])
    pages = plant(mapping, options)
    placement = streams_for(ssd, options, "muftl")
    require_room(ssd, pages, "muftl")
    spread_map(ssd, options, placement)
    cleaning = cleaning_for(
        ssd, options, (2 * pages, 2 * validity.directory.n), mapping.store, validity.pages_in_flash)
    if ssd.nand.region(REGION) is not None:  # else it was bound without a battery
        shape = _shape(ssd.nand, ssd.lpas, options)
        slots = MapBattery.slots_for(ssd.nand, ssd.lpas, REGION, shape)
        kept = MapBattery(ssd, REGION, slots, not options["battery"], shape)
        validity.keep_in(mapping, kept)
        mapping.keep_in(kept)
    return mapping, validity, placement, cleaning


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    sections = FlashBitmap.section_bytes(geometry, _reports(geometry))
    return {**tree_mapping_sections(geometry, options), **sections, **({"battery": 16} if options["battery"] else {})}


def _shape(geometry: Any, lpas: int, options: dict[str, Any]) -> tuple[int, int, int]:
    """What the battery keeps beside the cache: (words of the bitmap, entries of the tree's root, pointers)."""
    reports = log_entries(geometry, _reports(geometry))
    words = frames_words(bitmap_pages(geometry), geometry.page_bytes, reports)
    return (words, *tree_words(geometry, lpas, options))


def _nvram(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    """The battery's region."""
    if not options["battery"]:
        return {}
    slots = kept_slots(geometry, options, dram)
    return {REGION: region_bytes(geometry, slots, _shape(geometry, geometry.lpas, options))}


def _pvb(device: Any) -> list[dict[str, Any]]:
    """The pages of the validity bitmap: each that was programmed, and its PPA."""
    ppas = device.ssd.validity.page_ppas()
    return [{"page": page, "ppa": ppa} for page, ppa in enumerate(ppas) if ppa is not None]


def _describe_validity(device: Any, number: int, raw: bytes) -> dict[str, Any]:
    """A page of the bitmap: the live pages of each of its blocks that has any."""
    each = -(-device.nand.pages_per_block // 64) * 8
    first, blocks = number * (len(raw) // each), range(len(raw) // each)
    live = {first + at: int.from_bytes(raw[at * each : (at + 1) * each], "little") for at in blocks}
    rows = [
        {"block": block, "live": bits.bit_count(), "pages": [page for page in range(8 * each) if bits >> page & 1]}
        for block, bits in live.items() if bits
    ]  # fmt: skip
    return {"page_of_bitmap": number, "first_block": first, "blocks": rows}


SCHEME = demand_scheme(
    name="muftl",
    validity_in_flash=True,
    title="u-FTL",
    paper="Y.-G. Lee et al., u-FTL: A Memory-Efficient Flash Translation Layer Supporting Multiple Mapping "
    "Granularities, EMSOFT 2008, as N. Dayan et al., GeckoFTL, SIGMOD 2016, compare with it",
    about="DFTL's cache over a B-tree in flash; the page validity bitmap in flash pages",
    replaces=("mapping", "validity"),
    saved_bytes=lambda geometry: sum(tree_mapping_sections(geometry, {"fanout": 0}).values()),
    sections=_sections,
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        CMT_BYTES,
        Option("battery", 1, "1: NVRAM keeps dirty entries, the tree's root, and what the validity bitmap has in DRAM, "
               f"a recovery needs no scan; {BATTERY}", high=1),
        FANOUT,
        FRAMES,
        MOVED,
        NODES,
        PROTECTED,
        WAITING,
    ),
    describe_translation=describe_words,
    describe_validity=_describe_validity,
    battery=True,
    views={"tree": tree, "pvb": _pvb},
    about_views={"tree": "the nodes of the map", "pvb": "the pages of the validity bitmap"},
    events={
        "nodes of the tree written": lambda ssd: ssd.mapping.gtd.node_programs,
        "pages of the bitmap written": lambda ssd: ssd.validity.pages_in_flash.programs,
    },
    damage_events={"a page of the bitmap was made again": lambda ssd: ssd.validity.rebuilds},
    tight={"cmt_bytes": (200, 500, 2_000), "frames": (1, 2), "fanout": (2, 4), "nodes": (1, 2)},
    varied={"cmt_bytes": (0, 300, 1_500), "frames": (1, 4), "nodes": (1, 8), "battery": (0, 1),
            "moved": (0, 20)},
    nvram=_nvram,
    chips=("tiny-112",),  # the tree has nodes there
    year=2008,
)  # fmt: skip
