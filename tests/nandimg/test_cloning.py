"""Copies of images: the same but for their UUID, whole or not there."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from pathlib import Path
from typing import Any

import pytest
from schemes import KINDS

import nandimg
from flashfs.device import Device
from nandimg import Geometry, ImageError, cloning

GEOMETRY = nandimg.PRESETS["small-64m"].geometry
HEADERS = 2 * nandimg.image.HEADER_BYTES
PAGE = 4096


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    return crash(tmp_path / "a.img", "pagemap")


def crash(path: Path, ftl: str, geometry: Geometry = GEOMETRY) -> Path:
    """An image whose power went after a flush."""
    nandimg.create(path, geometry)
    device = Device.open(path, ftl=ftl)
    rnd = random.Random(1)
    for _ in range(200):
        device.write(rnd.randrange(1000) * PAGE, rnd.randbytes(PAGE))
    device.trim(0, 50 * PAGE)
    device.flush()
    device.close(clean=False)
    return path


def differ_in_headers_alone(one: Path, two: Path) -> bool:
    return one.read_bytes()[HEADERS:] == two.read_bytes()[HEADERS:]


@pytest.mark.parametrize("ftl", KINDS)
def test_a_copy_of_a_crashed_image_recovers_as_it_does(tmp_path: Path, ftl: str) -> None:
    path, copy = crash(tmp_path / "a.img", ftl), tmp_path / "b.img"
    made = nandimg.clone(path, copy)
    assert made.header.uuid == nandimg.inspect(copy).uuid != nandimg.inspect(path).uuid
    assert nandimg.inspect(copy).ftl == ftl
    with Device.open(path) as one, Device.open(copy) as two:
        assert one.recovery.summary() == two.recovery.summary()
        assert one.read(0, 1000 * PAGE) == two.read(0, 1000 * PAGE) != bytes(1000 * PAGE)
        two.write(0, b"other" * PAGE)
        assert one.read(0, PAGE) == bytes(PAGE)
        assert two.problems() == []


def names(path: Path) -> list[str]:
    """What is in its folder."""
    return sorted(one.name for one in path.parent.iterdir())


def without_reflinks(monkeypatch: pytest.MonkeyPatch) -> None:
    def ioctl(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


@pytest.mark.parametrize("by_kernel", [True, False])
def test_sparse_copies(crashed: Path, monkeypatch: pytest.MonkeyPatch, by_kernel: bool) -> None:
    without_reflinks(monkeypatch)
    if not by_kernel:

        def no_copy(*_: Any) -> int:
            raise OSError(errno.EXDEV, "no")

        monkeypatch.setattr(os, "copy_file_range", no_copy)
    monkeypatch.setattr(cloning, "TOLD", 64 << 10)
    copy, told = crashed.with_name("b.img"), []
    assert not nandimg.clone(crashed, copy, told.append).shared
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] == 1
    assert differ_in_headers_alone(crashed, copy)
    assert copy.stat().st_blocks <= crashed.stat().st_blocks + 256
    assert copy.stat().st_mode & 0o777 == 0o600


def test_both_copies_of_the_header_are_whole(crashed: Path) -> None:
    with crashed.open("r+b") as file:  # a crash within a rewriting
        file.write(bytes(100))
    copy = crashed.with_name("b.img")
    made = nandimg.clone(crashed, copy)
    raw = copy.read_bytes()[:HEADERS]
    assert raw[: HEADERS // 2] == raw[HEADERS // 2 :]
    assert made.header.generation == nandimg.inspect(crashed).generation


def test_refusals_leave_nothing(crashed: Path) -> None:
    copy = crashed.with_name("b.img")
    with Device.open(crashed), pytest.raises(ImageError, match=r"in use by process .* unmount it"):
        nandimg.clone(crashed, copy)
    with pytest.raises(ImageError, match="exists already"):
        nandimg.clone(crashed, crashed)
    with pytest.raises(ImageError, match="no such file"):
        nandimg.clone(copy, crashed.with_name("c.img"))
    with pytest.raises(ImageError, match="there is no directory"):
        nandimg.clone(crashed, crashed.with_name("none") / "c.img")
    os.truncate(crashed, nandimg.inspect(crashed).layout.end - 1)
    with pytest.raises(ImageError, match="it was truncated"):
        nandimg.clone(crashed, copy)
    crashed.write_bytes(bytes(HEADERS))
    with pytest.raises(ImageError, match="no flashfs image"):
        nandimg.clone(crashed, copy)
    assert names(crashed) == [crashed.name]


def test_a_copy_that_is_broken_off_has_no_name(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = crashed.with_name("b.img")
    copies = []

    def full(*_: Any) -> int:
        copies.append(copy.exists())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    without_reflinks(monkeypatch)
    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(ImageError, match="No space left"):
        nandimg.clone(crashed, copy)
    assert copies == [False]
    assert names(crashed) == [crashed.name]


def test_a_name_that_was_taken_meanwhile_is_not_replaced(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, before = crashed.with_name("b.img"), cloning._reserve

    def taken(*given: Any) -> None:
        before(*given)
        copy.write_text("somebody's")

    monkeypatch.setattr(cloning, "_reserve", taken)
    with pytest.raises(ImageError, match="exists already"):
        nandimg.clone(crashed, copy)
    assert copy.read_text() == "somebody's"
    assert names(crashed) == ["a.img", "b.img"]
