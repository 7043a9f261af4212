"""Numbers that no device writes, under checksums that are right: an image opens, or is refused, and nothing is believed
that names no page of the chip."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import fuzz_mutate
import pytest
from fuzz_bases import bases
from fuzz_images import Judge
from fuzz_picture import picture, write

from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.ftl import muftl, scheme
from flashfs.parts.battery.map_battery import layout

MADE = bases()
NONE = 2**32 - 1
GECKO_HEAD, GECKO_ENTRY = 32, 5  #: bytes of a page's header, and of an entry of a block of eight pages


@pytest.mark.parametrize("number", [22, 269, 791, 951, 1616, 1693, 2218, 3097])
def test_numbers_that_no_device_writes(judge: Judge, number: int) -> None:
    """Entries of translation pages that name no page of the chip, and orders of blocks by which all pages of a block
    were meant for another one, its first page too. Checksums are right."""
    rnd = Random(f"a/{number}")
    only = rnd.choice(("any_section", "metadata_page", "metadata_page"))
    judge.image(rnd.choice(MADE), rnd, only=only)


@pytest.mark.parametrize("number", [336, 1355, 1641, 2057])
def test_entries_in_nvram_that_no_device_writes(judge: Judge, number: int) -> None:
    """Pages beyond a superblock, LPAs beyond the device; entries that are gone, whose LPAs are still at the page."""
    rnd = Random(f"y/{number}")
    judge.image(rnd.choice(MADE.of("remapssd")), rnd, only="remapping_metadata")


@pytest.mark.parametrize("word", [1 << 63 | 1, 1], ids=["page", "none"])
def test_a_frame_of_a_page_that_the_bitmap_does_not_have(tmp_path: Path, word: int) -> None:
    """In a battery whose sum proves it: in the frames that are not used, a page far beyond, or none at all."""
    believed = 0
    for base in MADE.of("muftl"):
        p = picture(base.raw)
        region = p.region("muftl")
        if region is None:  # it was never mounted
            continue
        heads = region[0] + 64 + 8 * (8 + p.geometry.blocks + 1)  # after fixed words, blocks, and its one page
        unused = [at for at in range(heads, heads + 4 * 8, 8) if p.word(at) == 0]
        if p.word(region[0]) == 0 or not unused:
            continue
        for at in unused:
            p.put_word(at, word)
        fuzz_mutate.seal_battery(p, region[0], region[1] - 64)
        with Device.open(write(tmp_path / "chip", p), plp=base.plp) as device:
            believed += any(one.name == "battery" and "entries" in one.note for one in device.recovery.steps)
            assert device.problems() == []
    assert believed


def test_a_pointer_to_no_page_of_the_tree(tmp_path: Path) -> None:
    """In a battery whose sum proves it: the pointer has no number of a page. None of the battery's words count then."""
    refused = 0
    for base in MADE.of("muftl"):
        p = picture(base.raw)
        region = p.region("muftl")
        if region is None or p.word(region[0]) == 0:
            continue
        options = {one.name: one.default for one in scheme("muftl").options} | (p.header.options or {})
        shape = muftl._shape(p.geometry, p.geometry.lpas, options)
        first = region[0] + 64 + 8 * layout(p.geometry.blocks, shape, 0, 0)[3]
        unused = [at for at in range(first, first + 8 * shape[2], 8) if p.word(at) == 0]
        p.put_word(unused[0], 5)
        fuzz_mutate.seal_battery(p, region[0], region[1] - 64)
        with Device.open(write(tmp_path / "chip", p), plp=base.plp) as device:
            notes = [one.note for one in device.recovery.steps if one.name == "battery"]
            refused += any("where there is no page" in note for note in notes)
            assert device.problems() == []
    assert refused


def test_an_entry_of_the_last_sequence_number(tmp_path: Path) -> None:
    """In NVRAM of remapssd, whose words no checksum covers: the device goes on with numbers that it can count up."""
    forged, path = 0, tmp_path / "chip"
    for base in MADE.of("remapssd"):
        p = picture(base.raw)
        region = p.region("rmm")
        if region is None:
            continue
        for at in range(region[0] + 64, region[0] + region[1] - 1023, 1024):
            if p.word(at) & p.word(at + 8) & 1 and p.word(at + 16) & p.word(at + 24) & 1:
                p.put_word(at, p.word(at) | 63 << 49)
                p.put_word(at + 16, p.word(at + 16) | (2**42 - 1) << 22)
                forged += 1
        with Device.open(write(path, p), plp=base.plp) as device:
            device.write(0, b"new " * (device.page_bytes // 4))
            device.flush()
        with Device.open(path) as device:
            assert device.read(0, 4) == b"new "
    assert forged


def test_entries_of_gecko_that_are_not_ascending(tmp_path: Path) -> None:
    """The last but one of each page is of the chip's last block, all others are of the first: what is read of the last
    block must not go by the entry after it. The page counts as one that cannot be read."""
    changed, path = 0, tmp_path / "chip"
    for base in MADE.of("geckoftl"):
        p = picture(base.raw)
        for ppa in p.metadata(3):
            data = bytearray(p.data(ppa))
            n = int.from_bytes(data[4:8], "little")
            if data[:4] != b"GKRN" or n < 2:
                continue
            for i in range(n):
                key = 2 * (p.geometry.blocks - 1) if i == n - 2 else 0
                struct.pack_into("<I", data, GECKO_HEAD + GECKO_ENTRY * i, key)
            p.put_data(ppa, bytes(data))
            changed += 1
        write(path, p)
        with suppress(FlashfsError):
            inspect.blocks(path)
        with suppress(FlashfsError), Device.open(path, plp=base.plp) as device:
            device.problems()
    assert changed
