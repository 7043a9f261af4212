"""The host's disk is full below an image: what was flushed stays, and whoever looks is told why."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import flashfs, refused, take_away

from flashfs.crash.kill.filesystems import chip as geometry
from flashfs.device import Device
from flashfs.errors import DeviceFailedError
from flashfs.fuse import SERVERS, homes, mounts
from flashfs.fuse.host_disk import HostDisk
from nandimg import create, inspect

pytestmark = pytest.mark.mount
MIB = 1 << 20
Small = Callable[[int], Path]


@pytest.fixture
def small(need_fuse: None, tmp_path: Path) -> Iterator[Small]:
    """``small(MiB)``: the image of a disk of 64 MiB, in a file system that has so much room for its data."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a tmpfs")

    def make(room_mib: int) -> Path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room_mib + 2}M", "none", str(folder)], check=True)
        create(folder / "chip.nand", geometry(64))
        return folder / "chip.nand"

    yield make
    for home in homes.all_homes():
        if folder in home.image.parents:
            take_away(home.path)
            homes.remove(home.path)
    if mounts.at(folder) is not None:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def health(mountpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mountpoint / "smart.json").read_text())
    return found


@pytest.mark.parametrize("server", list(SERVERS))
def test_where_people_look(small: Small, mountpoint: Path, tmp_path: Path, server: str) -> None:
    chip, log = small(4), tmp_path / "log"
    flashfs("mount", chip, mountpoint, "--server", server, "--log", log)
    assert health(mountpoint)["host_disk"] is None
    fd = os.open(mountpoint / "disk", os.O_RDWR)
    data = os.urandom(MIB)
    os.pwrite(fd, data, 0)
    os.fsync(fd)

    def fill() -> None:
        for at in range(MIB, 32 * MIB, MIB):
            os.pwrite(fd, data, at)
        os.fsync(fd)

    assert refused(fill) == errno.ENOSPC
    line = health(mountpoint)["host_disk"]
    assert f"the host's disk is full below {chip}" in line
    assert "make room" in line
    assert line.partition(":")[0] in flashfs("top", mountpoint, "--once").stdout
    assert json.loads(flashfs("top", mountpoint, "--json").stdout)["health"]["host_disk"].startswith("the host's disk")
    assert f"at byte {MIB}" not in log.read_text()
    assert "the host's disk is full below" in log.read_text()
    assert os.pread(fd, MIB, 0) == data
    subprocess.run(["mount", "-o", "remount,size=64M", str(chip.parent)], check=True)
    fill()
    assert "was full" in health(mountpoint)["host_disk"]
    os.close(fd)
    flashfs("umount", mountpoint)
    flashfs("mount", chip, mountpoint)
    assert health(mountpoint)["host_disk"] is None
    assert (mountpoint / "disk").read_bytes()[: 32 * MIB] == data * 32


def test_up_says_so(small: Small, need_loop: None, tmp_path: Path) -> None:
    chip = small(1)
    with Device.open(chip):  # its tables get their room now; nothing is left
        pass
    disk = os.statvfs(chip.parent)
    with (chip.parent / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
    said = flashfs("up", chip, tmp_path / "files", code=1).stderr
    assert f"the host's disk is full below {chip}" in said
    assert not (tmp_path / "files").exists()
    assert not (homes.RUN / str(inspect(chip).uuid)).exists()


def test_whose_errors_they_are() -> None:
    disk = HostDisk(Path("/nowhere"))
    assert not disk.note(DeviceFailedError("stopped"))
    assert not disk.note(ValueError("a mistake"))
    assert disk.line() is None
    assert disk.note(OSError(errno.EIO, "x"))
    assert "fails below /nowhere (Input/output error): 1 requests failed" in str(disk.line())
