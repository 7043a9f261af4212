"""Views of the page validity log for ``flashfs dump`` and the HTML page: its pages, and the chains of entries in
them."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise
from typing import Any

from flashfs.errors import UsageError
from flashfs.ftl import charts

NO_PAGE = 2**32 - 1
ENTRY = struct.Struct("<III")  #: PPA, erase clock, position of the block's previous entry
CHAINS_MOST = 8  #: chains that are drawn
BLOCKS_MOST = 1 << 16  #: on a larger chip, only so many blocks have their chains read


def log(device: Any) -> dict[str, Any]:
    """The validity log in figures, and its pages, the oldest first."""
    found = device.ssd.validity
    ppas = found.page_ppas()
    pages = [{"page": n, "ppa": ppas[n % found.slots]} for n in range(found.first_n, found.next_n)]
    figures = found.figures()
    there = {name: figures[name] for name in ("log_pages", "log_pages_most", "log_waits")}  # no counters
    return {**there, "entries_a_page": found.per_page, "entries_most": found.entries_most, "pages": pages}


def chain(device: Any, block: int | None) -> dict[str, Any]:
    """The entries of a block in the log, the newest first; without a number, of the block that has most of them."""
    found = device.ssd.validity
    if block is None:
        block = max(range(device.nand.blocks), key=lambda one: (len(found.chain(one)), -one))
    if not 0 <= block < device.nand.blocks:
        raise UsageError(f"block {block}: {device.path} has blocks 0 to {device.nand.blocks - 1}")
    return {"block": block, "live": found.live_in(block), "chain": found.chain(block)}


def describe(device: Any, number: int, raw: bytes) -> dict[str, Any]:
    """A page of the log: its entries, and which of them count."""
    found, per_block = device.ssd.validity, device.nand.pages_per_block
    rows = []
    for place in range(found.per_page):
        ppa, clock, before = ENTRY.unpack_from(raw, place * ENTRY.size)
        if ppa != NO_PAGE:
            at = number * found.per_page + place
            counts = any(entry["position"] == at for entry in found.chain(ppa // per_block))
            rows.append({"position": at, "block": ppa // per_block, "page": ppa % per_block, "clock": clock,
                         "before": None if before == NO_PAGE else before, "counts": counts})  # fmt: skip
    return {"page_of_log": number, "entries": rows}


def drawn(device: Any) -> list[dict[str, Any]]:
    """For the HTML page: the log's figures, how long the chains are, the longest of them, and the log's pages."""
    blocks = range(min(device.nand.blocks, BLOCKS_MOST))
    chains = {block: device.ssd.validity.chain(block) for block in blocks}
    most = "" if device.nand.blocks <= BLOCKS_MOST else f" Of the first {BLOCKS_MOST:,} blocks."
    figures = log(device)
    lengths = [len(one) for one in chains.values() if one]
    return [
        charts.facts(figures),
        charts.counted("Chains of the validity log", "entries of a block", "blocks", lengths,
                       "Dead pages that the log has of a block; blocks without any are left out." + most),
        _longest(device, chains),
        _pages(device, chains, figures["pages"], most),
    ]  # fmt: skip


def _longest(device: Any, chains: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Chains from page to page of the log: a query reads the pages on the way."""
    found = device.ssd.validity
    first = found.first_n
    bands = []
    for block in sorted(chains, key=lambda one: (-len(chains[one]), one))[:CHAINS_MOST]:
        ends = [
            ((entry["position"] // found.per_page - first) % found.slots, entry["page"])
            for entry in chains[block] if entry["position"] is not None
        ]  # fmt: skip
        band = {
            "label": f"block {block}", "y_most": device.nand.pages_per_block - 1,
            "lines": [
                {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "kind": "accurate",
                 "title": f"from page {first + x1} of the log to page {first + x2}: page {y2} of block {block}"}
                for (x1, y1), (x2, y2) in pairwise(ends)
            ],
            "points": [[x, y, True] for x, y in ends],
        }  # fmt: skip
        if ends:
            bands.append(band)
    about = (
        "A band a block: dots are its dead pages, by the page of the log that says so; a query follows the line from "
        "the right, the newest, to the left, and reads each page of the log on the way."
    )
    last = max(1, found.next_n - first - 1)
    x, y = "page of the log, from its oldest", "page in the block"
    return charts.lines("The longest chains", x, y, last, bands, about)


def _pages(
    device: Any, chains: dict[int, list[dict[str, Any]]], pages: list[dict[str, Any]], most: str
) -> dict[str, Any]:
    found = device.ssd.validity
    counted: Counter[int] = Counter()
    led: dict[int, set[int]] = {}
    for block, entries in chains.items():
        for entry in entries:
            if entry["position"] is not None:
                slot = entry["position"] // found.per_page
                counted[slot] += 1
                led.setdefault(slot, set()).add(block)
    slots = [page["page"] % found.slots for page in pages]
    fields: list[dict[str, Any]] = [
        {"name": "entries that count", "unit": f"of {found.per_page}", "top": found.per_page,
         "values": [counted[slot] for slot in slots]},
        {"name": "blocks", "unit": "chains lead through it", "values": [len(led.get(slot, ())) for slot in slots]},
        {"name": "ppa", "values": [page["ppa"] for page in pages]},
    ]  # fmt: skip
    views = [{"label": "entries that count", "field": "entries that count"}, {"label": "chains", "field": "blocks"}]
    about = "A cell per page of the log, the oldest, which is reclaimed next, first." + most
    return charts.cells("Pages of the validity log", "page", fields, views, about)
