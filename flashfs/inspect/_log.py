"""The metadata log: checkpoints and trims that are still in flash, boot hints, NVRAM slots."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import nandimg
from flashfs.engine.device import metalog
from flashfs.errors import CorruptError
from flashfs.inspect._page import _no_trims
from flashfs.inspect._view import KIND_CHECKPOINT, KIND_TRIM, NO_PAGE, STREAM_META, WHOLE, Spare, View, is_kind, opened
from nandimg.header import WRITE_BUFFER

PIECE = 1 << 20  #: bytes of a checkpoint that are checked at once


def log(path: str | Path, trust: bool | str = False) -> dict[str, Any]:
    """The metadata log: checkpoints and trim records that are still in flash, boot hints, NVRAM slots."""
    with opened(path, trust) as view:
        hints = metalog.boot_hints([view.chip.boot_slot(0), view.chip.boot_slot(1)])
        out: dict[str, Any] = {"note": view.note} if view.note else {}
        out["boot_hints"] = [
            {"checkpoint": identity, "ppa": ppa if ppa != NO_PAGE else None} for identity, ppa in hints
        ]
        out["checkpoints"] = _checkpoints(view)
        out["trims"] = _trims(view)
        out["nvram"] = _saved(view)
        return out


def _trims(view: View) -> list[dict[str, Any]]:
    """Every trim record still in flash; one counts if it is newer than the checkpoint that a mount is based on."""
    floor = _floor(view)
    rows = []
    for ppa, status, raw in view.pages(STREAM_META):
        if status != WHOLE or not is_kind(raw, KIND_TRIM):
            continue
        status, data, _ = view.chip.read_page(*view.at(ppa))
        if status != WHOLE or _no_trims(data) is not None:
            continue
        for first, n, seq in metalog.trim_records(data):
            rows.append({"seq": seq, "lpa": first, "pages": n, "ppa": ppa, "in_checkpoint": seq <= floor})
    return sorted(rows, key=lambda row: row["seq"])


def _floor(view: View) -> int:
    """The sequence number of the newest whole checkpoint: what is older is in it."""
    for found in _checkpoints(view):
        if found["whole"]:
            return int(found["seq"])
    return 0


def _checkpoints(view: View) -> list[dict[str, Any]]:
    """Every checkpoint descriptor in flash, newest first, and whether all of it can still be read."""
    if view.known_checkpoints is None:
        view.known_checkpoints = _read_checkpoints(view)
    return view.known_checkpoints


class VerifiedCheckpoint(metalog.LoadedCheckpoint):
    """One that is verified piece by piece, and not kept: a map of gigabytes takes no memory here."""

    def _take(self, stream: Any, key: str, size: int) -> int:
        crc = 0
        for at in range(0, size, PIECE):
            crc = nandimg.checksum(stream.take(min(PIECE, size - at)), crc)
        return crc


def _read_checkpoints(view: View) -> list[dict[str, Any]]:
    rows = []
    for ppa, status, raw in view.pages(STREAM_META):
        if status != WHOLE or not is_kind(raw, KIND_CHECKPOINT):
            continue
        spare = Spare.of(raw)
        if not spare.flags & 2:
            continue
        try:
            page_bytes = view.header.geometry.page_bytes
            found = VerifiedCheckpoint(view.meta_page, ppa, page_bytes, view.checkpoint_most)
        except CorruptError as error:
            rows.append({"checkpoint": spare.seq, "ppa": ppa, "whole": False, "note": str(error)})
            continue
        rows.append({
            "checkpoint": found.identity, "ppa": ppa, "whole": True, "clean": found.clean, "seq": found.seq,
            "order": found.order, "mounts": found.mounts,
            "sections": ", ".join(f"{name} {size}" for name, size in found.sizes.items()),
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["checkpoint"])


def _saved(view: View) -> list[dict[str, Any]]:
    """The NVRAM's write-buffer slots that are whole. One older than the checkpoint is in flash already."""
    size = 16 + view.header.geometry.page_bytes
    rows = []
    if not view.chip.keeps_data or not view.header.ftl:
        return []
    at, room = view.chip.region(WRITE_BUFFER) or (0, 0)
    floor = _floor(view) if room >= size else 0
    for slot in range(room // size):
        raw = view.chip.nvram(at + slot * size, size)
        crc, lpa, seq = struct.unpack_from("<IIQ", raw)
        if crc == nandimg.checksum(raw[4:]) and (crc or seq):
            rows.append({"slot": slot, "lpa": lpa, "seq": seq, "counts": seq > floor})
    return rows
