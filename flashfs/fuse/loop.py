"""A file system on an image in one step, and back: flashfs mount, loop device, mkfs if blank, mount.

The flashfs mount itself lives in a directory of its own, which flashfs.fuse.up_registry gives out: by device and inode,
so that two files are never confused, whatever they hold. The state is read from the system each time, so that both
commands can be repeated after any failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import asked, daemon, file_systems, mounts, up_registry, users
from nandimg import image


@dataclass(frozen=True)
class Up:
    """What `up` did. ``home`` is where the flashfs mount is; ``mounted`` is None if that was there already, and
    ``warning`` what is wrong with it then; ``made`` if mkfs ran."""

    home: Path
    loop: Path
    fs: str
    mounted: daemon.Mounted | None
    made: bool
    did: list[str]
    warning: str | None = None


def need_root(command: str, instead: str = "`flashfs mount`, which does not") -> None:
    """Only root may attach a loop device. ``instead`` is what others can use."""
    if os.geteuid() != 0:
        raise FlashfsError(
            f"{command} needs root for the loop device: run it with sudo, or use {instead}"
        )


def up(request: daemon.Request, fs: str | None = None, given: Mapping[str, Any] | None = None) -> Up:
    """Mount the file system of ``request.image`` at ``request.mountpoint``; on failure, undo what this call did.

    ``fs`` None: whatever is there, and ext4 on a blank image. ``given`` are the options that were given explicitly,
    by their names on the command line: an image that is up already without them refuses them.
    """
    need_root("up")
    file_systems.check_name(fs)
    header = image.inspect(request.image)
    if not header.ftl:  # else the image would be bound before mkfs is found missing
        file_systems.check_can_make(fs or file_systems.DEFAULT)
    target = request.mountpoint
    with up_registry.turn(request.image), ExitStack() as undo:
        home, is_new = up_registry.claim(request.image, header.uuid)
        did = mounts.clear_corpse(home.path)
        if is_new or did:
            undo.callback(up_registry.remove, home.path)
        is_up = mounts.at(home.path) is not None
        if is_up:
            refuse_others(home, request, given or {})
        warning = _wrong(home.path) if is_up else None
        over = mounts.at(target)
        if over is not None and is_up and over.source in map(str, mounts.loops_of(home.path / "disk")):
            file_systems.require_same(over.fs_type, fs)
            undo.pop_all()
            home.at(target).save()
            said = [*did, f"{request.image} is already up at {target}"]
            return Up(home.path, Path(over.source), over.fs_type, None, False, said, warning)
        if mounts.check_mountpoint(target):
            undo.callback(_remove_directory, target)
        mounted = None
        if not is_up:
            mounted = daemon.mount(replace(request, mountpoint=home.path))
            undo.callback(daemon.unmount, home.path)
            file = up_registry.file_of(request.image)
            home = replace(home, file=file, options=_options(request, mounted), mountpoints=())
        with _because(home.path):
            loop, is_new = attach(home.path / "disk")
            if is_new:
                undo.callback(mounts.detach, loop)
            found, made = file_systems.make_if_blank(loop, home.path / "disk", fs)
            file_systems.mount(loop, found, target)
        undo.pop_all()
        home.at(target).save()
    return Up(home.path, loop, found, mounted, made, did, warning)


def _options(request: daemon.Request, mounted: daemon.Mounted) -> dict[str, Any]:
    """What the mount was made with, by the names of the command line's options, as JSON has it."""
    return {**asked.of(request), "ftl": mounted.ftl, "server": mounted.server}


def refuse_others(home: up_registry.Home, request: daemon.Request, given: Mapping[str, Any]) -> None:
    """UsageError if one of the options ``given`` is not what the mount in use was made with."""
    word = asked.differing(home.options, request, given)
    if word is not None:
        where = home.mountpoints[-1] if home.mountpoints else home.path
        raise UsageError(
            f"{word}: {request.image} is up already, and was mounted otherwise: "
            f"`flashfs down {where}` first, or leave it out"
        )


@contextmanager
def _because(home: Path) -> Iterator[None]:
    """Prefix a FlashfsError of work on the mount at ``home`` with what the device reports as wrong, if anything."""
    try:
        yield
    except FlashfsError as error:
        why = _wrong(home)
        if not why:
            raise
        raise FlashfsError(f"{why}; so {error}") from None


def _wrong(home: Path) -> str | None:
    """What the device that is mounted at ``home`` reports as wrong with it, or the host's disk; None if nothing."""
    try:
        health = mounts.text(home, "smart.json")
    except (OSError, ValueError, FlashfsError):
        return None
    return health.get("host_disk") or health.get("failed")


def _remove_directory(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


def down(place: Path) -> daemon.Unmounted:
    """Undo `up`, as far as it is still there; returns when the checkpoint is durable. ``place``: a mountpoint of the
    file system, and the image stays up at its others; or all of it: the image, or its flashfs mount's directory."""
    need_root("down")
    path, whole = home_of(place)
    known = up_registry.read(path)
    with up_registry.turn(known.image if known else path):
        return _down(path, None if whole else place)


def _down(path: Path, mountpoint: Path | None) -> daemon.Unmounted:
    home = up_registry.read(path)
    image = home.image if home else path
    if mounts.is_corpse(path):
        did = mounts.clear_corpse(path)
        up_registry.remove(path)
        return daemon.unmounted_dead(did, image)
    did, warnings = [], []
    # A loop device whose flashfs mount was unmounted lazily is on "/disk"; any other at this place is not ours.
    under = loops_under(mountpoint) if mountpoint else []
    lazily = [loop for loop in under if backing_of(loop) in (path / "disk", Path("/disk"))]
    loops = mounts.loops_of(path / "disk") or lazily
    uppers = [(upper, loop) for loop in loops for upper in mounts.mounts_of(loop)]
    others = sorted({str(upper) for upper, _ in uppers if mountpoint and upper != mountpoint})
    for upper, _ in uppers:
        if str(upper) not in others:
            mounts.umount(upper)
            did.append(f"unmounted {upper}")
    if mountpoint and others:
        if home is not None:
            home.away_from(mountpoint).save()
        return daemon.Unmounted([*did, f"{image} stays up at {', '.join(others)}"], [])
    for loop in loops:
        _detach(loop)
        did.append(f"detached {loop}")
    if mounts.at(path) is not None:
        done = daemon.unmount(path)
        did, warnings = did + done.did, done.warnings
    up_registry.remove(path)
    return daemon.Unmounted(did, warnings)


def _detach(loop: Path) -> None:
    """As mounts.detach; the error says which processes still have its file system."""
    try:
        mounts.detach(loop)
    except FlashfsError as error:
        held = users.elsewhere(str(loop))
        raise FlashfsError(f"{error}; its file system is held by {users.by(held)}") if held else error from None


def home_of(place: Path) -> tuple[Path, bool]:
    """The directory of the flashfs mount under the file system at ``place``; and whether ``place`` is that directory
    itself, or its image. UsageError if it is none of these."""
    for loop in loops_under(place):
        home = backing_of(loop).parent
        if home.parent == up_registry.RUN:
            return home, False
    mount = mounts.at(place)
    for known in up_registry.all_homes():
        if place == known.path or (mount is None and _is_image(place, known)):
            return known.path, True
        if place in known.mountpoints:
            return known.path, False
    hint = " (`flashfs umount` ends that)" if mount and mount.fs_type == mounts.FS_TYPE else ""
    raise UsageError(f"nothing that `flashfs up` made is at {place}: {mounts.instead(place, mount)}{hint}")


def _is_image(place: Path, home: up_registry.Home) -> bool:
    try:
        return mounts.around(place) is None and place.is_file() and up_registry.file_of(place) == home.file
    except OSError:
        return False


def loops_under(mountpoint: Path) -> list[Path]:
    """The loop device that the file system at ``mountpoint`` is on, if it is on one."""
    mount = mounts.at(mountpoint)
    if mount is None or not mount.source.startswith("/dev/loop"):
        return []
    loop = Path(mount.source)
    return [loop] if Path("/sys/block", loop.name, "loop/backing_file").exists() else []


def backing_of(loop: Path) -> Path:
    """The file that a loop device lies on, by the path that the kernel has."""
    return Path(os.fsdecode(Path("/sys/block", loop.name, "loop/backing_file").read_bytes().rstrip(b"\n")))


def attach(disk: Path) -> tuple[Path, bool]:
    """The loop device on ``disk``, and whether it was made now."""
    present = [loop for loop in mounts.loops_of(disk) if _begins_with_it(loop)]
    if present:
        return present[0], False
    made = mounts.run(
        "losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(file_systems.SECTOR_BYTES), str(disk),
        what=f"attaching a loop device to {disk}",
    )  # fmt: skip
    return Path(made.strip()), True


def _begins_with_it(loop: Path) -> bool:
    """Whether it shows the disk from its first byte on: one with an offset is not ours."""
    return Path("/sys/block", loop.name, "loop/offset").read_text().strip() == "0"
