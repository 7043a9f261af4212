"""Where images that are up are mounted: a directory each under /run/flashfs, and beside it a record of the image.

The directory has the name of the image's UUID, which copies of a file share: another file with the same UUID gets a
directory of its own, ``UUID-2``. An image is identified by its device and inode. The record, ``NAME.json``, has these,
the path, the options that it was brought up with, and the mountpoints of its file system, so that `down` finds
everything even if half of it is gone. Whether anything of that is still there is read from the system each time.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

from flashfs.fuse import mounts

RUN = mounts.RUN


@dataclass(frozen=True)
class Home:
    """One image that is up, or was, or is coming up. ``path`` is where its flashfs mount is; ``options`` are those of
    `up` by name, with what the mount made of them."""

    path: Path
    image: Path
    file: tuple[int, int]  # device and inode
    options: dict[str, Any]
    mountpoints: tuple[Path, ...] = ()

    @property
    def record(self) -> Path:
        return record_of(self.path)

    def save(self) -> None:
        """Write the record, by a rename: whole or not at all."""
        said = {
            "image": str(self.image), "device": self.file[0], "inode": self.file[1], "options": self.options,
            "mountpoints": [str(one) for one in self.mountpoints],
        }  # fmt: skip
        new = self.record.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(0o600)
        new.write_text(json.dumps(said))
        new.replace(self.record)

    def at(self, mountpoint: Path) -> Home:
        """The same, with its file system at ``mountpoint`` too."""
        return replace(self, mountpoints=(*(one for one in self.mountpoints if one != mountpoint), mountpoint))

    def away_from(self, mountpoint: Path) -> Home:
        return replace(self, mountpoints=tuple(one for one in self.mountpoints if one != mountpoint))


def record_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def file_of(image: Path) -> tuple[int, int]:
    """Which file it is, whatever its name: device and inode."""
    found = image.stat()
    return found.st_dev, found.st_ino


def all_homes() -> list[Home]:
    """Those that have a record that can be read."""
    found = [read(record.with_suffix("")) for record in sorted(RUN.glob("*.json"))]
    return [home for home in found if home is not None]


def read(path: Path) -> Home | None:
    """What the record of the home at ``path`` says; None if there is none."""
    try:
        said = json.loads(record_of(path).read_text())
        file, options = (int(said["device"]), int(said["inode"])), dict(said["options"])
        return Home(path, Path(said["image"]), file, options, tuple(Path(one) for one in said["mountpoints"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def claim(image: Path, uuid: UUID) -> tuple[Home, bool]:
    """The home of ``image``, and whether it was made now. Its directory is root's whatever the umask, as is the one
    that holds them all. Never returns the home of another file, even if that file is gone."""
    file = file_of(image)
    with _alone():
        for home in all_homes():
            if home.file == file:
                if mounts.at(home.path) is None:
                    home.path.mkdir(mode=0o700, exist_ok=True)
                return replace(home, image=image), False
        path = next(one for one in _names(uuid) if not record_of(one).exists() and mounts.at(one) is None)
        path.mkdir(mode=0o700, exist_ok=True)
        home = Home(path, image, file, {})
        home.save()
        return home, True


def _names(uuid: UUID) -> Iterator[Path]:
    yield RUN / str(uuid)
    for number in count(2):
        yield RUN / f"{uuid}-{number}"


def remove(path: Path) -> None:
    """Remove the directory and the record of an image that is down, and RUN if they were the last. One that has a mount
    stays."""
    if not RUN.exists():
        return
    with _alone():
        if mounts.at(path) is not None:
            return
        with suppress(OSError):
            path.rmdir()
        record_of(path).unlink(missing_ok=True)
        with suppress(OSError):
            RUN.rmdir()


@contextmanager
def turn(image: Path) -> Iterator[None]:
    """`up` and `down` of one image take turns, by a POSIX lock: the daemon that `up` forks does not inherit it, and it
    does not conflict with the daemon's own lock, flock(2)."""
    try:
        fd = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or another user's: the work inside reports it
        yield
        return
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _alone() -> Iterator[None]:
    """Keeps other processes out while homes are searched and made. RUN exists inside."""
    held = _lock()
    try:
        yield
    finally:
        os.close(held)


def _lock() -> int:
    """A locked descriptor of RUN, which is made if need be: ``remove`` of the last home removes it."""
    while True:
        RUN.mkdir(mode=0o755, exist_ok=True)
        try:
            held = os.open(RUN, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(held), RUN.stat()):
                os.fchmod(held, 0o755)  # one that was made under another umask
                return held
        except FileNotFoundError:
            pass
        os.close(held)
