"""The device over the image: the scheme's tables, the recovery, and what is broken."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashfs.device import Device
from flashfs.errors import CorruptError, UsageError
from flashfs.ftl import scheme as scheme_of
from flashfs.inspect._image import header
from flashfs.inspect._view import BLANK, WHOLE, Spare, View, opened


def scheme(path: str | Path, view_name: str | None = None, number: int | None = None) -> Any:
    """The bound scheme's own structures: all of its views, or the one named; see Scheme.views and, for those that take
    a number, Scheme.numbered."""
    with opened(path) as view:
        if view.device is None:
            return {"ftl": view.header.ftl or None, "note": view.note}
        known = scheme_of(view.header.ftl)
        views = known.views
        if view_name is not None and view_name in known.numbered:
            return known.numbered[view_name][1](view.device, number)
        if view_name is None:
            return {"ftl": view.header.ftl, **{name: show(view.device) for name, show in views.items()}}
        if view_name not in views:
            names = ", ".join([*views, *known.numbered])
            raise UsageError(f"{view.header.ftl} has no view {view_name}: it has {names or 'none'}")
        return views[view_name](view.device)


def recovery(path: str | Path) -> dict[str, Any]:
    """What a mount would do to come back, step by step; done in memory, without the step that writes."""
    with opened(path) as view:
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


def problems(path: str | Path, data: bool = False) -> list[str]:
    """Every broken invariant, a line each; [] when sound. ``data`` also reads every live page and proves its checksum,
    which takes as long as reading the disk."""
    out = [f"header copy {row['copy']}: damaged" for row in header(path)["copies"] if row["state"] != "whole"]
    with opened(path) as view:
        if view.device is None:
            return out if view.note == BLANK else [*out, view.note]
        out += view.device.recovery.alarms
        out += view.device.problems()
        if data:
            for block in range(view.chip.blocks):
                out += _unreadable(view, block)
        return out


def repair(path: str | Path) -> list[str] | None:
    """Make an image usable whose newest checkpoint is whole and does not fit the device, so that no mount takes it: it
    is passed over, and what is in flash decides. Returns what that could not bring back, a line each; None, and the
    image is as it was, if a mount takes it. What is wrong otherwise is raised as ever."""
    if not header(path)["ftl"]:
        return None
    try:
        Device.open(path, readonly=True).close(clean=False)
        return None
    except CorruptError:
        with Device.open(path, repair=True) as device:
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
