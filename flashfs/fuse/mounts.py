"""What Linux has mounted where, and what is left behind when a daemon dies."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashfs.errors import FlashfsError, UsageError

FS_TYPE = "fuse.flashfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo; ``device`` is "major:minor"."""

    mountpoint: Path
    fs_type: str
    source: str
    device: str


def table() -> list[Mount]:
    """Everything that is mounted, oldest first."""
    out = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (fs_type, source, *_) = left.split(" "), right.split(" ")
        out.append(Mount(Path(unescape(fields[4])), fs_type, unescape(source), fields[2]))
    return out


def unescape(text: str) -> str:
    """The kernel writes blank, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def at(mountpoint: Path) -> Mount | None:
    """What is mounted at ``mountpoint`` (the last of several), or None."""
    return next((mount for mount in reversed(table()) if mount.mountpoint == mountpoint), None)


def absolute(mountpoint: Path) -> Path:
    """The path as the mount table has it. Only its parent is resolved: a corpse cannot be looked into."""
    path = Path(os.path.abspath(mountpoint))  # noqa: PTH100 - Path.resolve() asks the mountpoint itself
    try:
        return path.resolve(strict=True)
    except OSError:
        return path.parent.resolve() / path.name


def options(image: Path, *, allow_other: bool) -> list[str]:
    """The mount options of each server. The image's path is the mount's source, for people and for `findmnt`."""
    source = str(image).replace("\\", "\\\\").replace(",", "\\,")
    out = [f"fsname={source}", "subtype=flashfs"]
    return [*out, "allow_other"] if allow_other else out


def allow_requests(mountpoint: Path, count: int) -> None:
    """Let the kernel have ``count`` asynchronous requests under way. Best effort: fusectl may not be mounted."""
    mount = at(mountpoint)
    if mount is not None:
        control = Path("/sys/fs/fuse/connections", mount.device.partition(":")[2])
        with suppress(OSError):
            (control / "max_background").write_text(str(count))
            (control / "congestion_threshold").write_text(str(count * 3 // 4))
