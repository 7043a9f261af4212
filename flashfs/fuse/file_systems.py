"""The file systems that `up` can make, and what is on a device already."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashfs import fs_end
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import mounts
from flashfs.text import shown

DEFAULT = "ext4"
SECTOR_BYTES = 4096  # the loop device's logical sector: each request is whole pages
PIECE_BYTES = 1 << 20  # per read in a search for anything but zeros
PATIENCE_S = 20.0  # for dead mounts that other processes are about to clear away

# The file systems offered: the package that has mkfs, and what mkfs is given beside the device.
FILE_SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ext4": ("e2fsprogs", ("-q",)),
    "xfs": ("xfsprogs", ("-q",)),
    "btrfs": ("btrfs-progs", ("-q",)),
}
# What mount is given. xfs refuses a second one of the same UUID, which a clone of an image has.
OPTIONS = {"xfs": "nouuid"}
_UNITS = {"xfs": "sectors"}  # what blkid's BLOCK_SIZE is the size of; else blocks
# How to make one on `disk` itself, where mkfs cannot see the sectors of the loop device to come.
BY_HAND = {"ext4": "mkfs.ext4 -b 4096", "xfs": "mkfs.xfs -s size=4096"}


@dataclass(frozen=True, slots=True)
class Signature:
    """What blkid sees on a device: ``name`` of a file system or of something else, "" for nothing. ``block_bytes`` is
    the least that it reads and writes at once; 0 if blkid does not say."""

    name: str
    is_file_system: bool = False
    block_bytes: int = 0


def check_name(fs: str | None) -> None:
    """Raise unless ``fs`` is offered."""
    if fs is not None and fs not in FILE_SYSTEMS:
        raise UsageError(f"--fs {fs}: there is {', '.join(FILE_SYSTEMS)}")


def check_can_make(fs: str) -> None:
    """Raise unless this machine can make ``fs``."""
    if shutil.which(f"mkfs.{fs}", path=mounts.environment()["PATH"]) is None:
        raise FlashfsError(f"--fs {fs}: this machine has no mkfs.{fs}: install {FILE_SYSTEMS[fs][0]}")


def make_if_blank(device: Path, disk: Path, fs: str | None) -> tuple[str, bool]:
    """(the file system on ``device``, whether it was made now): ``fs`` or the default on a blank device, which lies on
    ``disk``. UsageError if there is another one, or anything else; nothing is ever overwritten."""
    found = signature(device)
    if not found.name:
        _make(device, disk, fs or DEFAULT)
        return fs or DEFAULT, True
    if not found.is_file_system:
        raise UsageError(f"the image holds {found.name}, which is no file system: use `flashfs mount` to see it")
    require_same(found.name, fs)
    _require_room(device, disk)
    if 0 < found.block_bytes < SECTOR_BYTES:
        made = f"; `{BY_HAND[found.name]}` makes one that does" if found.name in BY_HAND else ""
        units = _UNITS.get(found.name, "blocks")
        raise UsageError(
            f"the {found.name} on the image has {units} of {found.block_bytes} bytes, and does not fit a loop device "
            f"with sectors of {SECTOR_BYTES}: `flashfs mount` it and `mount -o loop DIR/disk MOUNTPOINT`{made}"
        )
    return found.name, False


def _require_room(device: Path, disk: Path) -> None:
    """UsageError if the file system on ``device`` ends beyond ``disk``: mount(8) would call its superblock bad."""
    with device.open("rb") as file:

        def read(offset: int, n: int) -> bytes:
            file.seek(offset)
            return file.read(n)

        found, size = fs_end.end_of(read), disk.stat().st_size
    if found is not None and found.size > size:
        raise UsageError(
            f"the {found.name} on the image takes {shown(found.size)}, and the image has {shown(size)} for the host: "
            f"`flashfs resize IMAGE {found.size}` makes it as large again"
        )


def require_same(found: str, fs: str | None) -> None:
    """UsageError if ``fs`` was asked for and something else was found."""
    if fs is not None and found != fs:
        raise UsageError(f"the image holds {found}, not {fs}: leave --fs out to mount that, or make another image")


def _holds_data(path: Path) -> bool:
    """Whether anything but zeros is there. Holes are skipped where the file reports them: `disk` does, a loop device
    and a `disk` under pyfuse3 do not."""
    fd, at = os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0
    try:
        while True:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
                end = os.lseek(fd, at, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # holes up to the end
                    return False
                raise
            while at < end:
                piece = os.pread(fd, min(PIECE_BYTES, end - at), at)
                if piece.count(0) != len(piece):
                    return True
                at += len(piece) or end - at
    finally:
        os.close(fd)


def _make(device: Path, disk: Path, fs: str) -> None:
    if _holds_data(disk):
        raise UsageError("the image holds data that is no file system: use `flashfs mount` to see it")
    check_can_make(fs)
    mkfs(f"mkfs.{fs}", *FILE_SYSTEMS[fs][1], str(device), what=f"making {fs} on {device}")


def mkfs(program: str, *arguments: str, what: str) -> None:
    """Make a file system; FlashfsError, about ``what``, if it fails.

    mkfs.btrfs looks at what each mounted loop device lies on, and fails if that is a mount whose daemon died. Such
    mounts are none of its business: it runs where it does not see them. More of them may come as it runs.
    """
    end = time.monotonic() + PATIENCE_S
    unseen: list[str] = []
    while True:
        try:
            mounts.run(*_unseen(unseen), program, *arguments, what=what)
            return
        except FlashfsError as error:
            if "mount status" not in str(error) or time.monotonic() > end:
                raise
        unseen = [str(path) for path in _over_dead_mounts()]
        time.sleep(0.01)


def _over_dead_mounts() -> Iterator[Path]:
    """Where a loop device is mounted that lies on a FUSE mount whose daemon is gone."""
    for mount in reversed(mounts.table()):
        backing = Path("/sys/block", Path(mount.source).name, "loop/backing_file")
        with suppress(OSError):  # no loop device, or detached by now
            if mounts.is_corpse(Path(os.fsdecode(backing.read_bytes().rstrip(b"\n"))).parent):
                yield mount.mountpoint


def _unseen(mountpoints: list[str]) -> list[str]:
    """What runs the rest of a command in a mount namespace of its own, without what is mounted at ``mountpoints``."""
    if not mountpoints:
        return []
    script = 'while [ "$1" != -- ]; do umount -l "$1"; shift; done; shift; exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *mountpoints, "--"]


def mount(device: Path, fs: str, mountpoint: Path) -> None:
    """Mount what is on ``device``."""
    options = ("-o", OPTIONS[fs]) if fs in OPTIONS else ()
    mounts.run("mount", "-t", fs, *options, str(device), str(mountpoint), what=f"mounting {device} at {mountpoint}")


def signature(device: Path) -> Signature:
    """What blkid sees on the device."""
    command = ["blkid", "-p", "-o", "export", str(device)]
    done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", env=mounts.environment())
    if done.returncode not in (0, 2):  # 2: nothing found
        raise FlashfsError(f"looking at {device} failed: {' '.join(done.stderr.split()) or done.returncode}")
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if "TYPE" not in values:
        table = values.get("PTTYPE")
        return Signature(f"a partition table ({table})" if table else "")
    block_bytes = values.get("BLOCK_SIZE", "")
    return Signature(
        values["TYPE"], values.get("USAGE") == "filesystem", int(block_bytes) if block_bytes.isdecimal() else 0
    )
