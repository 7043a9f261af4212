"""The host's disk is full below an image: what was flushed stays, and status and errors give the reason."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mounting import flashfs, kill, refused, take_away

from flashfs import cli
from flashfs.crash.kill.filesystems import chip as geometry
from flashfs.device import Device
from flashfs.errors import DeviceFailedError, FlashfsError
from flashfs.fuse import SERVERS, host_disk, mounts, up_registry
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
    for home in up_registry.all_homes():
        if folder in home.image.parents:
            take_away(home.path)
            up_registry.remove(home.path)
    if mounts.at(folder) is not None:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def health(mountpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mountpoint / "smart.json").read_text())
    return found


@pytest.mark.parametrize("server", list(SERVERS))
def test_where_people_look(
    small: Small, mountpoint: Path, tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert cli.run(["smart", str(mountpoint)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"alarms {line.partition(':')[0]}" in said and "overall an alarm, see below" in said
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
    assert not (up_registry.RUN / str(inspect(chip).uuid)).exists()


def test_a_remap_says_so(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    """A scheme that copies needs room for the copies; what was there stays."""
    chip = small(8)
    data = os.urandom(4 * MIB)
    with Device.open(chip, ftl="pagemap") as device:
        device.write(0, data)
    disk = os.statvfs(chip.parent)
    with (chip.parent / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
    assert cli.run(["remap", str(chip), "32M", "0", "4M"]) == 1
    said = capsys.readouterr().err
    assert f"the host's disk is full below {chip}" in said
    assert said.count("\n") == 1
    (chip.parent / "filler").unlink()
    with Device.open(chip) as device:
        assert device.read(0, 4 * MIB) == data


def test_up_of_what_is_up_says_so(small: Small, need_loop: None, tmp_path: Path) -> None:
    chip, target = small(8), tmp_path / "files"
    assert "the host's disk" not in flashfs("up", chip, target).stderr
    home = up_registry.RUN / str(inspect(chip).uuid)
    fd = os.open(home / "disk", os.O_RDWR)

    def fill() -> None:
        for at in range(32 * MIB, 64 * MIB, MIB):
            os.pwrite(fd, os.urandom(MIB), at)

    assert refused(fill) == errno.ENOSPC
    os.close(fd)
    assert f"the host's disk is full below {chip}" in flashfs("up", chip, target).stderr


def test_a_mount_says_so(small: Small, mountpoint: Path) -> None:
    chip = small(1)
    with Device.open(chip):
        pass
    filler = fill_up(chip.parent)
    assert f"the host's disk is full below {chip}: " in flashfs("mount", chip, mountpoint).stderr
    flashfs("umount", mountpoint)
    filler.unlink()
    assert flashfs("mount", chip, mountpoint).stderr == ""
    assert host_disk.warning(chip.parent / "none") is None


def fill_up(folder: Path) -> Path:
    """A file beside the image that takes all room there is."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        for step in (MIB, 4096):
            with suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
    assert os.statvfs(folder).f_bavail == 0
    return filler


@pytest.mark.parametrize("end", ["umount", "kill"])
def test_a_disk_that_stays_full_loses_nothing(small: Small, mountpoint: Path, end: str) -> None:
    """Written until the host's disk is full, ended there, not mounted while it is, and whole when there is room."""
    chip = small(6)
    flashfs("mount", chip, mountpoint)
    kept = os.urandom(2 * MIB)
    fd = os.open(mountpoint / "disk", os.O_RDWR)
    os.pwrite(fd, kept, 8 * MIB)
    os.fsync(fd)

    def fill() -> None:
        for at in range(16 * MIB, 48 * MIB, MIB):
            os.pwrite(fd, os.urandom(MIB), at)
            os.fsync(fd)

    assert refused(fill) == errno.ENOSPC
    assert os.pread(fd, 2 * MIB, 8 * MIB) == kept
    filler = fill_up(chip.parent)
    with suppress(OSError):
        os.close(fd)
    if end == "kill":
        kill(mountpoint)
    else:
        assert "no checkpoint was written" in flashfs("umount", mountpoint, code=1).stderr
    for _ in range(2):
        said = flashfs("mount", chip, mountpoint, code=1)
        assert f"the host's disk is full below {chip}" in said.stderr
        assert "make room" in said.stderr
        assert (said.stdout, mounts.at(mountpoint)) == ("", None)
    assert flashfs("dump", chip, "lpa", str(8 * MIB // 4096)).stdout
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=80M", str(chip.parent)], check=True)
    flashfs("mount", chip, mountpoint)
    with (mountpoint / "disk").open("r+b") as disk:
        disk.seek(8 * MIB)
        assert disk.read(2 * MIB) == kept
        disk.seek(16 * MIB)
        disk.write(kept * 8)
    flashfs("umount", mountpoint)
    flashfs("fsck", chip, "--data")


def test_tables_that_have_lost_their_room(small: Small, mountpoint: Path) -> None:
    """A sparse copy has holes where the tables were, and they need disk before the image can be mapped."""
    chip = small(2)
    with Device.open(chip):
        pass
    copy = chip.with_name("copy")
    subprocess.run(["cp", "--sparse=always", str(chip), str(copy)], check=True)
    filler = fill_up(chip.parent)
    said = flashfs("mount", copy, mountpoint, code=1).stderr
    assert re.search(rf"the host's disk is full below {copy}, whose tables need [\d.]+ [KM]iB there: make room", said)
    filler.unlink()
    flashfs("mount", copy, mountpoint)
    flashfs("umount", mountpoint)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_recovery_for_which_the_disk_has_no_room_says_whose_disk(code: int) -> None:
    chip = Path("/somewhere/chip.nand")
    with pytest.raises(OSError if code == errno.EIO else FlashfsError) as caught, host_disk.in_words(chip):
        raise OSError(code, os.strerror(code), str(chip))
    if code != errno.EIO:
        said = str(caught.value)
        assert f"below {chip}" in said and said.startswith("the host's disk") and "make room" in said


def test_whose_errors_they_are() -> None:
    disk = HostDisk(Path("/nowhere"))
    assert not disk.note(DeviceFailedError("stopped"))
    assert not disk.note(ValueError("a mistake"))
    assert disk.line() is None
    assert disk.note(OSError(errno.EIO, "x"))
    assert "fails below /nowhere (Input/output error): 1 request failed" in str(disk.line())
