"""What the shell completes where a value stands: names, what is mounted, the views of an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """One of these."""

    def complete(incomplete: str) -> list[str]:
        return list(known)

    return complete


def ftls(incomplete: str) -> list[str]:
    """The name of an FTL, ours or an installed one."""
    from flashfs.ftl import SCHEMES, installed

    return [*SCHEMES, *installed()]


def ftl_list(incomplete: str) -> list[str]:
    """The last name of a list with commas."""
    before, comma, _ = incomplete.rpartition(",")
    named = before.split(",")
    return [before + comma + name for name in ftls("") if name not in named]


def presets(incomplete: str) -> list[str]:
    """The name of a chip; those for tests only where one of them has begun."""
    from nandimg.presets import PRESETS

    return [one.name for one in PRESETS.values() if incomplete or not one.for_tests]


def papers(incomplete: str) -> list[str]:
    """A paper whose figures can be made again."""
    from flashfs.reproduce import figure

    return list(dict.fromkeys(one.paper for one in figure.find([figure.OURS]).values()))


def workloads(incomplete: str) -> list[str]:
    """The name of a workload."""
    from flashfs.replay.workloads import WORKLOADS

    return list(WORKLOADS)


def formats(incomplete: str) -> list[str]:
    """The name of a trace format."""
    from flashfs.replay.traces import FORMATS

    return [one.name for one in FORMATS]


def mounted(incomplete: str) -> list[str]:
    """Where `flashfs mount` mounted something."""
    from flashfs.fuse import mounts

    return _spelled((one.mountpoint for one in mounts.table() if one.fs_type == mounts.FS_TYPE), incomplete)


def brought_up(incomplete: str) -> list[str]:
    """Where `flashfs up` mounted a file system."""
    from flashfs.fuse import mounts

    images = [one.mountpoint / "disk" for one in mounts.table() if one.fs_type == mounts.FS_TYPE]
    places = (place for disk in images for loop in mounts.loops_of(disk) for place in mounts.mounts_of(loop))
    return _spelled(places, incomplete)


def either(incomplete: str) -> list[str]:
    """Where one of the two did."""
    return [*brought_up(incomplete), *mounted(incomplete)]


def views(ctx: typer.Context, incomplete: str) -> list[str]:
    """A view that the image has, or the mount, which the command line names."""
    from flashfs.errors import FlashfsError
    from flashfs.fuse import mounts
    from flashfs.inspect.views import names
    from nandimg import NandimgError, inspect

    image = Path(ctx.params["image"])
    try:
        place = mounts.absolute(image)
        mount = mounts.find(place) if mounts.at(place) or place.is_dir() else None
        return names(inspect(image).ftl if mount is None else mounts.text(mount, "config.json")["ftl"])
    except (OSError, ValueError, FlashfsError, NandimgError):
        return names("")


def _spelled(places: Iterable[Path], incomplete: str) -> list[str]:
    """As the path has begun: from the root, or else from the present folder where the place is below it."""
    here = Path.cwd()
    relative = not incomplete.startswith("/")
    return [str(one.relative_to(here)) if relative and one.is_relative_to(here) else str(one) for one in places]
