"""The options that a mount was made with, as JSON has them; and whether those that are asked for now are the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.fuse import mounts, up_registry

if TYPE_CHECKING:
    from flashfs.fuse.daemon import Request

#: what cannot be changed on a mount in use, by the names of the command line
OPTIONS = (
    "ftl", "opt", "dram", "server", "sync", "plp", "realtime", "allow_other", "log", "fault", "record",
)  # fmt: skip


def of(request: Request) -> dict[str, Any]:
    """What was asked for. FTL and server may be the daemon's choice, and are not in it."""
    plain = {name: getattr(request, name) for name in ("dram", "sync", "plp", "realtime", "allow_other")}
    paths = {name: getattr(request, name) for name in ("log", "record")}
    return {**plain, **{name: path and str(path) for name, path in paths.items()}, "opt": request.options}


def differing(has: Mapping[str, Any], request: Request, given: Mapping[str, Any]) -> str | None:
    """The first of the options ``given``, as typed, that differs from what the mount ``has``; None if none does."""
    asked = {**of(request), "ftl": request.ftl, "server": request.server}
    for name in OPTIONS:
        if name not in given:
            continue
        if name == "opt":
            same = isinstance(has.get(name), dict) and request.options.items() <= has[name].items()
        elif name == "server" and request.server == "auto":
            same = True
        else:  # faults count from the start of a mount, so they never match
            same = name != "fault" and name in has and has[name] == asked[name]
        if not same:
            return _worded(name, given[name])
    return None


def _worded(name: str, value: Any) -> str:
    """An option as it was typed."""
    option = f"--{name.replace('_', '-')}"
    values = value if isinstance(value, list | tuple) else [value]
    return option if values == [True] else " ".join(f"{option} {one}" for one in values)


def check_mounted(request: Request, given: Mapping[str, Any]) -> None:
    """UsageError unless the image is mounted at the mountpoint with the options ``given``. For mount(8)'s remount,
    which can change nothing."""
    place = request.mountpoint
    mount = mounts.at(place)
    if mount is None or mount.fs_type != mounts.FS_TYPE:
        raise UsageError(f"{place} is no flashfs mount: {mounts.instead(place, mount)}")
    config = mounts.text(place, "config.json")
    if not _is_same(request, mount):
        raise UsageError(f"{place}: {mount.source} is mounted there, and not {request.image}")
    word = differing({**config["asked"], "ftl": config["ftl"], "server": config["server"]}, request, given)
    if word is not None:
        raise UsageError(
            f"{word}: {request.image} was mounted otherwise, and a remount cannot change that: "
            f"`flashfs umount {place}`, and mount it again"
        )


def _is_same(request: Request, mount: mounts.Mount) -> bool:
    if str(request.image) == mount.source:
        return True
    try:
        return up_registry.file_of(request.image) == up_registry.file_of(Path(mount.source))
    except OSError:
        return False
