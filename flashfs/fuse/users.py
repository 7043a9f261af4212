"""Which process has an image open, and what keeps a mount alive that is not visible here: read from /proc each time,
nothing is stored. Only root can see what another user's process does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nandimg
from flashfs import errors
from flashfs.errors import FlashfsError
from flashfs.fuse import mounts
from flashfs.fuse.asking import Question
from nandimg.errors import ImageError, InUseError

PROC = Path("/proc")
CONNECTIONS = Path("/sys/fs/fuse/connections")  #: a folder for each FUSE mount that is alive, by minor number
NAMED_MOST = 3  #: processes that a line names
OPEN, STANDS = "with a file of it open", "whose working directory it is"
FILES_S = 2.0  #: at most, for the search for processes that have a file of a mount open
NAMES = {"/", "/disk", "/stats.json", "/smart.json", "/config.json", "/map.json", "/control", "/mark"}


@dataclass(frozen=True)
class Server:
    """A process that has ``image``, bound to ``ftl``, locked. ``serves``: it serves a FUSE mount; ``device`` is that
    mount's "major:minor", None if the kernel does not report it."""

    pid: int
    image: Path
    ftl: str | None
    serves: bool
    device: str | None


def servers() -> list[Server]:
    """Every process that this one can see with an image of its own, in the order of process numbers."""
    return [found for pid in lockers() if (found := server(pid)) is not None]


def lockers() -> list[int]:
    """Processes that have locked some file exclusively, as images are."""
    lines = [line.split() for line in (PROC / "locks").read_text().splitlines()]
    return sorted({int(words[4]) for words in lines if words[1] == "FLOCK" and words[3] == "WRITE"} - {0, -1})


def server(pid: int) -> Server | None:
    """The process, if it has an image of its own. May wait for ever if that lies on a mount that does not answer."""
    image = ftl = device = None
    serves = False
    for descriptor, path in _files(pid):
        with suppress(OSError, ImageError):
            told = (PROC / str(pid) / "fdinfo" / descriptor).read_text()
            if path == "/dev/fuse":
                serves = True
                device = next((f"0:{int(line.split()[1])}" for line in told.splitlines()
                               if line.startswith("fuse_connection:")), device)  # fmt: skip
            elif "FLOCK" in told and "WRITE" in told and not path.startswith("/memfd:"):
                ftl = nandimg.inspect(PROC / str(pid) / "fd" / descriptor).ftl or None
                image = Path(path)
    return None if image is None else Server(pid, image, ftl, serves, device)


def _files(pid: int) -> Iterator[tuple[str, str]]:
    """(descriptor, path) of each open file of a process; none of one that is gone, or another user's."""
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                yield entry.name, str(entry.readlink())


def _links(pid: int) -> Iterator[tuple[str, str]]:
    """(name in /proc/PID, path) of each open file of a process, and of its working directory."""
    for descriptor, path in _files(pid):
        yield f"fd/{descriptor}", path
    with suppress(OSError):
        yield "cwd", str((PROC / str(pid) / "cwd").readlink())


# --- what keeps a mount alive


def is_alive(device: str | None) -> bool | None:
    """Whether the FUSE mount ``device`` ("major:minor") is still alive somewhere; None if that cannot be seen."""
    if device is None or not CONNECTIONS.is_mount():
        return None
    return (CONNECTIONS / device.partition(":")[2]).exists()


def holders(device: str | None, image: Path | str, daemon: int) -> list[str]:
    """In words, what keeps the mount ``device`` of ``image`` alive beside its ``daemon``: mounts of it at other places,
    mount namespaces that have it, open files. [] if nothing can be seen."""
    here = [one.mountpoint for one in mounts.table() if _is(one, device, image)]
    out = [f"the mount at {place}" for place in here]
    out += _namespaces(lambda mount: _is(mount, device, image), daemon)
    return out or openers(device, daemon)


def openers(device: str | None, daemon: int, place: Path | None = None) -> list[str]:
    """In words, which processes have a file of the mount ``device`` open, beside its ``daemon``, or stand in it. Of a
    mount that is still here, ``place`` is its mountpoint."""
    found = _openers(device, daemon, place)
    return [f"{_named(pids)}, {how}" for how, pids in found.items()]


def elsewhere(source: str) -> list[str]:
    """In words, which other mount namespaces have a file system of the device ``source``."""
    return _namespaces(lambda mount: mount.source == source)


def _is(mount: mounts.Mount, device: str | None, image: Path | str) -> bool:
    if mount.fs_type != mounts.FS_TYPE:
        return False
    return mount.source == str(image) if device is None else mount.device == device


def _namespaces(is_it: Callable[[mounts.Mount], bool], daemon: int = 0) -> list[str]:
    """In words, the processes of each other mount namespace that has such a mount."""
    spaces: dict[str | None, list[int]] = {}
    for pid in _processes():
        spaces.setdefault(_namespace(pid), []).append(pid)
    found = [pids for space, pids in spaces.items() if space not in (None, _namespace("self")) and _has(pids, is_it)]
    others = [[pid for pid in pids if pid != daemon] or pids for pids in found]
    return [f"{_named(pids)}, in another mount namespace" for pids in others]


def _has(pids: list[int], is_it: Callable[[mounts.Mount], bool]) -> bool:
    """Whether there is such a mount for these processes, which share all of theirs."""
    for pid in pids:
        with suppress(OSError):  # it is gone
            return any(is_it(one) for one in mounts.table(pid))
    return False


def _namespace(process: int | str) -> str | None:
    try:
        return str((PROC / str(process) / "ns/mnt").readlink())
    except OSError:
        return None


def _openers(device: str | None, daemon: int, place: Path | None) -> dict[str, list[int]]:
    """Processes with a file of the mount open, or their working directory in it, by how. stat(2) of a file may ask the
    daemon, so the search takes FILES_S at most."""
    if device is None:
        return {}
    names = NAMES if place is None else {str(place / name.lstrip("/")) for name in NAMES}
    major, _, minor = device.partition(":")
    wanted = os.makedev(int(major), int(minor))
    found: dict[int, str] = {}

    def look() -> None:
        for pid in _processes():
            for link, path in _links(pid):
                with suppress(OSError):
                    if path in names and (PROC / str(pid) / link).stat().st_dev == wanted:
                        found[pid] = STANDS if link == "cwd" else OPEN
                        break

    Question(look).ended(FILES_S)
    found.pop(daemon, None)
    return {how: pids for how in (OPEN, STANDS) if (pids := [pid for pid, its in found.items() if its == how])}


def _processes() -> Iterable[int]:
    return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def _named(pids: list[int]) -> str:
    """The processes, with their names."""
    more = len(pids) - NAMED_MOST
    said = ", ".join(f"{pid} ({_command(pid)})" for pid in pids[:NAMED_MOST])
    return f"process{'es' if len(pids) > 1 else ''} {said}{f' and {more} more' if more > 0 else ''}"


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "gone"


def by(held: list[str]) -> str:
    """What ``holders`` or ``openers`` found, as part of a line."""
    return " and ".join(held) or "something that cannot be seen from here"


# --- the message about an image in use


def one_line(error: BaseException) -> tuple[str, int]:
    """As ``flashfs.errors.one_line``; of an image that is in use, who has it and what ends that."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, InUseError):
        return in_use(error.path, error.pid), 1
    return errors.one_line(error)


def in_use(image: Path, pid: int | None) -> str:
    """One line about an image that the process ``pid`` has: what that is, and what ends it."""
    if pid is None:
        return f"{image}: in use by another process, which the system does not name"
    try:
        return f"{image}: in use by process {pid}, {_what(image, pid)}"
    except (OSError, FlashfsError):
        return f"{image}: in use by process {pid}: try again when that has ended"


def _what(image: Path, pid: int) -> str:
    from flashfs.fuse import nbd_servers  # here: a mount does not need it

    served = next((one for one in nbd_servers.servers() if one.pid == pid), None)
    if served is not None:
        return f"served at {served.uri}: `kill {pid}` ends that"
    found = server(pid)
    if found is None or not found.serves:
        return f"{_command(pid)}, which works on it: try again when that has ended"
    place = next((one.mountpoint for one in mounts.table() if _is(one, found.device, found.image)), None)
    if place is None:
        held = by(holders(found.device, found.image, pid))
        return f"whose mount is not here any more, and held by {held}: it ends when that is over"
    loops = {str(loop) for loop in mounts.loops_of(place / "disk")}
    upper = next((one.mountpoint for one in mounts.table() if one.source in loops), None)
    if upper is not None or place.parent == mounts.RUN:
        return f"up at {upper or place}: `flashfs down {upper or place}` ends that"
    return f"mounted at {place}: `flashfs umount {place}` ends that"
