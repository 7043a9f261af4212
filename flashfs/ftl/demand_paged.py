"""The Python side of every scheme that caches entries of translation pages: options, sizing, what ``dump`` shows.

The compiled parts are flashfs.parts.paged.demand_map and, for schemes with DFTL's cache,
flashfs.parts.paged.cached_map; docs/ftl/dftl.md says how they work.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flashfs.engine.views import block_map
from flashfs.errors import RoomError, UsageError
from flashfs.ftl import BYTES, Option, Scheme, charts
from flashfs.ftl.common import spare_blocks, spread_map, streams_for
from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.paged.cached_map import SLOTS_LEAST
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.paged.demand_map import saved_bytes
from flashfs.parts.paged.map_btree import fanout_for, plant_tree, tree_kept, tree_sections
from flashfs.parts.paged.newer_section import newer_bytes
from flashfs.parts.superblocks.metadata_aside_gc import MetadataAsideGc

PREFETCHING = ("both", "request", "selective", "none")  #: what a miss loads beside its entry (tpftl_map.pyx)
NO_PAGE = 2**32 - 1  #: in a translation page: nothing is mapped
WHOLE = 1  #: the chip's status of a page that can be read
SHARE = 32  #: by default one entry in so many is cached,
LEAST = 64  #: and at least so many entries

CMT_BYTES = Option("cmt_bytes", 0, f"bytes of the cached mapping table, {ENTRY_BYTES} per entry; 0: what --dram "
                   f"leaves, or an entry for one LPA in {SHARE}, {LEAST} at least", high=1 << 40,
                   unit=BYTES)  # fmt: skip
PROTECTED = Option("protected", 50, "per cent of the CMT that is for entries that were hit again", high=99)
MOVED = Option("moved", 0, "entries of moved pages that wait to be written, like dirty ones of the cache: per cent of "
               "the CMT's entries, and those of a block at least; 0: they are written after each block, as in DFTL's "
               "paper", high=100)  # fmt: skip
DIRTY = Option("dirty", 10, "per cent of the CMT that may be dirty", low=1, high=99)
BATTERY = "room is laid out when the image is bound, and a larger --dram of later does not let the CMT outgrow it"
FANOUT = Option("fanout", 0, "pointers of a node of the map's tree; 0: as many as a page has room for", high=1 << 12,
                fixed=True)  # fmt: skip
NODES = Option("nodes", 8, "nodes of the map's tree in DRAM, beside its root", low=1, high=1 << 16)

FENCE = Option("fence", 1, "1: a crash is recovered from pages, by the scheme's own steps; 0: from a checkpoint",
               high=1, fixed=True, before=0)  # fmt: skip
HELD = Option("held", 5, "per cent of the over-provisioned blocks that may wait, with dead pages of metadata, until "
              "nothing in them lives", low=1, high=100)  # fmt: skip
CLEANING = Option("cleaning", "greedy", "greedy: the block with the fewest live pages, whatever it holds; aside: "
                  "GeckoFTL's policy, which leaves blocks of metadata alone until nothing in them lives",
                  choices=("greedy", "aside"))  # fmt: skip


def cleaning_for(ssd: Any, options: dict[str, Any], pages: Sequence[int], *stores: Any) -> Any:
    """The cleaning that these options choose. ``pages``: how many pages of metadata each of ``stores`` may have at a
    time, including those that the last checkpoint needs."""
    if options.get("cleaning", "aside") == "greedy":
        return Greedy(ssd)
    needed = sum(-(-some // ssd.nand.pages_per_block) for some in pages)
    return MetadataAsideGc(ssd, options.get("held", HELD.default), needed, spares=tuple(one.stream for one in stores))


def slots_for(lpas: int, options: dict[str, Any]) -> int:
    """Slots of the CMT, unless --dram gives it more."""
    slots: int = options["cmt_bytes"] // ENTRY_BYTES
    return slots or max(LEAST, lpas // SHARE)


def cache_bytes_for(lpas: int, options: dict[str, Any]) -> int:
    """The size of the cache in bytes, for a cache of another shape."""
    return int(options["cmt_bytes"]) or slots_for(lpas, options) * ENTRY_BYTES


def kept_slots(geometry: Any, options: dict[str, Any], dram: int | None) -> int:
    """Slots that a battery's region has room for: the cache that these options ask for, or the largest that ``dram``
    allows. The other tables take their part of ``dram``, so the cache itself is somewhat smaller."""
    slots = max(SLOTS_LEAST, slots_for(geometry.lpas, options))
    if dram is not None and not options["cmt_bytes"]:
        slots = max(slots, min(geometry.lpas, dram // ENTRY_BYTES))
    return slots


def battery_says(device: Any) -> dict[str, str]:
    """What the battery does, or why it does nothing."""
    saved = device.ssd.mapping.saved
    return {"battery": saved.says() if saved is not None else "none: bound without"}


FROM_BATTERY: dict[str, Callable[[Any], int]] = {
    "recoveries from the battery": lambda ssd: ssd.mapping.known_without_scan() is not None
}


def require_room(ssd: Any, pages: int, who: str) -> None:
    """RoomError if the chip has no room for two versions of each translation page: what the last checkpoint needs lives
    until the next one. Cleaning writes a block's pages, and as many translation pages."""
    ssd.reserve_for(3)
    need = -(-2 * pages // ssd.nand.pages_per_block) + 1
    spare = spare_blocks(ssd)
    if spare < need:
        raise RoomError(f"{who}: translation pages may take {need} blocks, and {spare} are to spare")


def describe_translation(number: int, raw: bytes) -> dict[str, Any]:
    """The entries of a translation page: how many are mapped, and its first."""
    entries = struct.unpack(f"<{len(raw) // 4}I", raw)
    first = number * len(entries)
    return {
        "lpas": f"{first} to {first + len(entries) - 1}",
        "mapped": sum(entry != NO_PAGE for entry in entries),
        "entries": [None if entry == NO_PAGE else entry for entry in entries[:16]],
    }


def describe_words(number: int, raw: bytes) -> dict[str, Any]:
    """A page of a map that is a tree: the PPAs of LPAs, or of the pages under a node."""
    words = struct.unpack(f"<{len(raw) // 4}I", raw)
    return {
        "page_of_tree": number,
        "mapped": sum(word != NO_PAGE for word in words),
        "entries": [None if word == NO_PAGE else word for word in words[:16]],
    }


def plant(mapping: Any, options: dict[str, Any]) -> int:
    """Have the mapping find its translation pages through a tree in flash; returns how many pages that may have."""
    fanout = fanout_for(4 * mapping.per_page, options["fanout"])
    pages: int = plant_tree(mapping, max(2, fanout), options["nodes"])
    return pages


def tree_mapping_sections(geometry: Any, options: dict[str, Any]) -> dict[str, int]:
    """{section: most bytes} of such a mapping in a checkpoint."""
    fanout = max(2, fanout_for(geometry.page_bytes, options["fanout"]))
    leaves = pages_of(geometry.lpas, geometry.page_bytes)
    return {**tree_sections(leaves, fanout), "mapped": 8, "newer": newer_bytes(geometry.lpas, geometry.page_bytes)}


def tree_words(geometry: Any, lpas: int, options: dict[str, Any]) -> tuple[int, int]:
    """What a battery keeps of such a mapping's directory: (entries of the root, places for pointers)."""
    fanout = max(2, fanout_for(geometry.page_bytes, options["fanout"]))
    found: tuple[int, int] = tree_kept(pages_of(lpas, geometry.page_bytes), fanout, geometry.pages_per_block)
    return found


def tree(device: Any) -> list[dict[str, Any]]:
    """The nodes of the map's tree: level, place, the first page under each, pointers, and how many wait to be
    written."""
    return list(device.ssd.mapping.gtd.nodes())


def gtd(device: Any) -> list[dict[str, Any]]:
    """The directory of translation pages: each that exists, and its PPA."""
    return list(device.ssd.mapping.directory.entries())


def cmt(device: Any) -> list[dict[str, Any]]:
    """The cached mapping table, the next entry to be evicted first."""
    return list(device.ssd.mapping.cmt.entries())


def nodes(device: Any) -> list[dict[str, Any]]:
    """The nodes of a cache that has nodes, the coldest first: entries, how many are dirty, and the number of the
    look-up that last used them, on average."""
    return list(device.ssd.mapping.cmt.nodes())


def newer(device: Any) -> list[dict[str, Any]]:
    """What is in DRAM and newer than the translation pages, by LPA: dirty entries of the cache ("cache"), and entries
    that a recovery found or cleaning changed and that wait to be written ("waits")."""
    mapping = device.ssd.mapping
    found = {lpa: (ppa, "waits") for lpa, ppa in mapping.pending.entries()}
    lpas, ppas = (array.tolist() for array in mapping.dirty_entries())
    found |= {
        lpa: (None if ppa == NO_PAGE else ppa, "cache") for lpa, ppa in zip(lpas, ppas, strict=True)
    }
    return [
        {"lpa": lpa, "translation_page": lpa // mapping.per_page, "ppa": ppa, "where": where}
        for lpa, (ppa, where) in sorted(found.items())
    ]


def translation(device: Any, page: int | None) -> dict[str, Any]:
    """A translation page: its PPA, and each entry that it has or that DRAM has a newer version of. Without a number,
    the page with the most newer entries."""
    per_page = device.ssd.mapping.per_page
    since = newer(device)
    if page is None:
        counts = Counter(entry["translation_page"] for entry in since)
        page = min((page for page in counts if counts[page] == max(counts.values())), default=0)
    pages = -(-device.ssd.lpas // per_page)
    if not 0 <= page < pages:
        raise UsageError(f"translation page {page}: {device.path} has pages 0 to {pages - 1}, of {per_page} LPAs each")
    ppa = next((one["ppa"] for one in gtd(device) if one["page"] == page), None)
    stored = [NO_PAGE] * per_page
    if ppa is not None:
        status, raw, _ = device.nand.read_page(*divmod(ppa, device.nand.pages_per_block))
        if status != WHOLE:
            return {"page": page, "ppa": ppa, "entries": "it cannot be read"}
        stored = list(struct.unpack(f"<{len(raw) // 4}I", raw))[:per_page]
    now = {entry["lpa"]: entry for entry in since}
    rows = []
    for lpa in range(page * per_page, min((page + 1) * per_page, device.ssd.lpas)):
        there = stored[lpa % per_page]
        if there != NO_PAGE or lpa in now:
            row = {"lpa": lpa, "stored": None if there == NO_PAGE else there}
            found = now.get(lpa)
            rows.append({**row, "newer": found["ppa"] if found else None, "where": found["where"] if found else ""})
    return {"page": page, "first_lpa": page * per_page, "ppa": ppa, "entries": rows}


def mapped_lpas(device: Any) -> int:
    """How many LPAs are mapped: counts live pages or, where some of those may be superseded, the map's entries."""
    if device.ssd.validity.late:
        return len(block_map.mapped(device.ssd))
    return int(block_map.block_map(device.ssd)["valid"].sum()) - len(device.ssd.owned_pages())


def facts(device: Any) -> dict[str, Any]:
    """The mapping in figures."""
    mapping = device.ssd.mapping
    mapped = mapped_lpas(device)
    return {
        "entries": device.ssd.lpas,
        "entries_a_page": mapping.per_page,
        "mapped": mapped,
        "fill": round(mapped / device.ssd.lpas, 6),
        "translation_pages": len(mapping.directory.entries()),
        **mapping.cache_facts(),
        "pending": mapping.pending.n,
    }


def drawn(device: Any) -> list[dict[str, Any]]:
    """For the HTML page: the figures, where pages lie, the runs they form, and the translation pages."""
    where = block_map.mapped(device.ssd)
    return [
        charts.facts(facts(device)),
        charts.picture(device, where),
        charts.runs(device, where),
        translation_pages(device),
    ]


def translation_pages(device: Any) -> dict[str, Any]:
    """The translation pages as a map: the PPA of each, and how many of its entries are in DRAM."""
    ssd, per_page = device.ssd, device.ssd.mapping.per_page
    total = -(-ssd.lpas // per_page)
    pages = min(total, charts.CELLS_MOST)
    since = Counter(entry["translation_page"] for entry in newer(device))
    cached = Counter(device.ssd.mapping.cached_of_pages())
    places = {entry["page"]: entry["ppa"] for entry in gtd(device)}
    per_block = ssd.nand.pages_per_block
    fields: list[dict[str, Any]] = [
        {"name": "newer", "unit": f"of {per_page} entries", "top": per_page,
         "values": [since[page] for page in range(pages)]},
        {"name": "cached", "unit": f"of {per_page} entries", "values": [cached[page] for page in range(pages)]},
        {"name": "ppa", "values": [places.get(page) for page in range(pages)]},
        {"name": "block", "values": [places[page] // per_block if page in places else None for page in range(pages)]},
    ]  # fmt: skip
    views = [
        {"label": "newer in DRAM", "field": "newer"},
        {"label": "cached", "field": "cached"},
        {"label": "place", "field": "ppa"},
    ]
    about = (
        f"A cell a translation page, of {per_page:,} LPAs each, by how many entries DRAM has that are newer than what "
        "the page says. One without a place was never written."
    )
    return charts.cells("Translation pages", "page", fields, views, about, total)


def built(ssd: Any, options: dict[str, Any], who: str, mapping: Any) -> tuple[Any, Any, Any, Any]:
    """The four parts of a scheme that replaces the cache alone: translation pages and validity are those of DFTL
    without a battery."""
    placement = streams_for(ssd, options, who)
    pages = pages_of(ssd.lpas, ssd.nand.page_bytes)
    require_room(ssd, pages, who)
    spread_map(ssd, options, placement)
    return mapping, PageBitmap(ssd), placement, cleaning_for(ssd, options, [2 * pages], mapping.store)


EVENTS: Mapping[str, Callable[[Any], int]] = {
    "entries evicted": lambda ssd: ssd.mapping.evictions,
    "dirty entries evicted": lambda ssd: ssd.mapping.dirty_evictions,
    "translation pages written": lambda ssd: ssd.mapping.store.programs,
    "translation pages read": lambda ssd: ssd.mapping.store.reads,
}
ABOUT_VIEWS = {
    "map": "the map in figures",
    "gtd": "where their translation pages are",
    "cmt": "the cache, what leaves next first",
    "newer": "what DRAM has newer than the pages",
    "translation": "a translation page",
}
DAMAGE_EVENTS: Mapping[str, Callable[[Any], int]] = {
    "a translation page was made again": lambda ssd: ssd.mapping.rebuilds
}


def demand_scheme(
    *, name: str, battery: bool = False, figures: Callable[[Any], dict[str, Any]] | None = None,
    views: Mapping[str, Any] | None = None, numbered: Mapping[str, Any] | None = None,
    about_views: Mapping[str, str] | None = None,
    events: Mapping[str, Callable[[Any], int]] | None = None,
    damage_events: Mapping[str, Callable[[Any], int]] | None = None,
    pictures: Callable[[Any], list[dict[str, Any]]] | None = None, **own: Any,
) -> Scheme:
    """The scheme of a demand-paged map. Fields missing in ``own`` are as in DFTL: only the mapping is replaced, nothing
    is stamped on pages, and a checkpoint has the directory and the newer entries. ``figures`` replaces the view `map`;
    ``views``, ``numbered``, ``about_views``, ``events`` and ``damage_events`` are added to those of every such scheme,
    ``pictures`` to its charts. With a ``battery``, view `map` also says what that does."""

    def of_map(device: Any) -> dict[str, Any]:
        """The mapping in figures."""
        said = figures(device) if figures is not None else facts(device)
        return {**said, **battery_says(device)} if battery else said

    def drawings(device: Any) -> list[dict[str, Any]]:
        return [charts.facts(of_map(device)), *drawn(device)[1:], *(pictures(device) if pictures is not None else ())]

    return Scheme(
        name=name,
        scheme_oob=0,
        views={"map": of_map, "gtd": gtd, "cmt": cmt, "newer": newer, **(views or {})},
        numbered={"translation": ("page", translation), **(numbered or {})},
        about_views={**ABOUT_VIEWS, **(about_views or {})},
        charts=drawings,
        events={**(FROM_BATTERY if battery else {}), **EVENTS, **(events or {})},
        damage_events={**DAMAGE_EVENTS, **(damage_events or {})},
        manual=f"docs/ftl/{name}.md",
        **{
            "replaces": ("mapping",),
            "saved_bytes": lambda geometry: saved_bytes(geometry.lpas, geometry.page_bytes),
            "describe_translation": describe_translation,
            **own,
        },
    )  # fmt: skip
