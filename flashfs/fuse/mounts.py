"""What Linux has mounted where, and what is left behind when a daemon dies."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import asking, nbd_servers

T = TypeVar("T")

FS_TYPE = "fuse.flashfs"
RUN = Path("/run/flashfs")  #: where the mounts of `up` are
DETACH_S = 5.0  #: within which a loop device is detached
MOMENT_S = 2.0  #: for which a mount may be busy although no process is seen to hold it
LINKS_MOST = 40  #: that Linux follows
TURN_S = 120.0  #: for which a mount waits for another one at its place


class BusyError(FlashfsError):
    """A process has a file of the mount open or its working directory there, or looks at it just now."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of a process's mountinfo; ``device`` is "major:minor", ``root`` the part of the file system there."""

    mountpoint: Path
    fs_type: str
    source: str
    device: str
    root: str = "/"


def table(process: int | str = "self") -> list[Mount]:
    """Everything that is mounted for a process, oldest first. OSError if it is gone, or another user's."""
    out = []
    for line in os.fsdecode(Path("/proc", str(process), "mountinfo").read_bytes()).split("\n")[:-1]:
        left, _, right = line.partition(" - ")
        fields, (fs_type, source, *_) = left.split(" "), right.split(" ")
        out.append(Mount(Path(unescape(fields[4])), fs_type, unescape(source), fields[2], unescape(fields[3])))
    return out


def unescape(text: str) -> str:
    """The kernel writes blank, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def at(mountpoint: Path) -> Mount | None:
    """What is mounted at ``mountpoint`` (the last of several), or None."""
    return next((mount for mount in reversed(table()) if mount.mountpoint == mountpoint), None)


def find(mountpoint: Path) -> Path:
    """The directory that has the texts: ``mountpoint`` itself, or, where `flashfs up` put a file system, that of the
    device below it. UsageError if neither is a flashfs mount."""
    mount = at(mountpoint)
    if mount is not None and mount.source.startswith("/dev/loop"):
        backing = Path("/sys/block", Path(mount.source).name, "loop/backing_file")
        try:
            below = Path(os.fsdecode(backing.read_bytes().rstrip(b"\n"))).parent
        except FileNotFoundError:
            below = mountpoint
        mountpoint, mount = below, at(below)
    if mount is None or mount.fs_type != FS_TYPE:
        raise UsageError(f"{mountpoint} is no flashfs mount: {instead(mountpoint, mount)}")
    return mountpoint


def around(path: Path) -> Mount | None:
    """The flashfs mount that ``path`` lies in, without being its mountpoint; None if it lies in none. Do not
    access what is in one without need: its daemon may not answer."""
    return next((one for one in table() if one.fs_type == FS_TYPE and one.mountpoint in path.parents), None)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a directory or in a flashfs mount, and so no image."""
    return at(path) is not None or around(path) is not None or path.is_dir()


def of_image(path: Path) -> Path | None:
    """Where that image is mounted, an absolute path; None if it is not."""
    return next((one.mountpoint for one in table() if one.fs_type == FS_TYPE and one.source == str(path)), None)


def instead(path: Path, mount: Mount | None) -> str:
    """What is at a path that was named as a mountpoint and is none; for an image, where that is mounted."""
    if mount is not None:
        return f"{mount.fs_type} of {mount.source} is mounted there"
    outer = around(path)
    if outer is not None:
        return f"it is in the mount at {outer.mountpoint}: name that"
    if not path.is_file():
        return "nothing is mounted there"
    of_it = [one for one in table() if one.fs_type == FS_TYPE and one.source == str(path)]
    loops = {str(loop) for one in of_it for loop in loops_of(one.mountpoint / "disk")}
    upper = [one for one in table() if one.source in loops]
    if not of_it and (server := nbd_servers.of(path)) is not None:
        return f"it is an image, which `flashfs nbd` serves at {server.uri}: `kill {server.pid}` ends that"
    if not of_it:
        return "it is a file, and mounted nowhere"
    return f"it is an image, which is mounted at {' and '.join(str(one.mountpoint) for one in upper or of_it)}"


def absolute(path: Path) -> Path:
    """The path as the mount table has it, without links. Does not access a flashfs mount on the way: its daemon may
    not answer, or be gone. UsageError in a folder that was deleted."""
    ours = {mount.mountpoint for mount in table() if mount.fs_type == FS_TYPE}
    done, rest, links = Path("/"), list(whole(path).parts), 0
    while rest:
        done = done.parent if rest[0] == ".." else done / rest[0]  # the first is "/"
        del rest[0]
        if done in ours and ".." not in (inside := Path(os.path.normpath("/".join(rest)))).parts:
            return done / inside
        target = _target(done) if links < LINKS_MOST else None
        if target is not None:
            links += 1
            done, rest = done.parent, [*target.parts, *rest]
    return done.joinpath(*rest)


def whole(path: Path) -> Path:
    """``path`` from the root on. UsageError if it begins in the present folder, and that was deleted."""
    if path.is_absolute():
        return path
    try:
        return Path.cwd() / path
    except FileNotFoundError:
        raise UsageError(f"{path}: the present folder was deleted: use a path that begins with /") from None


def require_other(option: str, path: Path | None, image: Path) -> None:
    """UsageError if the file of an option, which will be written, is the image, by whatever name."""
    same = False
    with suppress(OSError):  # one of them is not there
        same = path is not None and path.samefile(image)
    if same:
        raise UsageError(f"{option} {path}: this is the image itself; use the name of another file")


def _target(path: Path) -> Path | None:
    """Where a link leads; None for what is no link, or cannot be read."""
    try:
        return path.readlink()
    except OSError:
        return None


def options(image: Path | str, *, allow_other: bool) -> list[str]:
    """The mount options of each server. The image's path is the mount's source, for people and for `findmnt`."""
    source = str(image).replace("\\", "\\\\").replace(",", "\\,")
    out = [f"fsname={source}", "subtype=flashfs"]
    return [*out, "allow_other"] if allow_other else out


@contextmanager
def telling(mountpoint: Path) -> Iterator[None]:
    """Around the mounting of any server: what libfuse and fusermount3 say on stderr becomes the error's one line."""
    check_fuse()
    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except (RuntimeError, OSError) as error:
            said.seek(0)
            lines = said.read().decode(errors="replace").split("\n")
            why = "; ".join(line.strip() for line in lines if line.strip()) or str(error)
            raise FlashfsError(f"cannot mount at {mountpoint}: {why}") from None
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def allow_requests(mountpoint: Path, count: int) -> None:
    """Let the kernel have ``count`` asynchronous requests under way. Best effort: fusectl may not be mounted."""
    mount = at(mountpoint)
    if mount is not None:
        control = Path("/sys/fs/fuse/connections", mount.device.partition(":")[2])
        with suppress(OSError):
            (control / "max_background").write_text(str(count))
            (control / "congestion_threshold").write_text(str(count * 3 // 4))


def check_fuse() -> None:
    """Raise unless this machine has FUSE."""
    if not Path("/dev/fuse").exists():
        raise FlashfsError("this machine has no /dev/fuse: load the kernel's module (modprobe fuse)")


def check_mountpoint(path: Path) -> bool:
    """Raise unless ``path`` is an empty directory with nothing mounted on it; one that is only missing itself, in a
    folder that exists, is made. Returns whether it was made: a caller that fails later removes it."""
    require_free(path)
    missing = not path.exists()
    if missing:
        try:
            path.mkdir()
        except OSError as error:
            raise UsageError(f"mountpoint {path} does not exist and cannot be made: {error.strerror}") from None
    if not path.is_dir():
        raise UsageError(f"mountpoint {path} is not a directory: name an empty one, after the image")
    try:
        hidden = len(list(path.iterdir()))
    except OSError as error:
        raise UsageError(f"mountpoint {path}: {error.strerror}") from None
    if hidden:
        raise UsageError(f"mountpoint {path} is not empty ({hidden} entries would be hidden): name an empty directory")
    return missing


def is_corpse(path: Path) -> bool:
    """True if a FUSE file system is mounted at ``path`` whose daemon is gone; SilentError if it does not answer.

    Uses statfs, which the kernel never caches: it may still have the attributes of a dead mount.
    """
    try:
        ask(path, lambda: os.statvfs(path))
    except asking.DeadError:
        return True
    except OSError:
        pass
    return False


def ask(path: Path, question: Callable[[], T], timeout_s: float | None = asking.ANSWER_S) -> T:
    """As ``asking.ask``, of what is mounted at or around ``path``."""
    mount = at(path) or around(path) or Mount(path, "", "", "")
    try:
        return asking.ask(mount.mountpoint, mount.source, question, timeout_s)
    except asking.DeadError as error:
        raise asking.DeadError(f"{error}: {_after_death(mount.mountpoint, mount.source)}") from None


def _after_death(path: Path, image: str) -> str:
    if path.parent == RUN:
        upper = next((upper for loop in loops_of(path / "disk") for upper in mounts_of(loop)), path)
        return f"`flashfs up {image} {upper}` recovers what was flushed, `flashfs down {upper}` clears it away"
    return f"`flashfs mount {image} {path}` recovers what was flushed, `flashfs umount {path}` clears it away"


def text(folder: Path, name: str, timeout_s: float | None = asking.ANSWER_S) -> dict[str, Any]:
    """One of the texts of the mount at ``folder``. SilentError if its daemon does not answer within ``timeout_s``,
    DeadError if it is gone; OSError, and ValueError for what is no JSON."""
    found: dict[str, Any] = json.loads(ask(folder, (folder / name).read_bytes, timeout_s))
    return found


def loops_of(disk: Path, device: str | None = None) -> list[Path]:
    """The loop devices whose backing file is ``disk``, by whatever path: a bind mount has another. ``device``: the
    mount's "major:minor", for a caller that knows it: the mount may have been moved. The names alone are compared: to
    open a loop device is a request to its `disk`, which a server that asks here may be the one to answer."""
    mount = at(disk.parent) if device is None else None
    device = mount.device if mount is not None else device
    seen = [one for one in table() if one.device == device]
    names = {disk, *(one.mountpoint / disk.name for one in seen if one.root == "/"),
             *(one.mountpoint for one in seen if one.root == f"/{disk.name}")}  # fmt: skip
    found = []
    for backing in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        loop = Path("/dev", backing.parent.parent.name)
        with suppress(OSError):  # detached while we look
            if Path(os.fsdecode(backing.read_bytes().rstrip(b"\n"))) in names:
                found.append(loop)
    return found


def leave(device: str, image: str) -> None:
    """Detach each mount of ``image`` with that "major:minor", wherever it is by now. For the process that has the image
    locked: the number alone may be another mount's by now."""
    for one in table():
        if (one.device, one.fs_type, one.source) == (device, FS_TYPE, image):
            with suppress(FlashfsError):  # another user's bind mount, say: the checkpoint comes first
                release(one.mountpoint, lazy=True)


@contextmanager
def turn(mountpoint: Path) -> Iterator[Callable[[], None]]:
    """One mount at a time at ``mountpoint``, from the look at what is there to the mount itself: holds a lock of the
    folder, until the function that it yields is called. FlashfsError if another mount was first."""
    try:
        fd = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield lambda: None  # a folder that may not be read: no lock
        return
    held = [fd]

    def let_go() -> None:
        while held:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child process may still have it open
            os.close(held.pop())

    try:
        end = time.monotonic() + TURN_S
        while not _locked(fd):
            require_free(mountpoint)
            if time.monotonic() > end:
                raise FlashfsError(f"{mountpoint}: another process has the folder locked (flock)")
            time.sleep(0.01)
        require_free(mountpoint)
        yield let_go
    finally:
        let_go()


def _locked(fd: int) -> bool:
    """Take the lock of an open folder; False if another has it. True, too, where there are no such locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def require_free(mountpoint: Path) -> None:
    """FlashfsError if something is mounted there."""
    over = at(mountpoint)
    if over is not None:
        raise FlashfsError(f"{mountpoint} is already mounted ({over.fs_type} of {over.source}): unmount it first")


def mounts_of(source: Path) -> list[Path]:
    """Where the block device ``source`` is mounted, newest first."""
    return [mount.mountpoint for mount in reversed(table()) if mount.source == str(source)]


def clear_corpse(path: Path, timeout_s: float = 0.0) -> list[str]:
    """Unmount the mount of a dead daemon at ``path`` and what is on its `disk`, and nothing else.

    Returns what was done, one line each; [] if ``path`` is no corpse, and does not become one within ``timeout_s``.
    """
    said: list[str] = []
    end = time.monotonic() + timeout_s
    while not is_corpse(path):
        if time.monotonic() >= end:
            return said
        time.sleep(0.01)
    for loop in loops_of(path / "disk"):
        for upper in mounts_of(loop):
            umount(upper, ", a file system of the dead device,")
            said.append(f"unmounted {upper}, a file system of {loop}")
        detach(loop)
        said.append(f"detached {loop}")
    release(path, lazy=True)
    return [*said, f"unmounted {path}: its daemon was gone"]


def detach(loop: Path) -> None:
    """Detach a loop device, and wait until it is: `losetup -d` only schedules that while it is still open."""
    backing = Path("/sys/block", loop.name, "loop/backing_file")
    run("losetup", "-d", str(loop), what=f"detaching {loop}")
    end = time.monotonic() + DETACH_S
    while backing.exists():
        if time.monotonic() > end:
            raise FlashfsError(f"{loop} is still in use: it detaches itself once it is closed")
        time.sleep(0.01)


def umount(path: Path, which: str = "") -> None:
    """Unmount any file system. Waits while it is busy for a moment because a process looks at it."""
    patiently(lambda: run("umount", str(path), what=f"unmounting {path}{which}"))


def patiently(unmounts: Callable[[], object], is_held: Callable[[BusyError], None] = lambda error: None) -> None:
    """Call ``unmounts`` until the mount is not busy, for MOMENT_S at most: a program that reads from /proc which files
    a process has open keeps their mounts busy. ``is_held`` may raise if there is nothing to wait for."""
    end_s = time.monotonic() + MOMENT_S
    while True:
        try:
            unmounts()
            return
        except BusyError as error:
            is_held(error)
            if time.monotonic() >= end_s:
                raise
        time.sleep(0.01)


def release(path: Path, *, lazy: bool = False) -> None:
    """Unmount a FUSE file system as its owner may."""
    users = ", ".join(map(str, loops_of(path / "disk")))
    hint = f" ({users} is on its disk: detach that first, or use `flashfs down`)" if users and not lazy else ""
    run("fusermount3", *(["-u", "-z"] if lazy else ["-u"]), str(path), what=f"unmounting {path}", hint=hint)


def run(program: str, *arguments: str, what: str, hint: str = "") -> str:
    """Run one of the system's programs and return what it printed; FlashfsError with its words if it fails. It has a
    session of its own: a terminal's Ctrl-C goes to this process, which may be in the middle of an unmount."""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="surrogateescape", stdin=subprocess.DEVNULL,
            env=environment(), start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise FlashfsError(f"{what}: there is no {program} on this machine (or not on PATH)") from None
    if done.returncode != 0:
        said = done.stderr.partition("\nUsage:")[0]  # mkfs.xfs repeats its manual
        why = " ".join(said.split()) or f"{program} ended with {done.returncode}"
        kind = BusyError if why.endswith(("busy", "busy.")) else FlashfsError
        raise kind(f"{what} failed: {why}{hint}")
    return done.stdout


def environment() -> dict[str, str]:
    """This process's environment, with English messages, and ``search_path``."""
    return {**os.environ, "PATH": search_path(), "LC_ALL": "C"}


def search_path() -> str:
    """PATH, and the folders with mkfs, fsck and losetup: an ordinary user's PATH has none of them, nor has one after
    `su`."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
