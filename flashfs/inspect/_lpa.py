"""One logical page: where it is, and its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashfs.inspect._log import _saved, _trims
from flashfs.inspect._page import _why_dead
from flashfs.inspect._view import STATUS_NAMES, TORN, WHOLE, Copy, View, _name, _within, opened


def lpa(path: str | Path, lpa: int, trust: bool | str = False) -> dict[str, Any]:
    """All about an LPA: where it is, every copy that is still in flash, the trims that cover it, what each
    structure says of it, and what the NVRAM holds of it. Reads every spare area."""
    with opened(path, trust) as view:
        _within("LPA", lpa, view.header.geometry.lpas, path)
        copies = view.copies(lpa)
        live = [copy for copy in copies if copy.live]
        now = view.current(lpa) if view.shares else live[0] if live else None
        trims = [row for row in _trims(view) if row["lpa"] <= lpa < row["lpa"] + row["pages"]]
        saved = [row for row in _saved(view) if row["lpa"] == lpa]
        newest = max(saved, key=lambda row: row["seq"]) if saved else None
        out: dict[str, Any] = {
            "lpa": lpa,
            "offset": lpa * view.header.geometry.page_bytes,
            "reads": _reads(view, now, _since(view, lpa, now), newest, trims),
            "ppa": now.ppa if now else None,
            "block": now.ppa // view.per_block if now else None,
            "page": now.ppa % view.per_block if now else None,
            "seq": now.spare.seq if now else None,
        }
        if view.note:
            out["note"] = view.note
        if view.device:
            out["mapping"] = said = view.device.ssd.mapping.explain(lpa)
            if now and said["ppa"] is not None and said["ppa"] != now.ppa:
                out["mapping"] = {**said, "ppa_is_off_by": now.ppa - said["ppa"]}  # a guess: a read takes another page
        out["copies"] = [_copy_row(view, copy, now, trims) for copy in copies]
        out["trims"] = trims
        out["nvram"] = saved
        return out


def _since(view: View, lpa: int, now: Copy | None) -> int:
    """The sequence number with which the LPA got its page: the page's, or that of a remap."""
    said = view.device.ssd.mapping.explain(lpa) if view.device and view.shares else {}
    return int(said.get("remap_seq") or (now.spare.seq if now else 0))


def _reads(
    view: View, now: Copy | None, since: int, saved: dict[str, Any] | None, trims: list[dict[str, Any]]
) -> str:
    """What the host gets, in words."""
    if view.device is None:
        return view.note
    newest = max([since, *(row["seq"] for row in trims)])
    if saved and saved["counts"] and saved["seq"] > newest:
        return f"NVRAM slot {saved['slot']}: a mount puts it into flash"
    if now is None:
        return "zeros: never written, or trimmed"
    return f"PPA {now.ppa}" if now.status == WHOLE else f"an error: PPA {now.ppa} cannot be read"


def _copy_row(view: View, copy: Copy, now: Copy | None, trims: list[dict[str, Any]]) -> dict[str, Any]:
    if copy.live and view.shares and (now is None or now.ppa != copy.ppa):
        why = "live, but of others: the LPA has left it"
    elif copy.live:
        why = "live"
    elif copy.status == TORN:
        why = "torn"
    elif view.device is None:
        why = view.note
    elif now is None:
        later = [row["seq"] for row in trims if row["seq"] > copy.spare.seq]
        why = f"trimmed at sequence number {min(later)}" if later else "trimmed before the last checkpoint"
    else:
        why = _why_dead(copy.spare, now)
    return {
        "ppa": copy.ppa,
        "block": copy.ppa // view.per_block,
        "page": copy.ppa % view.per_block,
        "seq": copy.spare.seq,
        "order": copy.spare.order,
        "stream": _name(view.stream_names, copy.spare.stream),
        "moved": copy.spare.moved,
        "status": STATUS_NAMES[copy.status],
        "state": "live" if copy.live else "torn" if copy.status == TORN else "dead",
        "why": why,
        **view.own(copy.spare),
    }
