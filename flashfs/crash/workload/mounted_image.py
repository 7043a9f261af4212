"""Mounts an image, its loop device and its file system, and unmounts everything again."""

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
PATIENCE_S = 5.0  #: longest wait for processes that were left running to release the file system


class Unusable(FlashfsError):
    """The device cannot be mounted, which recovers it, or its file system cannot."""

    def __init__(self, error: FlashfsError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code


@contextmanager
def attached(folder: Folder, settings: Settings, *, tape: Path | None = None) -> Iterator[Path]:
    """A loop device on the image ``folder.state``, which is recovered if necessary; unmounted with a checkpoint."""
    request = daemon.Request(
        folder.state, folder.device, settings.ftl, options=settings.options, dram=settings.dram, plp=settings.plp,
        sync="none", allow_other=True, tape=tape,
    )  # fmt: skip
    for mountpoint in (folder.device, folder.root):
        mountpoint.mkdir(exist_ok=True)
    with ExitStack() as undo:  # in reverse order, each even if another one raises
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
    """End the daemon. If the device cannot be unmounted because it is in use, the daemon is killed."""
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
    """Make the file system."""
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
    """Unmount; FlashfsError if something that a command left running keeps the file system busy."""
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
    """Remove, as far as possible, what is left if a signal came between a mount and its registration for the cleanup.

    A daemon that was interrupted before it was ready ends by itself: it is waited for, as a child (`adopting`)."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with suppress(FlashfsError, OSError):  # a daemon that ends by itself may unmount first
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
    """Whether a process that was started here or adopted still runs; those that have ended are reaped."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def tape_failed(folder: Folder) -> str | None:
    """Why the tape of the mount is incomplete, or None."""
    stats: dict[str, Any] = json.loads((folder.device / "stats.json").read_text())
    failed: str | None = stats["record"]["failed"]
    return failed


def copy(source: Path, target: Path) -> None:
    """Copy an image with its holes. The copy shares its disk blocks if the disk can, unless the image is small: then
    starting a process takes longer than copying."""
    if source.stat().st_size <= SMALL_BYTES:
        _copy_small(source, target)
        return
    mounts.run("cp", "--reflink=auto", "--sparse=always", str(source), str(target), what=f"copying {source}")


def _copy_small(source: Path, target: Path) -> None:
    """As ``copy``, in this process and without sharing."""
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
