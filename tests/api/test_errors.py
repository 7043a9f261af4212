"""What the functions raise: FlashfsErrors, also where the chip refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flashfs
import nandimg
from flashfs.device import Device
from nandimg.errors import InUseError


def test_what_the_chip_refuses_is_a_flashfs_error(tmp_path: Path) -> None:
    image, short = tmp_path / "image", tmp_path / "short"
    flashfs.create(image, preset="tiny-16")
    short.write_bytes(image.read_bytes()[:5000])
    refused = [
        lambda: flashfs.create(image, preset="tiny-16"), lambda: flashfs.clone(image, image),
        lambda: flashfs.open(tmp_path / "none"), lambda: flashfs.fsck(tmp_path / "none"),
        lambda: flashfs.dump(tmp_path / "none"), lambda: flashfs.open(short),
    ]  # fmt: skip
    for call in refused:
        with pytest.raises(flashfs.FlashfsError) as caught:
            call()
        assert isinstance(caught.value, nandimg.ImageError)
        assert str(caught.value) == str(caught.value.__cause__)


def test_an_image_in_use_says_by_whom(tmp_path: Path) -> None:
    flashfs.create(tmp_path / "image", preset="tiny-16")
    with flashfs.open(tmp_path / "image"), pytest.raises(flashfs.FlashfsError) as caught:
        flashfs.clone(tmp_path / "image", tmp_path / "copy")
    assert isinstance(caught.value, InUseError)
    assert caught.value.path == tmp_path / "image"


def test_a_shape_of_no_chip_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(flashfs.UsageError, match="pages_per_block is 3"):
        flashfs.create(tmp_path / "image", pages_per_block=3)


@pytest.mark.parametrize("wrong", [{"cuts": -3}, {"cuts": 0}, {"cuts": 1.5}, {"jobs": 0}, {"length": -1}])
def test_numbers_of_cuts_that_are_none(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(flashfs.UsageError, match=f"{name} = "):
        flashfs.crash("pagemap", **wrong)


def test_tier_every() -> None:
    (row,) = flashfs.crash("pagemap", tier="every", length=0).to_dicts()
    assert (row["tier"], row["failed"]) == ("every", 0)


@pytest.mark.parametrize("call", [
    lambda one: one.stats(), lambda one: one.smart(), lambda one: one.block_map(), lambda one: one.problems(),
    lambda one: one.forget_counts(), lambda one: one.recover(), lambda one: one.quiet_at(), lambda one: one.busy_ns(),
    lambda one: one.read(0, 1), lambda one: one.write(0, b"1"), lambda one: one.trim(0, 1), lambda one: one.flush(),
    lambda one: one.checkpoint(), lambda one: one.extent(0, mapped=True),
])  # fmt: skip
@pytest.mark.parametrize("ftl", ["pagemap", "geckoftl"])
def test_a_closed_device_says_so(ftl: str, call: Callable[[Device], object], tmp_path: Path) -> None:
    """After `with flashfs.open(...) as ssd:`, too."""
    flashfs.create(tmp_path / "image", preset="tiny-288")
    with flashfs.open(tmp_path / "image", ftl=ftl) as ssd:
        ssd.write(0, b"1")
    with pytest.raises(flashfs.UsageError, match="the device is closed"):
        call(ssd)
    assert not ssd.give_back()


@pytest.mark.parametrize(("offset", "length"), [(0, 10**15), (0, -1), (-1, 1)])
def test_what_is_no_range_is_refused_before_memory_is_taken(offset: int, length: int, tmp_path: Path) -> None:
    flashfs.create(tmp_path / "image", preset="tiny-16")
    with flashfs.open(tmp_path / "image") as ssd, pytest.raises(flashfs.UsageError, match=f"length {length}"):
        ssd.read(offset, length)


def test_what_is_written_has_its_bytes_in_a_row(tmp_path: Path) -> None:
    flashfs.create(tmp_path / "image", preset="tiny-16")
    numbers = np.arange(256, dtype=np.int32)
    with flashfs.open(tmp_path / "image") as ssd:
        assert ssd.write(0, numbers) == 1024
        assert ssd.read(0, 1024) == numbers.tobytes()
        assert ssd.write(0, numbers.reshape(16, 16)) == 1024
        for wrong in ("text", numbers[::2], 7):
            with pytest.raises(flashfs.UsageError, match="use bytes, or an array"):
                ssd.write(0, wrong)
        assert ssd.read(0, 1024) == numbers.tobytes()
