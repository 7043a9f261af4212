"""A file system on an image in one step, and back: flashfs mount, loop device, mkfs if blank, mount.

The flashfs mount itself lives in a directory of its own, ``/run/flashfs/UUID`` (the image's). Beside it, ``UUID.at``
is a symbolic link to the mountpoint of the file system, which is how `down` finds everything even if half of it is
gone. Nothing else is remembered: what is there is asked of the system each time, so that both commands can be repeated
after any failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import daemon, mounts
from nandimg import image

RUN = Path("/run/flashfs")
SECTOR_BYTES = 4096  # the loop device's logical sector: each request is whole pages
BLANK_BYTES = 1 << 20  # zeros so far, and no signature anywhere: nothing was ever put there

# The file systems offered: the package that has mkfs, and what mkfs is given beside the device.
FILE_SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ext4": ("e2fsprogs", ("-q",)),
    "xfs": ("xfsprogs", ("-q",)),
    "btrfs": ("btrfs-progs", ("-q",)),
}


@dataclass(frozen=True)
class Up:
    """What `up` did. ``mounted`` is None if the flashfs mount was there already; ``made`` if mkfs ran."""

    loop: Path
    mounted: daemon.Mounted | None
    made: bool
    did: list[str]


def need_root(command: str) -> None:
    """Only root may attach a loop device."""
    if os.geteuid() != 0:
        raise FlashfsError(
            f"{command} needs root for the loop device: run it with sudo, or use `flashfs mount`, which does not"
        )


def up(request: daemon.Request, fs: str) -> Up:
    """Mount the file system of ``request.image`` at ``request.mountpoint``; on failure, undo what this call did."""
    need_root("up")
    check_file_system(fs)
    home = at_home(request).mountpoint
    target, did = request.mountpoint, mounts.clear_corpse(home)
    if request.record is not None and mounts.at(home) is not None:
        raise UsageError(f"--record {request.record}: {request.image} is mounted already: `flashfs down` it first")
    present = mounts.at(target)
    if present is not None and present.source in map(str, mounts.loops_of(home / "disk")):
        return Up(Path(present.source), None, False, [*did, f"{request.image} is already up at {target}"])
    mounts.check_mountpoint(target)
    with ExitStack() as undo:
        mounted = None
        if mounts.at(home) is None:
            make_home(home)
            undo.callback(remove_home, home)
            mounted = daemon.mount(at_home(request))
            undo.callback(daemon.unmount, home)
        loop, is_new = attach(home / "disk")
        if is_new:
            undo.callback(mounts.detach, loop)
        made = make_if_blank(loop, fs)
        mounts.run("mount", "-t", fs, str(loop), str(target), what=f"mounting {loop} at {target}")
        undo.pop_all()
    link = home.with_suffix(".at")
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return Up(loop, mounted, made, did)


def at_home(request: daemon.Request) -> daemon.Request:
    """``request`` with the directory of the flashfs mount instead of the file system's."""
    return replace(request, mountpoint=RUN / str(image.inspect(request.image).uuid))


def down(mountpoint: Path) -> daemon.Unmounted:
    """Undo `up` at ``mountpoint``, whatever of it is still there; returns when the checkpoint is durable."""
    need_root("down")
    home = home_of(mountpoint)
    if mounts.is_corpse(home):
        did = mounts.clear_corpse(home)
        remove_home(home)
        return daemon.Unmounted(did, ["nothing was checkpointed: the next mount recovers what was flushed"])
    did, warnings = [], []
    loops = mounts.loops_of(home / "disk")
    for loop in loops or loops_under(mountpoint):
        for upper in mounts.mounts_of(loop):
            mounts.run("umount", str(upper), what=f"unmounting {upper}")
            did.append(f"unmounted {upper}")
        mounts.detach(loop)
        did.append(f"detached {loop}")
    if mounts.at(home) is not None:
        done = daemon.unmount(home)
        did, warnings = did + done.did, done.warnings
    remove_home(home)
    return daemon.Unmounted(did, warnings)


def home_of(mountpoint: Path) -> Path:
    """The directory of the flashfs mount under the file system at ``mountpoint``."""
    for loop in loops_under(mountpoint):
        home = Path(Path("/sys/block", loop.name, "loop/backing_file").read_text().rstrip("\n")).parent
        if home.parent == RUN:
            return home
    for link in sorted(RUN.glob("*.at")):
        if link.readlink() == mountpoint:
            return link.with_suffix("")
    raise UsageError(f"nothing that `flashfs up` made is at {mountpoint}")


def loops_under(mountpoint: Path) -> list[Path]:
    """The loop device that the file system at ``mountpoint`` is on, if it is on one."""
    mount = mounts.at(mountpoint)
    if mount is None or not mount.source.startswith("/dev/loop"):
        return []
    loop = Path(mount.source)
    return [loop] if Path("/sys/block", loop.name, "loop/backing_file").exists() else []


def make_home(home: Path) -> None:
    """The directory for an image that comes up, which is root's whatever the umask, as is the one that holds them."""
    RUN.mkdir(mode=0o755, exist_ok=True)
    RUN.chmod(0o755)  # one that was made under another umask
    home.mkdir(mode=0o700, exist_ok=True)


def remove_home(home: Path) -> None:
    """Remove the directory and the link of an image that is down, and what holds them if they were the last."""
    with suppress(FileNotFoundError):
        home.rmdir()
    home.with_suffix(".at").unlink(missing_ok=True)
    with suppress(OSError):
        RUN.rmdir()


def check_file_system(fs: str) -> None:
    """Raise unless ``fs`` is offered and this machine can make it."""
    if fs not in FILE_SYSTEMS:
        raise UsageError(f"--fs {fs}: there is {', '.join(FILE_SYSTEMS)}")
    if shutil.which(f"mkfs.{fs}", path=mounts.environment()["PATH"]) is None:
        raise FlashfsError(f"--fs {fs}: this machine has no mkfs.{fs}: install {FILE_SYSTEMS[fs][0]}")


def attach(disk: Path) -> tuple[Path, bool]:
    """The loop device on ``disk``, and whether it was made now."""
    present = mounts.loops_of(disk)
    if present:
        return present[0], False
    made = mounts.run(
        "losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(SECTOR_BYTES), str(disk),
        what=f"attaching a loop device to {disk}",
    )  # fmt: skip
    return Path(made.strip()), True


def make_if_blank(loop: Path, fs: str) -> bool:
    """Make a file system on a blank device. Refuses a device that holds anything else; nothing is ever overwritten."""
    found = signature(loop)
    if found == fs:
        return False
    if found:
        raise UsageError(f"the image holds {found}, not {fs}: mount it with --fs {found}, or make another image")
    with loop.open("rb", buffering=0) as device:
        first = device.read(BLANK_BYTES)
    if first.strip(b"\0"):
        raise UsageError("the image holds data that is no file system: use `flashfs mount` to see it")
    mounts.run(f"mkfs.{fs}", *FILE_SYSTEMS[fs][1], str(loop), what=f"making {fs} on {loop}")
    return True


def signature(loop: Path) -> str:
    """What blkid sees on the device: a file system's or a partition table's name, or "" for nothing."""
    command = ["blkid", "-p", "-o", "export", str(loop)]
    done = subprocess.run(command, capture_output=True, text=True, env=mounts.environment())
    if done.returncode not in (0, 2):  # 2: nothing found
        raise FlashfsError(f"looking at {loop} failed: {' '.join(done.stderr.split()) or done.returncode}")
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return values.get("TYPE") or values.get("PTTYPE") or ""
