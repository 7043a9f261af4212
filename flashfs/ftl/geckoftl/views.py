"""Views of Logarithmic Gecko for ``flashfs dump`` and the HTML page: its pages, its runs, and their entries of a block.

Pages of runs are read from the chip directly, past the device, so a view changes no counters or state of it.
"""

from __future__ import annotations

import struct
from typing import Any

from flashfs.errors import UsageError
from flashfs.ftl import charts

HEAD = struct.Struct("<4sIQIIII")  #: header of a run's page: magic, entries, run, index, items, first item, items here
KEY = struct.Struct("<I")  #: the key of an entry: twice its slot, plus 1 if it has the erase flag
WHOLE = 1  #: the chip's status of a page that can be read
SHOWN = ("page", "ppa", "first_block", "last_block", "entries_n", "flags", "invalid_n")  #: columns of a page of a run
FIGURES = ("gecko_runs", "gecko_pages", "gecko_model_pages", "gecko_entries_a_page", "gecko_buffered")
BANDS_MOST = 12  #: runs that are drawn; there is one a level
LINES_MOST = 400  #: pages of a run that are drawn
FLAGS_MOST = 1_500  #: erase flags of a run that are drawn


def runs(device: Any) -> list[dict[str, Any]]:
    """The runs of Logarithmic Gecko, the newest first; ``age``: how many sequence numbers were given since."""
    now = device.ssd.seq
    return [{"number": run["number"], "age": now - run["number"], **run} for run in _gecko(device).run_list()]


def figures(device: Any) -> dict[str, Any]:
    """Gecko in figures: its state, without the counters of operations."""
    found = _gecko(device).figures()
    return {name: found[name] for name in FIGURES}


def block(device: Any, number: int | None) -> dict[str, Any]:
    """The entries that Gecko has of a block: in the buffer, and in each run from the newest on."""
    store = device.ssd.validity
    if number is None:  # the first block in the oldest run
        found = store.gecko.run_list()
        number = found[-1]["first_blocks"][0] if found else 0
    if not 0 <= number < device.nand.blocks:
        raise UsageError(f"block {number}: {device.path} has blocks 0 to {device.nand.blocks - 1}")
    return {"block": number, "live": store.live_in(number), "entries": store.gecko.entries_of(number)}


def run(device: Any, number: int | None) -> dict[str, Any]:
    """A run, counted from the newest, which is 0: its pages, and the entries of each. Without a number the newest."""
    found = runs(device)
    if not found and number is None:
        return {"run": None, "pages": [], "entries": []}
    if not found:
        raise UsageError(f"run {number}: {device.path} has none yet")
    number = number or 0
    if not 0 <= number < len(found):
        raise UsageError(f"run {number}: {device.path} has runs 0 to {len(found) - 1}, the newest first")
    of = found[number]
    pages = [_page(device, of, index) for index in range(of["pages"])]
    rows = [{"page": page["page"], **entry} for page in pages for entry in page["entries"]]
    shown = [{name: page[name] for name in SHOWN} for page in pages]
    about = {name: of[name] for name in ("number", "age", "level")}
    return {"run": number, **about, "pages": shown, "entries": rows}


def describe(device: Any, number: int, raw: bytes) -> dict[str, Any]:
    """A page of a run: its header, its entries, the items of the postamble."""
    magic, n, of, index, items, first, here = HEAD.unpack_from(raw)
    if magic != b"GKRN":
        return {"page_of_run": number, "entries": f"it begins with {magic!r}, not with GKRN"}
    listed = entries(device, raw)
    behind = HEAD.size + -(-n * _gecko(device).layout.entry_bytes // 8) * 8
    postamble = [struct.unpack_from("<Q", raw, behind + 8 * item)[0] for item in range(here)]
    return {
        "page_of_run": number, "run": of, "index": index, "entries_n": n, "postamble_items": items,
        "first_item": first, "items": postamble, "entries": listed,
    }  # fmt: skip


def entries(device: Any, raw: bytes) -> list[dict[str, Any]]:
    """The entries of a page of a run: {"block", "part", "erased", "invalid": pages of the block}."""
    layout = _gecko(device).layout
    n = min(HEAD.unpack_from(raw)[1], (len(raw) - HEAD.size) // layout.entry_bytes)
    out = []
    for index in range(n):
        at = HEAD.size + index * layout.entry_bytes
        key = KEY.unpack_from(raw, at)[0]
        bitmap = int.from_bytes(raw[at + KEY.size : at + layout.entry_bytes], "little")
        number, part = divmod(key >> 1, layout.parts)
        first = part * layout.chunk_pages
        invalid = [first + bit for bit in range(layout.chunk_pages) if bitmap >> bit & 1]
        out.append({"block": number, "part": part, "erased": bool(key & 1), "invalid": invalid})
    return out


# --- drawn


def drawn(device: Any) -> list[dict[str, Any]]:
    """For the HTML page: Gecko's figures, its runs with their erase flags, and its pages one by one."""
    found = [(of, [_page(device, of, index) for index in range(of["pages"])]) for of in runs(device)]
    return [charts.facts(figures(device)), _levels(found), _spans(device, found), _cells(found)]


def _levels(found: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[str, Any]:
    sizes = [[f"level {of['level']}", of["pages"]] for of, _ in found]
    return charts.bars(
        "Runs of Gecko", "level, the newest run first", "pages", sizes,
        "One run per level; the older ones are larger. A query reads a page of each, until it meets the erase flag.",
    )  # fmt: skip


def _spans(device: Any, found: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[str, Any]:
    """A band for each run: a line for each page of it, over the blocks that it has entries of; dots are erase flags."""
    bands, cut = [], False
    for of, pages in found[:BANDS_MOST]:
        band: dict[str, Any] = {
            "label": f"level {of['level']}", "y_most": max(1, len(pages) - 1), "lines": [], "points": [],
        }  # fmt: skip
        for page in pages:
            y = page["page"]
            title = f"run {of['number']}, {of['age']:,} writes ago: page {y} of {len(pages)} at PPA {page['ppa']}, "
            said = "unreadable" if page["entries_n"] is None else f"{page['entries_n']} entries, {page['flags']} flags"
            band["lines"].append({
                "x1": page["first_block"], "y1": y, "x2": page["last_block"], "y2": y,
                "kind": "approximate" if page["entries_n"] is None else "accurate", "title": title + said,
            })  # fmt: skip
            band["points"] += [[number, y, True] for number in page["flagged"]]
        cut |= len(band["lines"]) > LINES_MOST or len(band["points"]) > FLAGS_MOST
        band["lines"] = band["lines"][:: -(-len(band["lines"]) // LINES_MOST) or 1]
        band["points"] = band["points"][:: -(-len(band["points"]) // FLAGS_MOST) or 1]
        bands.append(band)
    about = (
        "A band a run, the newest at the top; a line for each of its pages, over the blocks that it has entries of. "
        "Dots are erase flags: what older runs say of that block counts no more. The oldest run has none."
    )
    if cut:
        about += f" Of {LINES_MOST} pages or {FLAGS_MOST:,} flags in a run and more some are left out."
    return charts.lines("What Gecko's runs speak of", "block", "page of the run", device.nand.blocks - 1, bands, about)


def _cells(found: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[str, Any]:
    rows = [(of, page) for of, pages in found for page in pages]
    fields: list[dict[str, Any]] = [
        {"name": "level", "values": [of["level"] for of, _ in rows]},
        {"name": "run", "values": [of["number"] for of, _ in rows]},
        {"name": "age", "unit": "writes", "values": [of["age"] for of, _ in rows]},
        {"name": "page of the run", "values": [page["page"] for _, page in rows]},
        {"name": "entries", "values": [page["entries_n"] for _, page in rows]},
        {"name": "erase flags", "values": [page["flags"] for _, page in rows]},
        {"name": "invalid pages", "values": [page["invalid_n"] for _, page in rows]},
        {"name": "first block", "values": [page["first_block"] for _, page in rows]},
        {"name": "ppa", "values": [page["ppa"] for _, page in rows]},
    ]
    views = [
        {"label": "level", "field": "level"},
        {"label": "age", "field": "age"},
        {"label": "entries", "field": "entries"},
        {"label": "erase flags", "field": "erase flags"},
        {"label": "invalid pages", "field": "invalid pages"},
    ]
    about = "A cell per page with entries, run by run from the newest on."
    return charts.cells("Pages of Gecko", "page", fields, views, about)


# --- reading


def _gecko(device: Any) -> Any:
    return device.ssd.validity.gecko


def _page(device: Any, of: dict[str, Any], index: int) -> dict[str, Any]:
    """One page of a run with its entries; entries_n, flags and invalid_n are None if it cannot be read."""
    ppa = of["ppas"][index]
    first = of["first_blocks"][index]
    status, raw, _ = device.nand.read_page(*divmod(ppa, device.nand.pages_per_block))
    out: dict[str, Any] = {"page": index, "ppa": ppa, "first_block": first, "last_block": first}
    if status != WHOLE:
        return {**out, "entries_n": None, "flags": None, "invalid_n": None, "flagged": [], "entries": []}
    listed = entries(device, raw)
    flagged = [entry["block"] for entry in listed if entry["erased"]]
    return {
        **out, "last_block": listed[-1]["block"] if listed else first, "entries_n": len(listed), "flags": len(flagged),
        "invalid_n": sum(len(entry["invalid"]) for entry in listed), "flagged": flagged, "entries": listed,
    }  # fmt: skip
