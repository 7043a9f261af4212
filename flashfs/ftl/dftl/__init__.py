"""DFTL's line in the registry; the scheme itself is compiled, in mapping.pyx and cmt.pyx."""

from __future__ import annotations

import struct
from typing import Any

from flashfs.engine import block_map
from flashfs.engine.defaults import Greedy, PageBitmap
from flashfs.engine.demand import saved_bytes
from flashfs.engine.map_battery import MapBattery, SavedBitmap, pages_of, region_bytes
from flashfs.errors import BindError
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import STRIPE, spare_blocks, streams_for
from flashfs.ftl.dftl.cmt import ENTRY_BYTES
from flashfs.ftl.dftl.mapping import CachedMap

NO_PAGE = 2**32 - 1  #: in a translation page: nothing is mapped
REGION = "dftl"  #: of the NVRAM: the battery's
SHARE = 32  #: unless told otherwise, one entry in so many is cached,
LEAST = 64  #: and so many at least


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    slots = _slots(ssd.lpas, options)
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
    slots = _slots(geometry.lpas, options)
    if dram is not None and not options["cmt_bytes"]:
        slots = max(slots, min(geometry.lpas, dram // ENTRY_BYTES))
    return {REGION: region_bytes(geometry, slots)}


def _slots(lpas: int, options: dict[str, Any]) -> int:
    """Of the CMT, unless --dram gives it more."""
    return options["cmt_bytes"] // ENTRY_BYTES or max(LEAST, lpas // SHARE)


def require_room(ssd: Any, pages: int, who: str) -> None:
    """BindError if the chip has no room for the translation pages, each of which may be there twice: what the last
    checkpoint stands on lives until the next. Cleaning writes a block's pages, and as many translation pages."""
    ssd.reserve_for(3)
    need = -(-2 * pages // ssd.nand.pages_per_block) + 1
    spare = spare_blocks(ssd)
    if spare < need:
        raise BindError(
            f"{who}: translation pages may take {need} blocks, and {spare} are to spare; a larger --op or a smaller "
            "--size would do"
        )


def _describe_translation(number: int, raw: bytes) -> dict[str, Any]:
    """The entries of a translation page: how many are mapped, and its first."""
    entries = struct.unpack(f"<{len(raw) // 4}I", raw)
    first = number * len(entries)
    return {
        "lpas": f"{first} to {first + len(entries) - 1}",
        "mapped": sum(entry != NO_PAGE for entry in entries),
        "entries": [None if entry == NO_PAGE else entry for entry in entries[:16]],
    }


def _gtd(device: Any) -> list[dict[str, Any]]:
    """The directory of translation pages: each that there is, and where."""
    return list(device.ssd.mapping.directory.entries())


def _cmt(device: Any) -> list[dict[str, Any]]:
    """The cached mapping table, the entry that leaves next first."""
    return list(device.ssd.mapping.cmt.entries())


def _map(device: Any) -> dict[str, Any]:
    """The mapping in figures."""
    mapping = device.ssd.mapping
    mapped = int(block_map.block_map(device.ssd)["valid"].sum()) - len(mapping.translation_pages())
    return {
        "entries": device.ssd.lpas,
        "entries_a_page": mapping.per_page,
        "mapped": mapped,
        "fill": round(mapped / device.ssd.lpas, 6),
        "translation_pages": len(mapping.directory.entries()),
        "cached": mapping.cmt.used,
        "dirty": mapping.cmt.dirty_n,
        "pending": mapping.pending.n,
        "battery": mapping.saved.says() if mapping.saved is not None else "none: bound without",
    }


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.locations(device.ssd)
    return [charts.facts(_map(device)), charts.picture(device, where), charts.runs(device, where)]


_EVENTS = {
    "recoveries from the battery": lambda ssd: ssd.mapping.known_without_scan() is not None,
    "entries evicted": lambda ssd: ssd.mapping.evictions,
    "dirty entries evicted": lambda ssd: ssd.mapping.dirty_evictions,
    "translation pages written": lambda ssd: ssd.mapping.store.programs,
    "translation pages read": lambda ssd: ssd.mapping.store.reads,
}

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
        Option("cmt_bytes", 0, f"bytes of the cached mapping table, {ENTRY_BYTES} an entry; 0: what --dram leaves, or "
               f"an entry for one LPA in {SHARE}, {LEAST} at least", high=1 << 40),
        Option("battery", 1, "1: NVRAM keeps dirty entries, GTD and PVB, a recovery needs no scan; room is laid out "
               "when the image is bound, and a larger --dram of later does not let the CMT outgrow it", high=1),
        Option("protected", 50, "per cent of the CMT that is for entries that were hit again", high=99),
    ),
    describe_translation=_describe_translation,
    views={"map": _map, "gtd": _gtd, "cmt": _cmt},
    charts=_charts,
    events=_EVENTS,
    damage_events={"a translation page was made again": lambda ssd: ssd.mapping.rebuilds},
    tight={"cmt_bytes": (200, 500, 2_000)},
    varied={"cmt_bytes": (0, 300, 1_500), "battery": (0, 1)},
    nvram=_nvram,
    year=2009,
    manual="docs/ftl/dftl.md",
)  # fmt: skip
