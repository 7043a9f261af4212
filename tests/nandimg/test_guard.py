"""A page of the image that the host cannot give is an unreadable page, never the end of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nandimg import PRESETS, Image, create, inspect, open_image

OK, TORN = 1, 2


def test_a_page_cut_off_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chip.nand"
    create(path, PRESETS["small-64m"].geometry)
    image = open_image(path)
    image.bind("some", {}, 24)
    data = os.urandom(image.chip.page_bytes)
    image.chip.program_page(0, 0, data, b"oob")
    assert image.chip.read_page(0, 0)[1] == data
    image.chip.program_page(0, 1, None, b"oob")
    os.truncate(path, inspect(path).layout.data_at)
    assert image.chip.read_page(0, 0)[0] == TORN
    assert image.chip.read_page(0, 1)[:2] == (OK, bytes(image.chip.page_bytes))  # it needs nothing of the file's data
    image.close()


def chip_with_a_page(path: Path) -> Image:
    create(path, PRESETS["small-64m"].geometry)
    image = open_image(path)
    image.bind("some", {}, 24)
    image.chip.program_page(0, 0, os.urandom(image.chip.page_bytes), b"oob")
    image.chip.synchronise()
    assert image.chip.lost is None
    return image


@pytest.mark.parametrize("region", ["boot_at", "table_at", "nvram_at", "spare_at"])
def test_tables_cut_off_the_file(tmp_path: Path, region: str) -> None:
    """Zeros stand in for them, nothing is believed that needs them, and nothing can be changed any more."""
    image = chip_with_a_page(tmp_path / "chip.nand")
    chip = image.chip
    os.truncate(tmp_path / "chip.nand", getattr(inspect(tmp_path / "chip.nand").layout, region))
    assert chip.read_page(0, 0)[0] != OK
    with pytest.raises(OSError, match="it was truncated while it was open"):
        chip.synchronise()
    for change in (
        lambda: chip.program_page(0, 1, None, b"oob"),
        lambda: chip.erase_block(3),
        lambda: chip.retire_block(3),
        lambda: chip.write_boot_slot(0, bytes(64)),
        chip.synchronise,
    ):
        with pytest.raises(OSError, match="it was truncated"):
            change()
    assert chip.lost is not None
    image.close()


def test_a_file_that_is_as_long_as_ever_again(tmp_path: Path) -> None:
    """A program of the last page restores the file's length; that must not hide what is gone."""
    image = chip_with_a_page(tmp_path / "chip.nand")
    chip, layout = image.chip, inspect(tmp_path / "chip.nand").layout
    last = chip.blocks - 1
    for page in range(chip.pages_per_block - 1):
        chip.program_page(last, page, None, b"oob")
    os.truncate(tmp_path / "chip.nand", layout.data_at)
    with pytest.raises(OSError, match="it was truncated"):
        chip.program_page(last, chip.pages_per_block - 1, bytes(chip.page_bytes), b"oob")
    image.close()


def test_two_chips_of_which_one_is_cut(tmp_path: Path) -> None:
    one, other = chip_with_a_page(tmp_path / "one"), chip_with_a_page(tmp_path / "other")
    os.truncate(tmp_path / "one", 0)
    assert one.chip.read_page(0, 0)[0] != OK
    other.chip.program_page(0, 1, None, b"oob")
    other.chip.synchronise()
    assert other.chip.lost is None
    one.close()
    again = chip_with_a_page(tmp_path / "again")  # in the place of the first
    again.chip.synchronise()
    assert again.chip.lost is None
    for image in (other, again):
        image.close()
