"""The device over the image: the scheme's tables, the recovery, and what is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashfs.device import Device
from flashfs.errors import CorruptError, UsageError
from flashfs.inspect._image import PROGRESS_BLOCKS, header
from flashfs.inspect._view import BLANK, WHOLE, Spare, View, opened

DATA = 0.9  #: what reading the data takes of the time of a check that does

def scheme(
    path: str | Path, view_name: str | None = None, number: int | None = None, trust: bool | str = False
) -> Any:
    """The bound scheme's own structures: all of its views, or the one named; see Scheme.views and, for those that take
    a number, Scheme.numbered."""
    with opened(path, trust) as view:
        if view.device is None or view.known is None:
            return {"ftl": view.header.ftl or None, "note": view.note}
        known = view.known
        views = known.views
        if view_name is not None and view_name in known.numbered:
            return known.numbered[view_name][1](view.device, number)
        if view_name is None:
            return {"ftl": view.header.ftl, **{name: show(view.device) for name, show in views.items()}}
        if view_name not in views:
            names = ", ".join([*views, *known.numbered])
            raise UsageError(f"{view.header.ftl} has no view {view_name}; its views are {names or 'the general ones'}")
        return views[view_name](view.device)


def recovery(path: str | Path, trust: bool | str = False) -> dict[str, Any]:
    """How a mount would recover the image, step by step; done in memory, without the step that writes."""
    with opened(path, trust) as view:
        if view.device is None:
            return {"ftl": view.header.ftl or None, "note": view.note}
        report = view.device.recovery
        return {
            "ftl": view.header.ftl,
            "clean": report.clean,
            "summary": report.summary(),
            "figures": dict(report.figures),
            "alarms": list(report.alarms),
            "steps": [asdict(step) for step in report.steps],
        }


def problems(path: str | Path, data: bool = False, trust: bool | str = False) -> list[str]:
    """Every broken invariant, one line each, and why some could not be checked; [] when sound. ``data`` also reads
    every live page and checks its checksum, which takes as long as reading the disk."""
    broken, unchecked = check(path, data, trust)
    return [*broken, unchecked] if unchecked else broken


def check(
    path: str | Path, data: bool = False, trust: bool | str = False, progress: Callable[[float], None] | None = None
) -> tuple[list[str], str]:
    """(broken invariants, why map, validity and counters were not checked or ""). ``progress`` gets the share that is
    done, now and then."""
    tell = progress or (lambda share: None)
    out = [f"header copy {row['copy']}: damaged" for row in header(path)["copies"] if row["state"] != "whole"]
    with opened(path, trust) as view:
        if view.untrusted:
            for block in _told(view.chip.blocks, tell):
                out += _spoilt(view, block, data)
            return out, f"map, validity and counters were not checked: {view.note}"
        if view.device is None:
            return out if view.note == BLANK else [*out, view.note], ""
        out += view.device.recovery.alarms
        first = 1 - DATA if data else 1
        out += view.device.problems(lambda share: tell(share * first))
        if data:
            for block in _told(view.chip.blocks, lambda share: tell(first + share * DATA)):
                out += _unreadable(view, block)
        return out, ""


def _told(blocks: int, tell: Callable[[float], None]) -> Iterator[int]:
    """The numbers of all blocks; ``tell`` gets the share that is done."""
    for block in range(blocks):
        if block % PROGRESS_BLOCKS == 0:
            tell(block / blocks)
        yield block


def _spoilt(view: View, block: int, data: bool) -> list[str]:
    """Pages of a block that a sync had counted and that are not whole: what can be said without knowing the FTL."""
    out = []
    synced = 0 if view.chip.block_health(block) else view.chip.synced_pages(block)
    for page in range(synced):
        status = view.chip.read_page(block, page)[0] if data else view.chip.read_spare_area(block, page)[0]
        if status != WHOLE:
            out.append(f"PPA {block * view.per_block + page}: a page that was flushed cannot be read")
    return out


def repair(path: str | Path, trust: bool | str = False) -> list[str] | None:
    """Make an image usable whose newest checkpoint is whole but does not fit the device, so that no mount accepts it.
    The checkpoint is skipped, and what is in flash decides. Returns what that could not recover, one line each; None,
    with the image unchanged, if a mount accepts it. Other errors are raised as usual."""
    if not header(path)["ftl"]:
        return None
    known: dict[str, Any] = {"ftl": trust if isinstance(trust, str) else None, "trust": trust is True}
    try:
        Device.open(path, readonly=True, **known).close(clean=False)
        return None
    except CorruptError:
        with Device.open(path, repair=True, **known) as device:
            return list(device.recovery.alarms)


def _unreadable(view: View, block: int) -> list[str]:
    """Live pages of a block that cannot be read whole."""
    assert view.device is not None
    out = []
    for page in view.device.ssd.validity.live_in(block):
        status, _, raw = view.chip.read_page(block, page)
        if status != WHOLE:
            ppa = block * view.per_block + page
            out.append(f"PPA {ppa}: LPA {Spare.of(raw).lpa} cannot be read: its data do not match their checksum")
    return out
