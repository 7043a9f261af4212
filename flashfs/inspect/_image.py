"""What an image says of itself, and its block table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nandimg
from flashfs.engine.blocks.pool import KIND_NAMES, STATE_NAMES
from flashfs.engine.views import block_map
from flashfs.inspect._view import BLANK, ERASED, HEALTH_NAMES, TORN, WHOLE, Spare, View, _name, opened

PROGRESS_BLOCKS = 1024  #: between two reports of progress
UNWRITTEN = (ERASED, Spare.of(b""))  #: a page of a block that is erased for certain
FOLDED_FROM = 1024  #: rows of a block table: a longer one is folded
Run = tuple[int, int, dict[str, Any]]


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
    ``progress`` gets the share of the blocks that is done, now and then. For a large chip use `folded_blocks`."""
    with opened(path, trust) as view:
        return list(_unfolded(_runs(view, progress), view.chip.dies))


def folded_blocks(
    path: str | Path, trust: bool | str = False, progress: Callable[[float], None] | None = None
) -> list[dict[str, Any]]:
    """The same table. In a long one, neighbours that differ only in their numbers, as those that were never written,
    share a row: its ``block`` is "FIRST to LAST", its ``die`` empty. Its cost grows with what was written, plus some
    bytes per block."""
    with opened(path, trust) as view:
        if view.chip.blocks <= FOLDED_FROM:
            return list(_unfolded(_runs(view, progress), view.chip.dies))
        rows = []
        for first, last, row in _runs(view, progress):
            many = {"block": f"{first} to {last}", "die": ""}
            rows.append({**row, **many} if last > first else row)
        return rows


def unfolded(rows: Iterable[dict[str, Any]], dies: int) -> Iterator[dict[str, Any]]:
    """The rows of `blocks` again, from those of `folded_blocks`."""
    ends = (str(row["block"]).partition(" to ") for row in rows)
    return _unfolded(((int(first), int(last or first), row) for row, (first, _, last) in zip(rows, ends, strict=True)),
                     dies)  # fmt: skip


def _unfolded(runs: Iterable[Run], dies: int) -> Iterator[dict[str, Any]]:
    for first, last, row in runs:
        for block in range(first, last + 1):
            yield {**row, "block": block, "die": block % dies}


def _runs(view: View, progress: Callable[[float], None] | None) -> Iterator[Run]:
    """(first block, last block, their row), in order. Blocks that were never written and are alike in all else are
    found without reading each; others are read, and joined where their rows are alike."""
    known = _known(view)
    different = np.ones(view.chip.blocks, np.bool_)
    different[1:] = view.written[1:] | view.written[:-1]
    for array in known.values():
        different[1:] |= array[1:] != array[:-1]
    starts = np.flatnonzero(different).tolist()
    before: Run | None = None
    for i, (first, end) in enumerate(pairwise([*starts, view.chip.blocks])):
        if progress is not None and i % PROGRESS_BLOCKS == 0:
            progress(first / view.chip.blocks)
        row = _block(view, first, known)
        if before is not None and {**before[2], "block": 0, "die": 0} == {**row, "block": 0, "die": 0}:
            before = (before[0], end - 1, before[2])
            continue
        if before is not None:
            yield before
        before = (first, end - 1, row)
    if before is not None:
        yield before


def _known(view: View) -> dict[str, NDArray[Any]]:
    """What is known of each block without reading its pages, as arrays: some bytes per block."""
    if view.device is None:
        return block_map.bare(view.chip)
    found = block_map.block_map(view.device.ssd)
    return {name: found[name] for name in ("state", "erases", "health", "valid")}


def folded_tables(found: Any) -> Any:
    """What a view of a scheme's own tables found, folded for reading: in each table, consecutive rows that differ only
    in their number, as those of unused entries, become one row."""
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
    """A key that is equal for neighbours that differ only in their consecutive numbers."""
    own = row.get(number)
    return (own - index, {**row, number: None}) if type(own) is int else index


def _block(view: View, block: int, known: dict[str, NDArray[Any]]) -> dict[str, Any]:
    status, spare = view.spare(block * view.per_block) if view.written[block] else UNWRITTEN
    whole = status == WHOLE
    bare = "unknown" if view.header.ftl else "blank"
    row = {
        "block": block,
        "die": block % view.chip.dies,
        "state": STATE_NAMES[known["state"][block]] if view.device else bare,
        "stream": _name(view.stream_names, spare.stream) if whole else "",
        "kind": KIND_NAMES.get(spare.kind, str(spare.kind)) if whole else "",
        "order": spare.order if whole else None,
        "erases": int(known["erases"][block]),
        "health": _name(HEALTH_NAMES, int(known["health"][block])),
        "live": len(view.device.ssd.validity.live_in(block)) if view.device else None,
        "next_page": view.programmed(block),
    }
    if status == TORN:
        row["kind"] = "torn"
    return row
