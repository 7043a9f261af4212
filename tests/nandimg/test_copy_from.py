"""A chip in memory that becomes another one holds what it holds, and the two are apart from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nandimg
from nandimg import PRESETS, Cut, FaultyNand, PowerCut

GEOMETRY = PRESETS["tiny-16"].geometry
PAGE = GEOMETRY.page_bytes


def contents(chip: nandimg.Nand) -> list[object]:
    pages = [chip.read_page(b, p) for b in range(GEOMETRY.blocks) for p in range(GEOMETRY.pages_per_block)]
    blocks = [(chip.erase_count(b), chip.block_health(b)) for b in range(GEOMETRY.blocks)]
    return [pages, blocks, [chip.boot_slot(0), chip.boot_slot(1)], chip.nvram(0, GEOMETRY.nvram_bytes)]


def used_chip() -> nandimg.Image:
    """Programmed, erased, retired, torn."""
    image = nandimg.memory_image(GEOMETRY)
    for page in range(5):
        image.chip.program_page(3, page, bytes([page]) * PAGE, b"oob%d" % page)
        image.chip.program_page(4, page, None, b"none")
    image.chip.erase_block(4)
    image.chip.program_page(4, 0, b"\7" * PAGE, b"again")
    image.chip.retire_block(9)
    with pytest.raises(PowerCut):
        FaultyNand(image.chip, [Cut(1, "oob-only")]).program_page(3, 5, b"\1" * PAGE, b"torn")
    image.chip.synchronise()
    return image


def test_it_holds_the_same_and_is_apart() -> None:
    one, other = used_chip(), nandimg.memory_image(GEOMETRY)
    blank = contents(other.chip)
    other.chip.copy_from(one.chip)
    before = contents(one.chip)
    assert contents(other.chip) == before != blank
    other.chip.program_page(3, 6, b"\2" * PAGE, b"next")
    other.chip.erase_block(4)
    assert contents(one.chip) == before
    assert contents(other.chip) != before
    other.chip.copy_from(one.chip)
    assert contents(other.chip) == before
    other.chip.copy_from(nandimg.memory_image(GEOMETRY).chip)
    assert contents(other.chip) == blank


def test_it_forgets_what_a_controller_forgets() -> None:
    one, other = used_chip(), used_chip()
    other.chip.copy_from(one.chip)
    assert sum(map(sum, other.chip.counters().values())) == 0
    assert other.chip.clock()["dies"] == [0] * GEOMETRY.dies


@pytest.mark.parametrize("other", ["another layout", "another spare area", "a file", "no data"])
def test_a_chip_that_differs_is_refused(other: str, tmp_path: Path) -> None:
    chip = nandimg.memory_image(GEOMETRY).chip
    if other == "another layout":
        odd = nandimg.memory_image(replace(GEOMETRY, blocks=24)).chip
    elif other == "another spare area":
        odd = nandimg.memory_image(replace(GEOMETRY, oob_bytes=32)).chip
    elif other == "no data":
        odd = nandimg.memory_image(GEOMETRY, "meta").chip
    else:
        nandimg.create(tmp_path / "image", GEOMETRY)
        odd = nandimg.open_image(tmp_path / "image").chip
    with pytest.raises(ValueError, match="layout"):
        odd.copy_from(chip)
