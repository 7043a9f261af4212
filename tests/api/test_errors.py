"""What the functions raise: FlashfsErrors, also where the chip refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import flashfs
import nandimg
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
