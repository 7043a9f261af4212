"""The directory that a mounted device shows, the same under each server: `disk`, and what it says about itself.

`disk` is the block file. `stats.json`, `smart.json`, `config.json` and `map.json` are texts, made when one is opened: a
reader sees one moment of the device however long it reads, and the next open sees a newer one. docs/watching.md says
what is in them. `control` is such a text too, and can be written to (flashfs/fuse/control.py); so is `mark`, if
the mount makes a tape.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flashfs.engine.views.block_map import joined
from flashfs.fuse import mounts
from flashfs.fuse.control import Control, Tell
from flashfs.fuse.host_disk import HostDisk

if TYPE_CHECKING:
    from flashfs.device import Device
    from flashfs.fuse.write_log import Tape
    from flashfs.replay.trace_writer import Recording

ROOT = 1  # FUSE's inode number for the root of every mount
DISK = 2
SECTOR_BYTES = 512  # the unit of st_blocks


@dataclass(frozen=True, slots=True)
class Attr:
    """What stat(2) shows of a node; ``size`` in bytes, times in ns since the epoch."""

    inode: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    block_bytes: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int

    @property
    def blocks(self) -> int:
        """Sectors of 512 bytes, as st_blocks counts them."""
        return -(-self.size // SECTOR_BYTES)


@dataclass(frozen=True)
class About:
    """What a daemon knows of its mount: when `disk` last changed before it, in ns since the epoch (None: perhaps now),
    and the options that it was ``asked`` for, which config.json shows."""

    changed_ns: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)


class Tree:
    """Names, inode numbers and attributes of one mounted device, and the texts beside `disk`.

    Only the holder of the server's lock may call ``text`` and ``obey``, which use the device; the rest does not.
    ``traffic()`` is what the server has been asked for since it started, counted as the host counts: {"requests":
    {"read", "write", "trim", "flush"}, "bytes": {"read", "write", "trim"}, "in_flight": requests begun and not ended}.
    ``transport()`` is how they come: by io_uring, or by read(2) of /dev/fuse.
    """

    def __init__(
        self, device: Device, mountpoint: Path, server: str, *, shared: bool, traffic: Callable[[], dict[str, Any]],
        recorder: Recording | Tape | None = None, transport: Callable[[], str] = lambda: "read",
        about: About | None = None,
    ) -> None:  # fmt: skip
        about = about or About()
        self.device = device
        self._traffic = traffic
        self._started_s = time.monotonic()
        self._host_disk = HostDisk(device.path)
        self._disk = mountpoint / "disk"
        self.device_number: str | None = None  # "major:minor" of the mount
        self._uid, self._gid = os.getuid(), os.getgid()
        self._time_ns = time.time_ns()
        changed_ns = self._time_ns if about.changed_ns is None else about.changed_ns
        self._atime_ns = self._mtime_ns = self._ctime_ns = changed_ns
        # What the daemon adds to the configuration: `umount` waits for this process, and users ask which one serves.
        self._mount: dict[str, Any] = {"mountpoint": str(mountpoint), "server": server, "pid": os.getpid()}
        self._mount["record"] = str(recorder.path) if recorder else None
        self._mount["asked"] = dict(about.asked)
        self._recorder = recorder
        self._disk_mode = stat.S_IFREG | (0o660 if shared else 0o600)
        self._text_mode = stat.S_IFREG | (0o444 if shared else 0o400)
        self._root_mode = stat.S_IFDIR | (0o755 if shared else 0o700)
        self._sources: dict[str, Callable[[], dict[str, Any]]] = {
            "stats.json": self._stats,
            "smart.json": lambda: {**device.smart(), "host_disk": self._host_disk.line()},
            "config.json": lambda: {**device.config(), **self._mount, "transport": transport()},
            "map.json": device.block_map,
        }
        control = Control(device)
        self._takers: dict[str, Callable[[bytes, Tell], tuple[bytes, bool]]] = {"control": control.obey}
        self._sources["control"] = control.state
        if recorder is not None and hasattr(recorder, "mark"):  # a tape's
            self._takers["mark"] = partial(_mark, cast("Tape", recorder))
            self._sources["mark"] = recorder.figures
        self._taken_mode = stat.S_IFREG | (0o660 if shared else 0o600)
        self._text_sizes: dict[int, int] = {}
        self._names = ["disk", *self._sources]
        self._inodes = {name.encode(): DISK + index for index, name in enumerate(self._names)}

    def inode(self, name: bytes) -> int | None:
        """The inode number of ``name`` in the root directory, or None."""
        return ROOT if name in (b".", b"..") else self._inodes.get(name)

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """(name, inode number) of everything in the root directory, always in the same order."""
        yield from self._inodes.items()

    def errno_of(self, operation: str, offset: int, error: BaseException) -> int:
        """The errno that the host sees for what ended a request of `disk`. smart.json says it too if the disk below the
        image was to blame, and the log says it in words."""
        return self._host_disk.errno_of(operation, offset, error)

    def mounted(self) -> None:
        """Call once mounted. The path may change, and the mount may move; its device number stays."""
        mount = mounts.at(self._disk.parent)
        self.device_number = mount.device if mount is not None else None

    def left(self) -> None:
        """Call once the server has unmounted: it does so by the mount's first path, where it may be no more."""
        if self.device_number is not None and self.device.path is not None:
            mounts.leave(self.device_number, str(self.device.path))

    def is_used(self) -> bool:
        """True if a loop device is on `disk`, which must not be emptied by mistake then."""
        return bool(self.users())

    def users(self) -> list[Path]:
        """The loop devices on `disk`."""
        return mounts.loops_of(self._disk, self.device_number)

    def is_text(self, inode: int) -> bool:
        """True for the files beside `disk`."""
        return DISK < inode < DISK + len(self._names)

    def text(self, inode: int) -> bytes:
        """The JSON of a text, made now."""
        made = encoded(self._sources[self._names[inode - DISK]]())
        self._text_sizes[inode] = len(made)
        return made

    def takes_commands(self, inode: int) -> bool:
        """True for the files that are written to."""
        return self.is_text(inode) and self._names[inode - DISK] in self._takers

    def obey(self, inode: int, command: bytes, tell: Tell) -> tuple[bytes, bool]:
        """(the answer to what was written to such a file, whether it was done); an OSError says why it was not.
        ``tell`` gets the answer for reads that come before the command is done."""
        return self._takers[self._names[inode - DISK]](command, tell)

    def _stats(self) -> dict[str, Any]:
        uptime_s = round(time.monotonic() - self._started_s, 6)
        made = {**self.device.stats(), "server": {**self._traffic(), "uptime_s": uptime_s}}
        return {**made, "record": self._recorder.figures()} if self._recorder else made

    def attr(self, inode: int) -> Attr | None:
        """The attributes of a node, or None if there is no such node.

        A text's size is that of the last one made, and 0 before that, as in /proc: making one for each `ls -l` would
        cost a walk over all blocks.
        """
        if inode == DISK:
            times = self._atime_ns, self._mtime_ns, self._ctime_ns
            return self._attr(inode, self._disk_mode, self.device.size, times=times)
        if inode == ROOT:
            return self._attr(inode, self._root_mode, 0, links=2)
        if self.is_text(inode):
            mode = self._taken_mode if self.takes_commands(inode) else self._text_mode
            return self._attr(inode, mode, self._text_sizes.get(inode, 0))
        return None

    def _attr(
        self, inode: int, mode: int, size: int, links: int = 1, times: tuple[int, int, int] | None = None
    ) -> Attr:
        times = times or (self._time_ns, self._time_ns, self._time_ns)
        return Attr(inode, mode, links, self._uid, self._gid, size, self.device.page_bytes, *times)

    def note_change(self) -> None:
        """`disk` was written, trimmed or remapped, now: programs that copy what changed read its times."""
        self._mtime_ns = self._ctime_ns = time.time_ns()

    def set_times(self, atime_ns: int | None, mtime_ns: int | None) -> None:
        """What utimensat(2) asks of `disk`, until it changes or the mount ends; None leaves a time as it is."""
        self._atime_ns = self._atime_ns if atime_ns is None else atime_ns
        self._mtime_ns = self._mtime_ns if mtime_ns is None else mtime_ns
        self._ctime_ns = time.time_ns()


def _mark(tape: Tape, data: bytes, _: Tell) -> tuple[bytes, bool]:
    """Put what was written to `mark` on the tape."""
    tape.mark(data)
    return encoded(tape.figures()), True


def encoded(found: dict[str, Any]) -> bytes:
    """``found`` as JSON, one field per line. Arrays are converted in one piece, not item by item: the host waits."""
    arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in found.items() if name not in arrays}
    made = json.dumps(plain, indent=2, default=str).encode()
    if arrays:
        lines = [b'  "%s": [%s]' % (name.encode(), joined(array)) for name, array in arrays.items()]
        made = made.removesuffix(b"\n}") + b",\n" + b",\n".join(lines) + b"\n}"
    return made + b"\n"
