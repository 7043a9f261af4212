"""An image on a mount, and a loop device with a file system over it: the basis of the tests of a whole SSD, and
of tools/soak.py. Every step undoes itself by the ids that it made."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashfs.crash.kill.filesystems import FILE_SYSTEMS, FileSystem, chip
from flashfs.fuse import daemon, file_systems, loop, mounts
from flashfs.poll import readable
from nandimg import image

PAGE = 4096
MIB = 1 << 20
PATIENCE_S = 60.0


class Stand:
    """One image in ``folder``, of so many MiB for the host; mounted, killed and mounted again as often as wanted."""

    def __init__(self, folder: Path, size_mib: int, ftl: str, server: str = "native") -> None:
        self.image = folder / "chip.nand"
        self.home, self.root = folder / "device", folder / "files"
        self.disk = self.home / "disk"
        self.ftl, self.server = ftl, server
        self.loop: Path | None = None
        self.pid = 0
        for made in (self.home, self.root):
            made.mkdir()
        image.create(self.image, chip(size_mib))

    # --- the device

    def mount(self, **how: Any) -> daemon.Mounted:
        mounted = daemon.mount(daemon.Request(self.image, self.home, ftl=self.ftl, server=self.server, **how))
        assert mounted.server == self.server
        self.pid = mounted.pid
        return mounted

    def unmount(self) -> None:
        """Everything, cleanly."""
        self.umount_files()
        self.detach()
        done = daemon.unmount(self.home, PATIENCE_S)
        assert done.warnings == []

    def kill(self) -> None:
        """SIGKILL the daemon, and take away the corpse."""
        descriptor = os.pidfd_open(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        assert readable(descriptor, timeout_s=PATIENCE_S)
        os.close(descriptor)
        self.umount_files()
        self.detach()
        mounts.clear_corpse(self.home)

    def stats(self) -> dict[str, Any]:
        return json.loads((self.home / "stats.json").read_text())  # type: ignore[no-any-return]

    def flush(self) -> None:
        fd = os.open(self.disk, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    def programs(self, *causes: str) -> int:
        """Pages programmed so far, for these causes."""
        by_cause = self.stats()["nand"]["by_cause"]["program"]
        return sum(by_cause.get(cause, 0) for cause in causes)

    # --- what lies over it

    def attach(self) -> Path:
        self.loop = loop.attach(self.disk)[0]
        return self.loop

    def detach(self) -> None:
        if self.loop is not None:
            mounts.detach(self.loop)
            self.loop = None

    def make(self, fs: str, *options: str) -> None:
        """A file system on the loop device."""
        file_systems.mkfs(f"mkfs.{fs}", "-q", *options, str(self.loop), what=f"making {fs}")

    def mount_files(self, fs: str, options: str = "noatime") -> None:
        run("mount", "-t", fs, "-o", options, self.loop, self.root)

    def umount_files(self) -> None:
        """Returns when the file system has written what it had to: a process that was given a mount namespace just
        now keeps a copy of the mount a moment longer, and umount(8) is done before that one goes."""
        if mounts.at(self.root):
            run("umount", self.root)
            end = time.monotonic() + PATIENCE_S
            while self.loop is not None and held(self.loop):
                assert time.monotonic() < end, f"{self.loop}: still mounted in another mount namespace"
                time.sleep(0.02)

    def free_bytes(self) -> int:
        """What the file system says is free."""
        found = os.statvfs(self.root)
        return found.f_bfree * found.f_frsize

    def check_files(self, fs: str) -> None:
        """The file system's own checker, on one that is not mounted: FlashfsError unless it is content."""
        self.umount_files()
        run(*FILE_SYSTEMS[fs].check, self.loop)

    def clean_up(self) -> None:
        """Whatever happened: nothing of ours is left."""
        if mounts.at(self.root):
            subprocess.run(["umount", "-l", str(self.root)], check=False, capture_output=True)
        for device in mounts.loops_of(self.disk):
            subprocess.run(["losetup", "-d", str(device)], check=False, capture_output=True)
        if mounts.at(self.home) is not None:
            if not mounts.is_corpse(self.home):
                with suppress(ProcessLookupError):  # it ends by itself just now
                    os.kill(self.pid, signal.SIGKILL)
            subprocess.run(["fusermount3", "-u", "-z", str(self.home)], check=False, capture_output=True)


def held(device: Path) -> bool:
    """Whether a file system has ``device``, in whichever mount namespace."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True
    return False


def run(program: str, *arguments: object) -> str:
    """One of the system's programs; FlashfsError with its words if it fails."""
    return mounts.run(program, *map(str, arguments), what=f"{program} {' '.join(map(str, arguments))}")


def lacks(fs: str, *programs: str) -> str | None:
    """What this machine lacks for that file system, in one line; None if nothing."""
    system: FileSystem = FILE_SYSTEMS[fs]
    for program in (system.make[0], system.check[0], *programs):
        if shutil.which(program, path=mounts.environment()["PATH"]) is None:
            return f"needs {program}"
    if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
        subprocess.run(["modprobe", fs], capture_output=True, check=False, env=mounts.environment())
    if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
        return f"needs {fs}, which this kernel does not have"
    return None


def extents(disk: Path, whence: int = os.SEEK_HOLE) -> list[tuple[int, int]]:
    """(first byte, byte after the last) of each hole of ``disk`` (SEEK_DATA: of each stretch of data), in order."""
    other = os.SEEK_DATA if whence == os.SEEK_HOLE else os.SEEK_HOLE
    out, end = [], 0
    fd = os.open(disk, os.O_RDONLY)
    size = os.fstat(fd).st_size
    try:
        while end < size:
            first = seek(fd, end, whence, size)
            end = seek(fd, first, other, size) if first < size else size
            if first < size:
                out.append((first, end))
    finally:
        os.close(fd)
    return out


def seek(fd: int, offset: int, whence: int, none: int) -> int:
    """lseek(2), or ``none`` where there is nothing of the kind any more."""
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return none


PUNCH, ZERO, KEEP = 0x02, 0x10, 0x01  # linux/falloc.h
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2), whose mode Python's own does not take."""
    if libc.fallocate(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def punch(fd: int, offset: int, length: int) -> None:
    fallocate(fd, PUNCH | KEEP, offset, length)


def same(found: bytes | bytearray, wanted: bytes | bytearray, what: str = "") -> None:
    """The same bytes, or AssertionError with the first page that differs; pytest's own account of megabytes takes
    minutes."""
    if found == wanted:
        return
    if len(found) != len(wanted):
        raise AssertionError(f"{what}: {len(found)} bytes and not {len(wanted)}")
    at = next(at for at in range(0, len(wanted), PAGE) if found[at : at + PAGE] != wanted[at : at + PAGE])
    at = next(at + i for i in range(PAGE) if found[at + i] != wanted[at + i])
    raise AssertionError(f"{what}: from byte {at} on {found[at:at+8].hex()} and not {wanted[at:at+8].hex()}")
