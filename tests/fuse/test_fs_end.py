"""Where file systems end: as mkfs made them, and on images that are to become smaller, or did."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import nandimg
from flashfs import fs_end, resizing
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.fuse import file_systems
from nandimg import Geometry

MIB = 1 << 20
SIZE = 320 * MIB
MADE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096"), "ext4, small blocks": ("mkfs.ext4", "-q", "-F", "-b", "1024"),
    "ext4, 32 bits": ("mkfs.ext4", "-q", "-F", "-O", "^64bit"), "xfs": ("mkfs.xfs", "-q", "-f", "-s", "size=4096"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}  # fmt: skip


def made(what: str, path: Path) -> Path:
    command = shutil.which(MADE[what][0], path="/usr/sbin:/sbin:/usr/bin:/bin")
    if command is None:
        pytest.skip(f"{MADE[what][0]} is not here")
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(SIZE)
    file_systems.mkfs(command, *MADE[what][1:], str(path), what=f"making {what}")
    return path


def end_of(path: Path) -> fs_end.End | None:
    with path.open("rb") as file:

        def read(offset: int, n: int) -> bytes:
            file.seek(offset)
            return file.read(n)

        return fs_end.end_of(read)


@pytest.mark.parametrize("what", list(MADE))
def test_as_mkfs_made_it(what: str, tmp_path: Path) -> None:
    found = end_of(made(what, tmp_path / "disk"))
    assert found == fs_end.End(what.partition(",")[0], SIZE)


def test_what_is_none(tmp_path: Path) -> None:
    for content in (b"", bytes(100), bytes(MIB), random.Random(1).randbytes(MIB), b"XFSB", b"XFSB" + bytes(5)):
        (tmp_path / "disk").write_bytes(content)
        assert end_of(tmp_path / "disk") is None


@pytest.mark.parametrize("what", ["ext4", "xfs", "btrfs"])
def test_no_image_becomes_smaller_than_what_is_in_it(what: str, tmp_path: Path) -> None:
    plain, image = made(what, tmp_path / "disk"), tmp_path / "image"
    nandimg.create(image, Geometry.sized(SIZE, op=0.2))
    with Device.open(image) as device, plain.open("rb") as file:
        for at in range(0, SIZE, MIB):
            piece = file.read(MIB)
            if piece.count(0) != MIB:
                device.write(at, piece)
        last = device.extent(0, mapped=True)
        while last < SIZE:  # after this nothing is written
            end = device.extent(last, mapped=False)
            last = device.extent(end, mapped=True) if end < SIZE else SIZE
    for size in (SIZE - MIB, max(end, SIZE // 2)):
        with pytest.raises(UsageError, match=f"would cut off the {what} in it, which takes 320 MiB: "):
            resizing.resize(image, size)
    assert resizing.resize(image, SIZE + MIB).after == SIZE + MIB
    assert resizing.resize(image, SIZE).after == SIZE  # as large as the file system, to the byte


def test_up_says_so_of_one_that_is_larger(tmp_path: Path) -> None:
    plain = made("ext4", tmp_path / "disk")
    with plain.open("r+b") as file:
        file.truncate(SIZE - MIB)
    with pytest.raises(UsageError, match="the ext4 on the image takes 320 MiB, and the image has 319 MiB for the host"):
        file_systems.make_if_blank(plain, plain, None)
