"""What an image says of itself, and its block table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import nandimg
from flashfs.engine.pool import KIND_NAMES
from flashfs.inspect._view import BLANK, ERASED, HEALTH_NAMES, TORN, WHOLE, Spare, View, _name, opened

PROGRESS_BLOCKS = 1024  #: between two reports of progress
UNWRITTEN = (ERASED, Spare.of(b""))  #: a page of a block that is erased for certain
FOLDED_FROM = 1024  #: rows of a block table: a longer one is folded


def header(path: str | Path) -> dict[str, Any]:
    """What the image says of itself, where its regions lie, and how its two header copies are."""
    found = nandimg.inspect(path)
    geometry = found.geometry
    layout = asdict(found.layout)
    return {
        "image": str(path),
        "version": found.version,
        "generation": found.generation,
        "uuid": str(found.uuid),
        "backend": found.backend,
        "ftl": found.ftl or None,
        "options": found.options or {},
        "oob_used": found.oob_used,
        "state": f"bound to {found.ftl}" if found.ftl else BLANK,
        "logical_bytes": geometry.logical_bytes,
        "physical_bytes": geometry.physical_bytes,
        "op": round(geometry.op, 6),
        "copies": _header_copies(Path(path)),
        "features": [{"name": feature.name, "kind": feature.kind} for feature in found.features],
        "nvram": [
            {"name": name, "offset": offset, "bytes": size}
            for name, (offset, size) in nandimg.places_of(found.regions).items()
        ],
        "geometry": geometry.as_dict(),
        "layout": {name: layout[name] for name in layout if name not in ("backend", "oob_used", "nvram")},
    }


def _header_copies(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open("rb") as file:
        for copy in range(2):
            raw = file.read(4096)
            whole = len(raw) == 4096 and nandimg.checksum(raw[:-4]) == struct.unpack("<I", raw[-4:])[0]
            generation = struct.unpack_from("<Q", raw, 16)[0] if whole else None
            rows.append({"copy": copy, "state": "whole" if whole else "damaged", "generation": generation})
    return rows


def blocks(
    path: str | Path, trust: bool | str = False, progress: Callable[[float], None] | None = None
) -> list[dict[str, Any]]:
    """The block table: what the chip keeps of each block, what its first page says, what the device makes of it.
    ``progress`` is told now and then which share of the blocks is done."""
    with opened(path, trust) as view:
        out = []
        for block in range(view.chip.blocks):
            if progress is not None and block % PROGRESS_BLOCKS == 0:
                progress(block / view.chip.blocks)
            out.append(_block(view, block))
        return out


def folded(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same table for people, if it is long: neighbours of which but their numbers everything is alike, as those
    that were never written, are one row."""
    if len(rows) <= FOLDED_FROM:
        return list(rows)
    out: list[dict[str, Any]] = []
    for _, alike in groupby(rows, key=lambda row: {**row, "block": None, "die": None}):
        run = list(alike)
        first, last = run[0], run[-1]
        many = {"block": f"{first['block']} to {last['block']}", "die": ""}
        out.append({**first, **many} if len(run) > 1 else first)
    return out


def folded_tables(found: Any) -> Any:
    """What a view of a scheme's own tables found, for people: in each table, rows that follow each other by number and
    are alike otherwise, as those of what is not in use, are one row."""
    if isinstance(found, dict):
        return {name: folded_tables(value) for name, value in found.items()}
    if not (isinstance(found, list) and found and all(isinstance(row, dict) and row for row in found)):
        return found
    number = next(iter(found[0]))
    out: list[dict[str, Any]] = []
    for _, alike in groupby(enumerate(found), key=lambda at: _apart_from_number(number, *at)):
        run = [row for _, row in alike]
        many = {number: f"{run[0][number]} to {run[-1][number]}"} if len(run) > 1 else {}
        out.append({**run[0], **many})
    return out


def _apart_from_number(number: str, index: int, row: dict[str, Any]) -> Any:
    """The same for neighbours of which but their numbers, which follow each other, everything is alike."""
    own = row.get(number)
    return (own - index, {**row, number: None}) if type(own) is int else index


def _block(view: View, block: int) -> dict[str, Any]:
    status, spare = view.spare(block * view.per_block) if view.written[block] else UNWRITTEN
    whole = status == WHOLE
    ssd = view.device.ssd if view.device else None
    row = {
        "block": block,
        "die": block % view.chip.dies,
        "state": ssd.pool.describe(block)["state"] if ssd else "unknown" if view.header.ftl else "blank",
        "stream": _name(view.stream_names, spare.stream) if whole else "",
        "kind": KIND_NAMES.get(spare.kind, str(spare.kind)) if whole else "",
        "order": spare.order if whole else None,
        "erases": view.chip.erase_count(block),
        "health": _name(HEALTH_NAMES, view.chip.block_health(block)),
        "live": len(ssd.validity.live_in(block)) if ssd else None,
        "next_page": view.programmed(block),
    }
    if status == TORN:
        row["kind"] = "torn"
    return row
