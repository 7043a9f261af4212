"""One physical page: what is in it, whether it counts, and why."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import nandimg
from flashfs.engine.blocks.pool import KIND_NAMES
from flashfs.engine.device import metalog
from flashfs.errors import CorruptError
from flashfs.inspect._view import (
    ERASED,
    FLAG_NAMES,
    HEX_LINES,
    KIND_CHECKPOINT,
    KIND_TRANSLATION,
    KIND_TRIM,
    KIND_USER,
    KIND_VALIDITY,
    NO_PAGE,
    NUMBERS,
    STATUS_NAMES,
    TORN,
    WHOLE,
    Copy,
    Spare,
    View,
    _name,
    _within,
    opened,
)


def page(path: str | Path, ppa: int, trust: bool | str = False) -> dict[str, Any]:
    """One physical page: status, record, OOB, the scheme's bytes, its first bytes, whether it counts, and why."""
    with opened(path, trust) as view:
        _within("PPA", ppa, view.header.geometry.pages, path)
        block, number = view.at(ppa)
        status, data, raw = view.chip.read_page(block, number)
        spare = Spare.of(raw)
        counts, why = _verdict(view, ppa, status, spare)
        out: dict[str, Any] = {
            "ppa": ppa, "vppn": view.header.geometry.vppn(ppa), "block": block, "page": number,
            "die": block % view.chip.dies,
            "status": STATUS_NAMES[status], "live": counts, "why": why,
            "record": _record(view, ppa, status, data),
        }  # fmt: skip
        if status != ERASED:
            out["oob"] = _oob(view, spare)
            out["scheme_oob"] = {**view.own(spare), "bytes": spare.own.hex(" ")}
            if status == WHOLE and spare.kind in (KIND_CHECKPOINT, KIND_TRIM):
                out["content"] = _content(spare, data)
            elif status == WHOLE and spare.kind == KIND_TRANSLATION:
                out["content"] = view.translation(spare, data)
            elif status == WHOLE and spare.kind == KIND_VALIDITY:
                out["content"] = view.validity(spare, data)
            out["data"] = _hexdump(data) if view.chip.keeps_data else ["not kept: the image has the meta backend"]
        return out


def _oob(view: View, spare: Spare) -> dict[str, Any]:
    return {
        "lpa": spare.lpa if spare.kind == KIND_USER else None,
        **({"translation_page": spare.lpa} if spare.kind == KIND_TRANSLATION else {}),
        **({"validity_page": spare.lpa} if spare.kind == KIND_VALIDITY else {}),
        "seq": spare.seq,
        "kind": KIND_NAMES.get(spare.kind, str(spare.kind)),
        "flags": [name for bit, name in FLAG_NAMES if spare.flags & bit],
        "moves": spare.moves,
        **({"group": spare.group} if spare.group else {}),
        "order": spare.order,
        "stream": _name(view.stream_names, spare.stream),
        **({"page_number": (spare.number - 1) % NUMBERS} if spare.number else {}),
    }


def _record(view: View, ppa: int, status: int, data: bytes) -> dict[str, Any]:
    """The chip's own part of a page record, read from the file itself."""
    layout = view.header.layout
    with view.path.open("rb") as file:
        file.seek(layout.spare_at + ppa * layout.stride)
        raw = file.read(layout.record_head + layout.oob_used)
    epoch, crc = struct.unpack_from("<II", raw)
    sums = nandimg.checksum(raw[8:], nandimg.checksum(struct.pack("<II", ppa, epoch)))
    current = view.chip.erase_count(view.at(ppa)[0]) + 1
    known = {
        "epoch": epoch,
        "block_epoch": current,
        "checksum": "matches" if crc == sums else "does not match",
    }
    if epoch < current:
        known["checksum"] = "of a page from before the last erase" if epoch else "never programmed"
        return known
    if not view.chip.keeps_data:
        return {**known, "data_checksum": "none: the meta backend keeps no data"}
    stored = struct.unpack_from("<I", raw, 8)[0]
    if stored == 0:
        return {**known, "data_checksum": "none: programmed without data, reads as zeros"}
    holds = nandimg.page_checksum(data) == stored
    return {**known, "data_checksum": "matches" if holds else "does not match"}


def _verdict(view: View, ppa: int, status: int, spare: Spare) -> tuple[bool, str]:
    """(whether a page counts, why). Needs the mapping; a dead page's reason follows from what replaced it."""
    if status == ERASED:
        return False, "erased"
    if view.device is None:
        return False, view.note
    if status == WHOLE and not spare.meant_for(view.at(ppa)[1]):
        return False, f"it was meant for page {(spare.number - 1) % NUMBERS} of a block: a program went astray"
    if status == TORN:
        return False, "torn: power went while it was programmed, a program failed, or its data were lost with the host"
    state = view.device.ssd.pool.describe(ppa // view.per_block)["state"]
    if spare.kind == KIND_TRANSLATION:
        if view.live(ppa):
            return True, "the directory of translation pages names it, or the last checkpoint stands on it"
        return False, "superseded, or newer than the checkpoint that a recovery stood on"
    if spare.kind == KIND_VALIDITY:
        if view.owned(KIND_VALIDITY, ppa):
            return True, "the directory of the validity store names it, or the last checkpoint stands on it"
        return False, "superseded, or newer than the checkpoint that a recovery stood on"
    if spare.kind != KIND_USER:
        if state == "meta":
            return True, "its block belongs to the metadata log"
        return False, f"a newer checkpoint replaced it; its block is {state}"
    if view.live(ppa):
        return True, "the mapping names it"
    return False, _why_dead(spare, view.current(spare.lpa))


def _why_dead(spare: Spare, now: Copy | None) -> str:
    """Why a whole user page is not live, from the live page of its LPA."""
    if now is None:
        return "its LPA holds nothing: it was trimmed later"
    if now.spare.lpa != spare.lpa:
        return f"superseded: its LPA was remapped to PPA {now.ppa}"
    if now.spare.seq > spare.seq:
        return f"superseded by sequence number {now.spare.seq} at PPA {now.ppa}"
    if now.spare.seq < spare.seq:
        return f"never flushed and judged lost; sequence number {now.spare.seq} at PPA {now.ppa} counts"
    if now.spare.order < spare.order:
        return f"a copy of an unfinished move; its original at PPA {now.ppa} counts"
    return f"moved to PPA {now.ppa} by cleaning"


def _content(spare: Spare, data: bytes) -> dict[str, Any]:
    """What a metadata page says."""
    if spare.kind == KIND_TRIM:
        if (why := _no_trims(data)) is not None:
            return {"trims": why}
        return {"trims": [{"lpa": lpa, "pages": n, "seq": seq} for lpa, n, seq in metalog.trim_records(data)]}
    if spare.flags & 2 and (found := metalog.parse_descriptor(data)) is not None:
        return _descriptor(data, *found)
    if metalog.parse_index(data) is not None and metalog.is_sealed(data):
        _, _, n, previous = metalog.INDEX.unpack_from(data)
        return {"index": "extents of a checkpoint", "extents": n, "previous": None if previous == NO_PAGE else previous}
    return {"stream": f"page {spare.lpa} of checkpoint {spare.seq}"}


def _no_trims(data: bytes) -> str | None:
    """Why a page of the kind holds no trim records, or None if it does."""
    try:
        metalog.trim_records(data)
    except CorruptError as error:
        return str(error)
    return None


FILLED = {metalog.FILL_ONES: "none, all ones", metalog.FILL_ZEROS: "none, all zeros"}


def _descriptor(
    data: bytes, head: tuple[int, ...], parts: list[tuple[bytes, int, int]], extents: list[tuple[int, int]]
) -> dict[str, Any]:
    identity, seq, order, size, flags, _, _, previous, mounts = head
    return {
        "checkpoint": identity, "whole": bool(metalog.is_sealed(data)), "clean": bool(flags & 4), "seq": seq,
        "order": order, "mounts": mounts, "stream_bytes": size, "index": None if previous == NO_PAGE else previous,
        "sections": [
            {"section": name.rstrip(b"\0").decode(errors="replace"), "bytes": n, "checksum": crc}
            for name, n, crc in parts
        ],
        "extents": [{"ppa": FILLED.get(first, first), "pages": n} for first, n in extents],
    }  # fmt: skip


def _hexdump(data: bytes) -> list[str]:
    lines = []
    for at in range(0, min(len(data), 16 * HEX_LINES), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:04x}  {part.hex(' ')}  |{text}|")
    return lines
