"""Chips that are as small as a scheme accepts do not run full: what superseded pages, runs that are merged two at a
time, and groups of paired pages take is in the account, or let go in time. And the search for a chip that is large
enough ends soon."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError, DeviceFullError, FlashfsError, RoomError
from flashfs.sizing import op as sizing_op
from nandimg import PRESETS, FaultyNand, Geometry, memory_image

PAGE = 512


def used(device: Device, pages: int, writes: int, flush: float, seed: int = 1) -> None:
    """Filled, then pages at random, some of them trimmed."""
    rnd = random.Random(seed)
    for lpa in range(pages):
        device.write(lpa * PAGE, b"z" * PAGE)
    for n in range(writes):
        lpa = rnd.randrange(pages)
        device.write(lpa * PAGE, b"%08d" % n * (PAGE // 8))
        if rnd.random() < 0.03:
            device.trim(rnd.randrange(pages) * PAGE, PAGE)
        if rnd.random() < flush:
            device.flush()
    assert device.problems() == []


@pytest.mark.parametrize(("pages", "per_block", "entries", "op"), [(60, 4, 2, 8.6), (150, 8, 1, 7.0), (150, 8, 3, 3.0)])
def test_runs_of_few_entries_that_are_merged_two_at_a_time(pages: int, per_block: int, entries: int, op: float) -> None:
    chip = Geometry.sized(pages * PAGE, op=op, page_bytes=PAGE, pages_per_block=per_block)
    device = Device.memory(chip, "geckoftl", {"entries": str(entries), "multiway": "0"})
    used(device, pages, 4_000, 0.01)
    gecko = device.ssd.validity.gecko
    assert gecko.merges > 400
    assert gecko.figures()["gecko_pages"] + len(gecko.store.kept_ppas()) <= gecko.pages_most


def smallest(ftl: str, pages: int, **shape: int) -> Geometry:
    """The chip with the least over-provisioning that it accepts."""
    op = 0.02
    while op < 9:
        chip = Geometry.sized(pages * PAGE, op=op, page_bytes=PAGE, nvram_bytes=1 << 20, **shape)
        try:
            Device.memory(chip, ftl)
            return chip
        except FlashfsError:
            op = op * 1.03 + 0.005
    raise AssertionError("no chip was accepted")


@pytest.mark.parametrize("ftl", ["pagemap", "dftl", "sftl", "muftl"])
@pytest.mark.parametrize("flush", [0.05, 1.0])
def test_paired_pages_on_the_smallest_chip(ftl: str, flush: float) -> None:
    """Each sync fills the groups that were begun."""
    chip = smallest(ftl, 700, pages_per_block=8, paired_pages=2)
    used(Device.memory(chip, ftl), chip.lpas, 6 * chip.lpas, flush)


def test_a_chip_of_paired_pages_needs_more() -> None:
    alone = smallest("dftl", 1_000, pages_per_block=8)
    with pytest.raises(BindError, match=r"a sync fills groups of 4 paired pages, .*; use a chip made with --op"):
        Device.memory(Geometry(**{**alone.as_dict(), "paired_pages": 2, "blocks": alone.blocks + 4}), "dftl")


def test_the_message_counts_bad_blocks_only_where_there_are_some() -> None:
    device = Device.memory(PRESETS["tiny-8"].geometry, "pagemap")
    said = str(device.ssd.full("no free block is left"))
    assert said == "no free block is left: 0 pages live in 8 healthy blocks of 4 pages"
    assert isinstance(device.ssd.full("x"), DeviceFullError)
    front = lambda chip: FaultyNand(chip, failing=range(10, 10_000, 3))  # noqa: E731 - the blocks go bad one by one
    device = Device.start(memory_image(PRESETS["tiny-8"].geometry, "file"), "pagemap", {}, front)
    with pytest.raises(DeviceFullError, match=r"\d pages live in \d healthy blocks of 4 pages; \d have gone bad"):
        for n in range(10_000):
            device.write(n % 8 * PAGE, b"x" * PAGE)


def test_a_refusal_comes_soon() -> None:
    """A scheme whose tables grow with the chip fits none: it is not tried on chips of terabytes."""
    chip = Geometry.sized(150 * 4096, op=0.3, page_bytes=4096, pages_per_block=8)
    tried: list[int] = []

    def fits(one: Geometry) -> bool:
        tried.append(one.pages)
        return False

    assert sizing_op.grown(chip, fits) is None
    assert max(tried) <= sizing_op.LARGER_PAGES
    assert len(tried) < 20
    large = Geometry.sized(1 << 32, page_bytes=4096)
    assert sizing_op.grown(large, fits) is None
    assert max(tried) <= sizing_op.LARGER * large.pages
    with pytest.raises(RoomError):
        Device.memory(chip, "geckoftl", {"parts": "50", "entries": "3"})
    assert sizing_op.grown(chip, lambda one: one.pages >= 2 * chip.pages).pages < 2 * chip.pages + 16  # type: ignore[union-attr]


def test_an_image_that_had_room_with_other_options_says_so(tmp_path: Path) -> None:
    """It is in use, so a larger chip is no advice."""
    path = tmp_path / "chip"
    nandimg.create(path, Geometry(page_bytes=512, pages_per_block=8, blocks=125, oob_bytes=64, lpas=900))
    with Device.open(path, ftl="leaftl", options={"gc_reserve": 1}) as device:
        device.write(0, b"kept")
    with pytest.raises(BindError, match="use those that it was bound with"):
        Device.open(path)
    with Device.open(path, options={"gc_reserve": 1}) as device:
        assert device.read(0, 4) == b"kept"
