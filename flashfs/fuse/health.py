"""The health of a device, mounted or not: what ``flashfs smart`` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import looking, places
from flashfs.inspect import opened


def of(where: Path, *, ftl: str | None = None, trust: bool = False) -> dict[str, Any]:
    """``Device.smart`` of a mount or an image, with ``image``, ``ftl``, ``power_cycles``, ``at_least``, ``page_bytes``
    and ``endurance``. An image is opened read-only: a crashed one is recovered in
    memory. UsageError for a blank image, and for what is neither.

    ``at_least``: the figures of ``life`` are lower bounds: what was written between the last checkpoint and a power cut
    is missing.
    """
    if looking.is_served(where):
        place = places.at(where)
        try:
            smart, config = (place.text(name) for name in ("smart.json", "config.json"))
        except PermissionError:
            raise FlashfsError(f"{place.name} belongs to another user: that user may ask it") from None
        return _whole(smart, config, smart["mounts"] + 1, recovered=False)
    with opened(where, trust or ftl or False) as view:
        device = view.device
        if device is None:
            raise UsageError(view.note if view.note.startswith(f"{where}:") else f"{where}: {view.note}")
        return _whole(device.smart(), device.config(), device.ssd.mounts, recovered=not device.recovery.clean)


def _whole(smart: dict[str, Any], config: dict[str, Any], power_cycles: int, *, recovered: bool) -> dict[str, Any]:
    """The device counts its mounts from 0, and counts the opening of an image to look at it as one."""
    geometry, at_least = config["geometry"], recovered or smart["life"]["unsafe_shutdowns"] > 0
    about = {"image": config["image"], "ftl": config["ftl"], "power_cycles": power_cycles, "at_least": at_least}
    return {**about, **smart, "page_bytes": geometry["page_bytes"], "endurance": geometry["endurance"]}


def alarms(found: dict[str, Any]) -> list[str]:
    """What is wrong, a line each: what no power cut can have left, and a disk of the host on which requests failed."""
    disk = found.get("host_disk")
    return [*found["alarms"], *([disk] if disk else [])]


def is_bad(found: dict[str, Any]) -> bool:
    """Whether it has failed, or lost what it had acknowledged, or something else is wrong."""
    return bool(found["failed"] or found["lost"] or alarms(found))
