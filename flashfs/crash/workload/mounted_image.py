"""An image, mounted down to the files on it, and everything taken away again."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from flashfs.crash.kill.daemon_lives import Life, mount
from flashfs.crash.workload import commands, interrupts
from flashfs.crash.workload.settings import FILE_SYSTEMS, Folder, Settings
from flashfs.errors import FlashfsError
from flashfs.fuse import daemon, loop, mounts

SMALL_BYTES = 16 << 20
PATIENCE_S = 5.0  #: for what was left running to let go of the file system


class Unusable(FlashfsError):
    """The device cannot be mounted, which recovers it, or its file system cannot."""

    def __init__(self, error: FlashfsError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code


@contextmanager
def attached(folder: Folder, settings: Settings, *, tape: Path | None = None) -> Iterator[Path]:
    """A loop device on the image ``folder.state``, which is recovered if it has to be; unmounted with a checkpoint."""
    request = daemon.Request(
        folder.state, folder.device, settings.ftl, options=settings.options, dram=settings.dram, plp=settings.plp,
        sync="none", allow_other=True, tape=tape,
    )  # fmt: skip
    for mountpoint in (folder.device, folder.root):
        mountpoint.mkdir(exist_ok=True)
    with ExitStack() as undo:  # in reverse order, each whatever the others did
        try:
            life = mount(request, None)
        except daemon.NotMounted as error:
            raise Unusable(error) from None
        assert life is not None
        undo.callback(_end, folder, life)
        with interrupts.held():
            device, _ = loop.attach(folder.device / "disk")
            undo.callback(interrupts.held()(mounts.detach), device)
        yield device


@interrupts.held()
def _end(folder: Folder, life: Life) -> None:
    """The daemon's end; if the device cannot be unmounted, somebody still has it, and it ends all the same."""
    try:
        daemon.unmount(folder.device)
    except FlashfsError:
        if not life.over():
            life.kill()
        mounts.clear_corpse(folder.device)
        raise
    finally:
        life.forget()


def make(device: Path, settings: Settings) -> None:
    """The file system."""
    if settings.mkfs is not None:
        commands.must_do("--mkfs", commands.run(settings.mkfs, device, {"FLASHFS_DEVICE": str(device)}))
        return
    mounts.run(*FILE_SYSTEMS[settings.fs][1], str(device), what=f"making {settings.fs} on {device}")


@contextmanager
def files(device: Path, folder: Folder, settings: Settings) -> Iterator[Path]:
    """Its file system, mounted at ``folder.root``."""
    chosen = ("-o", settings.mount_options) if settings.mount_options else ()
    words = ("-t", settings.fs, *chosen, str(device), str(folder.root))
    with ExitStack() as undo:
        with interrupts.held():
            try:
                mounts.run("mount", *words, what=f"mounting {settings.fs}")
            except FlashfsError as error:
                raise Unusable(error) from None
            undo.callback(_let_go, folder.root)
        yield folder.root


@interrupts.held()
def _let_go(root: Path) -> None:
    """Unmount; FlashfsError if a command left something behind that keeps it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            mounts.umount(root)
            return
        except FlashfsError:
            if time.monotonic() > end:
                mounts.run("umount", "-l", str(root), what=f"unmounting {root}")
                raise
            time.sleep(0.05)


def clear(folder: Folder) -> None:
    """Take away what is left when a signal came between a mount and its being noted; as far as it can be done.

    A daemon that was interrupted before it was ready ends by itself: it is waited for, as a child (`adopting`)."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with suppress(FlashfsError, OSError):  # whoever ends by itself may be quicker
            if mounts.at(folder.root) is not None:
                _let_go(folder.root)
            for device in mounts.loops_of(folder.device / "disk"):
                mounts.detach(device)
            if mounts.at(folder.device) is not None:
                daemon.unmount(folder.device)
        if not ((interrupts.came() and _has_children()) or folder.has_mounts()) or time.monotonic() > end:
            return
        time.sleep(0.02)


def _has_children() -> bool:
    """Whether a process is left that was started here or adopted; those that have ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def tape_failed(folder: Folder) -> str | None:
    """Why the tape of the mount breaks off, if it does."""
    stats: dict[str, Any] = json.loads((folder.device / "stats.json").read_text())
    failed: str | None = stats["record"]["failed"]
    return failed


def copy(source: Path, target: Path) -> None:
    """A copy of an image, with its holes; one that shares its disk blocks where the disk can, unless it is small: then
    a process takes longer than its bytes."""
    if source.stat().st_size <= SMALL_BYTES:
        _copy_small(source, target)
        return
    mounts.run("cp", "--reflink=auto", "--sparse=always", str(source), str(target), what=f"copying {source}")


def _copy_small(source: Path, target: Path) -> None:
    """The same, in this process."""
    with source.open("rb", buffering=0) as old, target.open("wb", buffering=0) as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        end = 0
        while True:
            try:
                at = os.lseek(old.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return  # only a hole is left
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            new.seek(at)
            while at < end and (n := os.sendfile(new.fileno(), old.fileno(), at, end - at)):
                at += n
