"""What Remap-SSD's metadata take, scaled to the devices of its paper (sections 3.3 and 4.6)."""

from __future__ import annotations

import pytest

from flashfs.device import Device
from flashfs.engine.device.remaps import remap_pages
from flashfs.ftl.remapssd import ENTRY_BYTES
from nandimg import PRESETS, Geometry

PAGE, MIB, GIB, TIB = 4096, 1 << 20, 1 << 30, 1 << 40


@pytest.fixture(scope="module")
def device() -> Device:
    return Device.memory(PRESETS["remapssd-2g"].geometry, "remapssd", backend="meta")


def test_the_lr_bitmap_of_4_tb_takes_128_mb(device: Device) -> None:
    packed = device.ssd.mapping.tables()["lr_bitmap"][0]
    assert packed / device.ssd.lpas * (4 * TIB / PAGE) / MIB == pytest.approx(128, rel=1e-3)


def test_reference_counts_of_5_tb_take_640_mb(device: Device) -> None:
    nand = device.ssd.nand
    pages = nand.blocks * nand.pages_per_block
    packed = device.ssd.validity.tables()["rc_table"][0]
    assert packed / pages * (5 * TIB / PAGE) / MIB == pytest.approx(640, rel=0.02)


def test_a_gb_that_was_remapped_takes_4_mb_and_heads_a_64th_of_that(device: Device) -> None:
    rmm = device.ssd.mapping.rmm
    entries = rmm.capacity() // rmm.segments
    assert GIB / PAGE * ENTRY_BYTES["remap"] == 4 * MIB
    assert 1 - entries * ENTRY_BYTES["remap"] / 1024 == pytest.approx(0.016, abs=0.0005)


# --- table 2 of the paper, word for word: bits of the 16 bytes of an entry, bit 0 the lowest of the first

TABLE_2 = {
    "torn bit": (0, 0), "flash page offset in superblock": (1, 21), "write/remap sequence number": (22, 63),
    "second torn bit": (64, 64), "target LPN": (65, 95), "remapping flag": (96, 96), "null or source LPN": (97, 127),
}  # fmt: skip
SMALL = Geometry(page_bytes=512, pages_per_block=16, blocks=128, channels=2, dies=4, oob_bytes=64, lpas=1_000)


def fields(raw: bytes) -> dict[str, int]:
    whole = int.from_bytes(raw, "little")
    return {name: whole >> first & (1 << last - first + 1) - 1 for name, (first, last) in TABLE_2.items()}


def entry_of(move: bool, options: dict[str, int | str] | None = None) -> tuple[Device, int, bytes, bytes]:
    """A device on which LPA 345 was remapped to the page of LPA 2, and moved there or not; the remap's sequence
    number; the head of the segment, and the entry."""
    device = Device.memory(SMALL, "remapssd", {"buffer": 0, **(options or {})})
    for lpa in range(20):
        device.write(lpa * 512, bytes([lpa]) * 512)
    seq = device.ssd.seq + 1
    remap_pages(device.ssd, 345, 2, 1, move)
    at, size = device.nand.region("rmm")
    raw = device.nand.nvram(at, size)
    head = next(i for i in range(64, size, 1024) if raw[i] & raw[i + 8] & 1)
    each = ENTRY_BYTES[str((options or {}).get("atomic", "remap"))]
    return device, seq, raw[head : head + each], raw[head + each : head + 2 * each]


def order_of(device: Device, ppa: int) -> int:
    """When the block of a page was opened, as the page's OOB says."""
    oob = device.nand.read_spare_area(*divmod(ppa, SMALL.pages_per_block))[1]
    return int.from_bytes(oob[12:17], "little")


@pytest.mark.parametrize("move", [False, True])
def test_the_bits_of_an_entry_are_those_of_table_2(move: bool) -> None:
    device, seq, _, entry = entry_of(move)
    ppa = device.ssd.mapping.explain(345)["ppa"]
    assert fields(entry) == {
        "torn bit": 1,
        "flash page offset in superblock": ppa % (4 * 16),
        "write/remap sequence number": seq,
        "second torn bit": 1,
        "target LPN": 345,
        "remapping flag": int(move),
        "null or source LPN": 2 if move else order_of(device, ppa),  # where the paper has null
    }


def test_the_fields_of_table_2_are_the_whole_of_16_bytes() -> None:
    bits = [bit for first, last in TABLE_2.values() for bit in range(first, last + 1)]
    assert bits == list(range(8 * ENTRY_BYTES["remap"]))


def test_an_entry_as_bytes() -> None:
    """The same by hand, of LPA 345 from LPA 2."""
    device, seq, head, entry = entry_of(move=True)
    page = device.ssd.mapping.explain(345)["ppa"] % 64
    assert entry == (1 | page << 1 | seq << 22).to_bytes(8, "little") + (1 | 345 << 1 | 1 << 32 | 2 << 33).to_bytes(
        8, "little")  # fmt: skip
    superblock = device.ssd.mapping.explain(345)["ppa"] // 64
    assert head[8:] == (1 | superblock << 1).to_bytes(8, "little")  # the first of its group, the last so far


def test_an_atomic_command_takes_the_24_bytes_of_the_paper() -> None:
    """Table 2's words, and a third with the command's first LPA and length."""
    *_, entry = entry_of(False, {"atomic": "command"})
    assert fields(entry[:16])["target LPN"] == 345
    third = int.from_bytes(entry[16:], "little")
    assert (third & 1, third >> 1 & 2**31 - 1, third >> 32 & 2**31 - 1, third >> 63) == (1, 345, 0, 1)


def test_a_segment_is_a_head_and_63_entries() -> None:
    device, *_ = entry_of(False)
    rmm = device.ssd.mapping.rmm
    assert rmm.capacity() == 63 * rmm.segments
