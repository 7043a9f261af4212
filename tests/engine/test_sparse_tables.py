"""Images with sparse tables: page records get their blocks on the host's disk with their pages, and a full disk below
them is an error of the write that finds it so, as it is below an image whose tables have had their room since binding.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from schemes import KINDS

import nandimg
from flashfs import cli, fit
from flashfs.device import Device
from flashfs.errors import DeviceFailedError
from nandimg import Geometry
from nandimg.errors import NoRoomError
from nandimg.image import open_image

MIB = 1 << 20
PAGE = 4096
#: 1 GiB and some: its records take more than 8 MiB, what ten thousand pages have of them is a fraction of one
CHIP = Geometry(blocks=1200, lpas=262_144)
Disk = Callable[[int], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """``disk(MiB)``: a folder on a file system of that size."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a tmpfs")
    where = tmp_path / "small"
    where.mkdir()

    def make(mib: int) -> Path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}M", "flashfs-test", str(where)], check=True)
        return where

    yield make
    if where.is_mount():
        subprocess.run(["umount", "-l", str(where)], check=True)


def grow(where: Path, mib: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={mib}M", str(where)], check=True)


def held(path: Path) -> int:
    """Bytes that the file has on its disk."""
    return 512 * path.stat().st_blocks


def test_what_the_first_mount_takes(tmp_path: Path) -> None:
    taken = {}
    for tables in ("reserved", "sparse"):
        path = tmp_path / tables
        header = nandimg.create(path, CHIP, tables=tables)
        blank, said = held(path), fit.first_mount_bytes(header)["pagemap"]
        assert (said == 0) == (tables == "sparse")
        with Device.open(path) as device:
            device.write(0, b"x" * PAGE)
        taken[tables] = held(path) - blank
        assert taken[tables] >= said
    assert taken["reserved"] > 8 * MIB
    assert taken["sparse"] < MIB


def test_where_reserved_tables_have_no_room(disk: Disk) -> None:
    where = disk(6)
    nandimg.create(where / "reserved", CHIP)
    before = (where / "reserved").read_bytes()[:8192]
    with pytest.raises(NoRoomError, match="tables need"):
        Device.open(where / "reserved")
    assert (where / "reserved").read_bytes()[:8192] == before
    open_image(where / "reserved").close()  # whose lock is gone with the error
    nandimg.create(where / "sparse", CHIP, tables="sparse")
    with Device.open(where / "sparse") as device:
        device.write(0, b"here" * 1024)
    with Device.open(where / "sparse", readonly=True) as device:
        assert device.read(0, PAGE) == b"here" * 1024


@pytest.mark.parametrize("tables", ["reserved", "sparse"])
@pytest.mark.parametrize("ftl", KINDS)
def test_a_full_disk(disk: Disk, ftl: str, tables: str) -> None:
    """Written until the disk is full, once by pages far apart: each has its record in a piece of its own. What was
    flushed stays; with room the same device goes on; so does the next one after a crash."""
    where = disk(40)
    path = where / "image"
    nandimg.create(path, CHIP, tables=tables)
    flushed: dict[int, bytes] = {}
    device = Device.open(path, ftl=ftl)
    try:
        with pytest.raises(OSError, match="space") as caught:
            for lpa in range(0, 20_000, 16):
                page = lpa.to_bytes(4, "little") * (PAGE // 4)
                device.write(lpa * PAGE, page * 16)
                if lpa % 64 == 0:
                    device.flush()
                    flushed |= {lpa: page}
        assert caught.value.errno == errno.ENOSPC
        assert len(flushed) > 20
        for lpa, page in flushed.items():
            assert device.read(lpa * PAGE, PAGE) == page, lpa
        grow(where, 80)
        try:
            device.write(200_000 * PAGE, b"more" * 1024)
            device.flush()
            flushed[200_000] = b"more" * 1024
        except DeviceFailedError:  # a disk that fills up amid cleaning or a sync may stop it; the next mount goes on
            pass
    finally:
        device.close(clean=False)
    with Device.open(path) as device:
        for lpa, page in flushed.items():
            assert device.read(lpa * PAGE, PAGE) == page, lpa
        assert device.problems() == []


def test_records_without_room_are_no_lost_tables(disk: Disk) -> None:
    """The chip alone: the disk is full when a page's record needs a piece, and not before. Nothing is programmed then,
    and nothing of the chip is lost."""
    where = disk(6)
    path = where / "image"
    nandimg.create(path, Geometry(blocks=1200, lpas=262_144), backend="meta", tables="sparse")
    image = open_image(path)
    image.bind("pagemap", {}, 16)
    chip = image.chip
    done = 0
    try:
        room = os.statvfs(where)
        with (where / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize)
        with pytest.raises(OSError, match="space"):
            for block in range(1200):
                chip.program_page(block, 0, None, bytes(16))
                done += 1
        assert chip.lost is None
        grow(where, 40)
        for block in range(done, 1200):
            chip.program_page(block, 0, None, bytes(16))
        chip.synchronise()
        assert chip.lost is None
    finally:
        image.close()
    image = open_image(path, readonly=True)
    for block in range(1200):
        assert image.chip.read_spare_area(block, 0)[1] == bytes(16), block
    image.close()


def test_resize_and_clone_keep_them(tmp_path: Path) -> None:
    path = tmp_path / "image"
    assert cli.run(["create", str(path), "--size", "64M", "--tables", "sparse"]) == 0
    with Device.open(path) as device:
        device.write(0, b"kept" * 1024)
    assert cli.run(["clone", str(path), str(tmp_path / "copy")]) == 0
    assert cli.run(["resize", str(path), "68M"]) == 0
    assert cli.run(["upgrade", str(path)]) == 0
    for one in (path, tmp_path / "copy"):
        assert nandimg.inspect(one).tables == "sparse"
        with Device.open(one, readonly=True) as device:
            assert device.read(0, PAGE) == b"kept" * 1024


def test_what_create_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "image")
    assert cli.run(["create", path, "--size", "256G", "--op", "0.1", "--tables", "sparse"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "its tables are sparse" in said
    assert "first mount allocates" not in said
    assert cli.run(["create", path, "--tables", "spars", "--force"]) == 2
    assert "use reserved or sparse" in capsys.readouterr().err
    assert nandimg.inspect(path).tables == "sparse"
