"""S-FTL's own: what condensed pages say against a plain table, what they take, which leave, and the dirty buffer."""

from __future__ import annotations

import random
import struct
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.ftl.sftl.mapping import least_units
from nandimg import Geometry
from nandimg._torn import spoil

PAGE = 512
PER_PAGE = PAGE // 4
UNIT = 48 + PER_PAGE // 8
NONE = 2**32 - 1
#: 24 translation pages; room for cleaning
SMALL = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=128, channels=4, dies=4, oob_bytes=64, lpas=3_000)
#: one die, and so much room that nothing is cleaned: what is written in order is one run, block by block
ROOMY = Geometry(page_bytes=PAGE, pages_per_block=128, blocks=1_024, oob_bytes=64, lpas=20_000)


def sftl(cache_bytes: int, geometry: Geometry = SMALL, **options: Any) -> Device:
    return Device.memory(geometry, "sftl", {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": cache_bytes, **options})


def figures(device: Device) -> dict[str, Any]:
    found: dict[str, Any] = device.ssd.mapping.figures()
    return found


def page_of(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def write(device: Device, first: int, n: int = 1) -> None:
    lpas = np.arange(first, first + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.frombuffer(b"".join(page_of(lpa) for lpa in range(first, first + n)), np.uint8))


def read(device: Device, first: int, n: int = 1) -> bytes:
    into = bytearray(n * PAGE)
    device.ssd.read_pages(np.arange(first, first + n, dtype=np.uint32), np.frombuffer(into, np.uint8))
    return bytes(into)


def runs_of(image: list[int]) -> int:
    """A plain count: a run ends where a PPA is not one more than the one before, or a hole begins or ends."""
    return 1 + sum(
        two != one + 1 if NONE not in (one, two) else one != two for one, two in pairwise(image))


def hold_against_a_table(device: Device, geometry: Geometry) -> None:
    """Each cached page says where its LPAs lie, by block_map, but for those that wait in the buffer; and what is not
    dirty is what its translation page in flash says."""
    mapping = device.ssd.mapping
    where = block_map.locations(device.ssd).tolist()
    where += [NONE] * (-len(where) % PER_PAGE)
    waits = dict(mapping.pending.entries())
    newer = set(mapping.dirty_entries()[0].tolist()) | set(waits)
    places = {one["page"]: one["ppa"] for one in mapping.directory.entries()}
    for one in mapping.cmt.entries():
        page, first = one["page"], one["page"] * PER_PAGE
        image = mapping.cmt.image_of(page).tolist()
        stored = [NONE] * PER_PAGE
        if page in places:
            raw = device.nand.read_page(*divmod(places[page], geometry.pages_per_block))[1]
            stored = list(struct.unpack(f"<{PER_PAGE}I", raw))
        assert one["runs"] == runs_of(image)
        for i in range(PER_PAGE):
            if first + i not in waits:
                assert image[i] == where[first + i]
                assert first + i in newer or image[i] == stored[i], (page, i)


@pytest.mark.parametrize("cache_bytes", [500, 1_500, 4_000, 9_000])
@pytest.mark.parametrize("dirty_buffer", [0, 10, 40])
def test_condensed_pages_say_what_a_plain_table_says(cache_bytes: int, dirty_buffer: int) -> None:
    """Through writes that break runs and join them, cleaning, trims, evictions and the buffer."""
    rnd = random.Random(f"{cache_bytes} {dirty_buffer}")
    device, written = sftl(cache_bytes, dirty_buffer=dirty_buffer), set()
    for turn in range(2_000):
        first, n = rnd.randrange(SMALL.lpas - 200), rnd.choice((1, 1, 1, 3, 60, 200))
        what = rnd.random()
        if what < 0.55:
            write(device, first, n)
            written |= set(range(first, first + n))
        elif what < 0.65:
            device.trim(first * PAGE, n * PAGE)
            written -= set(range(first, first + n))
        else:
            expected = b"".join(page_of(lpa) if lpa in written else bytes(PAGE) for lpa in range(first, first + n))
            assert read(device, first, n) == expected
        if turn % 40 == 0:
            hold_against_a_table(device, SMALL)
            assert device.problems() == []
    found = figures(device)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert (found["evictions"] > 0) == (cache_bytes < 9_000)  # all of them fit there
    assert (found["buffered"] > 0) == (found["buffer_most"] > 0 and cache_bytes < 9_000)


def test_what_is_in_order_takes_a_unit_and_what_is_not_takes_more() -> None:
    """By the paper's count a page of E entries in R runs takes E / 8 + 4 R bytes; here it takes units of its bits and
    a head's room, in which other heads lie."""
    device = sftl(1 << 20, ROOMY)
    write(device, 0, 8 * PER_PAGE)
    device.checkpoint()
    held = device.ssd.mapping.cmt.entries()
    assert [one["page"] for one in held] == list(range(8))
    assert all(one["runs"] <= 2 and one["bytes"] == 2 * UNIT for one in held)  # one of them says what is dirty
    assert figures(device)["condensed_bytes"] == 8 * PER_PAGE // 8 + 4 * sum(one["runs"] for one in held)
    rnd = random.Random(1)
    for lpa in rnd.sample(range(PER_PAGE), PER_PAGE):
        write(device, lpa)
    page = next(one for one in device.ssd.mapping.cmt.entries() if one["page"] == 0)
    assert page["runs"] > 100
    assert page["bytes"] == (2 + -(-(page["runs"] - 4) // (UNIT // 4 - 1))) * UNIT


def test_clean_pages_leave_as_from_a_plain_lru() -> None:
    """Pages in order take a unit each: so many are cached, and reads hit as in an LRU of so many pages."""
    device = sftl(3_000, ROOMY, dirty_buffer=0)
    write(device, 0, ROOMY.lpas)
    for lpa in range(0, ROOMY.lpas, PER_PAGE):  # what was dirty leaves
        read(device, lpa)
    units, rnd, lru = figures(device)["units"], random.Random(3), OrderedDict[int, None]()
    assert units == 3_000 // UNIT < 157
    for lpa in range(ROOMY.lpas - 1, 0, -PER_PAGE):
        read(device, lpa)
        lru[lpa // PER_PAGE] = None
    while len(lru) > units:
        lru.popitem(last=False)
    before, hits = figures(device), 0
    for _ in range(5_000):
        lpa = int(ROOMY.lpas * rnd.random() ** 2)
        read(device, lpa)
        hits += lpa // PER_PAGE in lru
        lru[lpa // PER_PAGE] = None
        lru.move_to_end(lpa // PER_PAGE)
        if len(lru) > units:
            lru.popitem(last=False)
    after = figures(device)
    assert after["hits"] - before["hits"] == hits
    assert after["loads"] - before["loads"] == 5_000 - hits
    assert [one["page"] for one in device.ssd.mapping.cmt.entries()] == list(lru)


def test_requests_in_order_miss_once_a_page() -> None:
    device = sftl(3_000, ROOMY)
    write(device, 0, ROOMY.lpas)
    before = figures(device)
    for lpa in range(0, 19_968, 64):
        read(device, lpa, 64)
    after = figures(device)
    assert after["misses"] - before["misses"] <= 19_968 // PER_PAGE
    assert after["loads"] - before["loads"] == after["misses"] - before["misses"]


def test_a_page_with_few_dirty_entries_leaves_without_a_program() -> None:
    """They wait in the buffer. When that is full, the page that has most there goes, all of it in one program; or the
    page that leaves, if it has more."""
    device = sftl(4_000, ROOMY, dirty_buffer=12)  # 40 entries
    write(device, 0, 60 * PER_PAGE)
    for page in range(60):
        read(device, page * PER_PAGE)
    for page in range(60):
        read(device, page * PER_PAGE)
    start = figures(device)
    assert start["buffer_most"] == 40 and start["pending"] + start["dirty"] == 0
    for page, n in ((0, 7), (1, 20), (2, 7)):
        for lpa in range(n):
            write(device, page * PER_PAGE + 3 * lpa)
    for page in range(3, 60):
        read(device, page * PER_PAGE)
    found = figures(device)
    assert found["pending"] == found["buffered"] - start["buffered"] == 34
    assert found["translation_programs"] == start["translation_programs"]
    for lpa in range(9):
        write(device, 3 * PER_PAGE + 3 * lpa)
    for page in range(4, 60):
        read(device, page * PER_PAGE)
    found = figures(device)
    assert found["translation_programs"] - start["translation_programs"] == 1
    assert found["buffer_writes"] - start["buffer_writes"] == 1
    assert sorted({lpa // PER_PAGE for lpa, _ in device.ssd.mapping.pending.entries()}) == [0, 2, 3]
    reads = found["translation_reads"]
    for lpa in range(50):
        write(device, 4 * PER_PAGE + lpa)
    for page in range(5, 60):
        read(device, page * PER_PAGE)
    found = figures(device)
    assert found["translation_programs"] - start["translation_programs"] == 2
    assert found["buffer_writes"] - start["buffer_writes"] == 1
    assert found["translation_reads"] == reads + 56  # pages 4 to 59: what is cached is not read to be written
    assert device.problems() == []


def test_an_entry_in_the_buffer_is_a_hit_and_counts_before_a_page() -> None:
    device = sftl(4_000, ROOMY, dirty_buffer=12)
    write(device, 0, 60 * PER_PAGE)
    for _ in range(2):
        for page in range(60):
            read(device, page * PER_PAGE)
    write(device, 5)
    for page in range(1, 60):
        read(device, page * PER_PAGE)
    assert device.ssd.mapping.explain(5)["where"] == "pending"
    before = figures(device)
    write(device, 5)
    assert read(device, 5) == page_of(5)
    after = figures(device)
    assert after["hits"] - before["hits"] == 2
    assert after["loads"] == before["loads"]
    read(device, 6)
    assert device.ssd.mapping.explain(5)["where"] == "cached"
    assert figures(device)["pending"] == 0
    hold_against_a_table(device, ROOMY)


def test_the_cache_takes_what_it_says() -> None:
    for share in (0, 10, 90):
        device = Device.memory(SMALL, "sftl", {"buffer": 0, "dirty_buffer": share}, dram=140_000)
        assert sum(packed for packed, _ in device.ssd.dram().values()) <= 140_000
    assert figures(sftl(1))["units"] == least_units(PER_PAGE)
    small = sftl(1)
    with pytest.raises(BindError, match="sftl needs"):
        Device.memory(SMALL, "sftl", {"buffer": 0, "cmt_bytes": 1},
                      dram=sum(packed for packed, _ in small.ssd.dram().values()) - 1)  # fmt: skip


def test_a_page_that_cannot_be_read_is_made_again_or_written_from_the_cache() -> None:
    device = sftl(1_500)
    write(device, 0, SMALL.lpas)
    device.trim(5 * PAGE, PAGE)
    for page in range(24):
        read(device, page * PER_PAGE)
    device.flush()
    for entry in device.ssd.mapping.directory.entries()[:8]:
        spoil(device.nand, *divmod(entry["ppa"], SMALL.pages_per_block))
    for lpa in range(SMALL.lpas):
        assert read(device, lpa) == (bytes(PAGE) if lpa == 5 else page_of(lpa))
    assert figures(device)["rebuilds"] >= 2


def test_reading_goes_on_where_nothing_may_be_written(tmp_path: Path) -> None:
    path, how = tmp_path / "image.nand", {"buffer": "0", "cmt_bytes": "1500"}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl="sftl", options=how) as device:
        for lpa in range(0, 3_000, 5):
            write(device, lpa)
    with Device.open(path, options=how, readonly=True) as device:
        for lpa in range(3_000):
            assert read(device, lpa) == (bytes(PAGE) if lpa % 5 else page_of(lpa))
        assert device.stats()["nand"]["program"] == 0
