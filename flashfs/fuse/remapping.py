"""A remap on request: on a mount through its `disk`, on an image that is not mounted by opening it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import nandimg
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import is_registered, scheme
from flashfs.fuse import commands, host_disk, mounts


def remap(
    where: Path, target: int, source: int, length: int, *, move: bool = False, ftl: str | None = None,
    trust: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The ``length`` bytes at ``target`` read what those at ``source`` do; durable when this returns.

    ``where`` is a mount point or an image. Returns what was asked, and how many pages of the target were ``remapped``
    and how many ``copied``; on a mount, remaps of others meanwhile are counted too. UsageError for ranges that
    leave the device, or if ``where`` is neither.
    """
    place = mounts.absolute(where)
    mount = mounts.at(place)
    if mount is not None and mount.fs_type == mounts.FS_TYPE:
        page_bytes, before, after, name = _on_mount(place, target, source, length, move)
    elif mounts.is_folder(place):
        raise UsageError(f"{where} is no flashfs mount and no image: {mounts.instead(place, mount)}")
    else:
        if not nandimg.inspect(where).ftl:  # to open it would bind it
            raise UsageError(f"{where}: blank, there is nothing to remap: mount it with --ftl, and write to it first")
        with host_disk.in_words(where), Device.open(where, ftl=ftl, trust=trust) as device:
            before = device.stats()
            device.remap(target, source, length, move=move)
            device.flush()
            page_bytes, after, name = device.page_bytes, device.stats(), device.ftl
    pages = -(-(target + length) // page_bytes) - target // page_bytes if length and target != source else 0
    done = _remapped(after, name) - _remapped(before, name)
    asked = {"target": target, "source": source, "length": length, "move": move}
    return {**asked, "ftl": name, "pages": pages, "remapped": done, "copied": pages - done}


def _on_mount(
    place: Path, target: int, source: int, length: int, move: bool
) -> tuple[int, dict[str, Any], dict[str, Any], str]:
    """(bytes of a page, statistics before, statistics after, name of the FTL)."""
    config, before = mounts.text(place, "config.json"), mounts.text(place, "stats.json")
    mounts.ask(place, lambda: _send(place, config["server"], target, source, length, move), timeout_s=None)
    return config["geometry"]["page_bytes"], before, mounts.text(place, "stats.json"), config["ftl"]


def _send(place: Path, server: str, target: int, source: int, length: int, move: bool) -> None:
    """The remap, and a flush."""
    fd = os.open(place / "disk", os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        if max(target, source) + length > size:
            at = max(target, source)
            raise UsageError(f"offset {at}, length {length}: the device has {size} bytes")
        try:
            commands.remap(fd, source, target, length, move)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise FlashfsError(
                    f"{place}: this image's remaps are atomic, and this one cannot be (the log of the mount says why): "
                    "use whole pages, 256 at most, that hold something and do not overlap"
                ) from None
            if error.errno != errno.ENOTTY:
                raise
            raise FlashfsError(
                f"{place}: served by {server}, which has no remap: use `flashfs mount --server native`"
            ) from None
        os.fsync(fd)
    finally:
        os.close(fd)


def _remapped(stats: dict[str, Any], ftl: str) -> int:
    """Pages that were remapped and not copied, from the statistics."""
    if not (is_registered(ftl) and scheme(ftl).remaps):
        return 0
    refused = sum(n for name, n in stats["scheme"].items() if name.startswith("remap_refused"))
    return int(stats["host"]["remap"] - refused)
