"""The health of a device, whether it is mounted or lies still: what ``flashfs smart`` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import mounts
from flashfs.inspect import opened


def of(where: Path, *, ftl: str | None = None, trust: bool = False) -> dict[str, Any]:
    """``Device.smart`` of a mount or an image, with ``image``, ``ftl``, ``power_cycles``, ``page_bytes`` and
    ``endurance``. An image is only looked at: a crashed one is recovered in memory. UsageError for what is neither, and
    a blank one."""
    place = mounts.absolute(where)
    if mounts.is_folder(place):
        folder = mounts.find(place)
        try:
            smart, config = (mounts.text(folder, name) for name in ("smart.json", "config.json"))
        except PermissionError:
            raise FlashfsError(f"{folder} belongs to another user: that user may ask it") from None
        return _whole(smart, config, smart["mounts"] + 1)
    with opened(where, trust or ftl or False) as view:
        if view.device is None:
            raise UsageError(f"{where}: {view.note}")
        return _whole(view.device.smart(), view.device.config(), view.device.ssd.mounts)


def _whole(smart: dict[str, Any], config: dict[str, Any], power_cycles: int) -> dict[str, Any]:
    """The device counts its mounts from 0, and counts the opening of an image to look at it as one."""
    geometry = config["geometry"]
    about = {"image": config["image"], "ftl": config["ftl"], "power_cycles": power_cycles}
    return {**about, **smart, "page_bytes": geometry["page_bytes"], "endurance": geometry["endurance"]}


def is_bad(found: dict[str, Any]) -> bool:
    """Whether it has failed, or lost what it had acknowledged."""
    return bool(found["failed"] or found["lost"])
