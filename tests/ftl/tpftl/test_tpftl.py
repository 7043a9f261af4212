"""TPFTL's own: the two-level cache against a model of it, prefetching, what leaves first, what a write-back takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schemes import thinned
from two_levels import TwoLevels

import nandimg
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.parts.paged.tpftl_map import UNIT_TAKES
from nandimg import Geometry
from nandimg._torn import spoil

PAGE = 512
PER_PAGE = PAGE // 4
#: 24 translation pages; room for cleaning
SMALL = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=128, channels=4, dies=4, oob_bytes=64, lpas=3_000)
#: so much room that nothing is cleaned
WIDE = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=16_384, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def tpftl(units: int, geometry: Geometry = SMALL, **options: Any) -> Device:
    how = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": units * UNIT_TAKES, **options}
    return Device.memory(geometry, "tpftl", how)


def figures(device: Device) -> dict[str, Any]:
    found: dict[str, Any] = device.ssd.mapping.figures()
    return found


def page_of(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def write(device: Device, first: int, n: int = 1) -> None:
    lpas = np.arange(first, first + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.frombuffer(b"".join(page_of(lpa) for lpa in range(first, first + n)), np.uint8))


def read(device: Device, first: int, n: int = 1, t_ns: int = 0) -> tuple[bytes, int]:
    into = bytearray(n * PAGE)
    end = device.ssd.read_pages(np.arange(first, first + n, dtype=np.uint32), np.frombuffer(into, np.uint8), t_ns)
    return bytes(into), end


KINDS_OF_CACHE = [(units, how) for how in ("both", "request", "selective", "none") for units in (8, 24, 100, 400)]


@pytest.mark.parametrize(("units", "prefetch"), [*thinned(KINDS_OF_CACHE[:8], 2), *thinned(KINDS_OF_CACHE[8:], 2, 1)])
def test_the_cache_is_the_models(units: int, prefetch: str) -> None:
    """Look-ups, hits, loads, what is prefetched and what leaves are those of the model, exactly: single pages, runs
    longer than the cache, hot ones and cold, forwards."""
    rnd = random.Random(f"{units} {prefetch}")
    device, model = tpftl(units, WIDE, prefetch=prefetch), TwoLevels(units, PER_PAGE, prefetch)
    forwards = 0
    for turn in range(2_500):
        first = int(WIDE.lpas * rnd.random() ** 3)
        n = rnd.choice((1, 1, 1, 2, 8, 40, 140))
        if turn // 100 % 3 == 2:  # requests that follow one another
            first, n = forwards, 3
            forwards = (forwards + 3) % 2_900
        n = min(n, WIDE.lpas - first)
        writing = rnd.random() < 0.6
        (write if writing else read)(device, first, n)
        model.request(first, n, writing, WIDE.lpas - 1)
    found = figures(device)
    names = ("lookups", "hits", "loads", "evictions", "prefetched")
    assert {name: found[name] for name in names} == {name: getattr(model, name) for name in names}
    assert found["dirty_evictions"] == model.written
    assert [(node["page"], node["entries"]) for node in sorted(device.ssd.mapping.cmt.nodes(), key=lambda x: x["page"])
            ] == sorted((page, len(node.order)) for page, node in model.nodes.items())  # fmt: skip
    assert "gc" not in device.stats()["nand"]["by_cause"]["program"]
    assert device.problems() == []


@pytest.mark.parametrize("units", [8, 60, 300])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_cached_is_what_is_there(units: int, seed: int) -> None:
    """Through cleaning, trims and prefetching: each entry says where its page lies, and what is clean is in flash."""
    rnd = random.Random(seed)
    device, written = tpftl(units), set()
    for turn in range(3_000):
        first, n = rnd.randrange(SMALL.lpas - 150), rnd.choice((1, 1, 3, 60, 150))
        what = rnd.random()
        if what < 0.5:
            write(device, first, n)
            written |= set(range(first, first + n))
        elif what < 0.6:
            device.trim(first * PAGE, n * PAGE)
            written -= set(range(first, first + n))
        else:
            expected = b"".join(page_of(lpa) if lpa in written else bytes(PAGE) for lpa in range(first, first + n))
            assert read(device, first, n)[0] == expected
        if turn % 50 == 0:
            where = block_map.locations(device.ssd)
            for entry in device.ssd.mapping.cmt.entries():
                said = 2**32 - 1 if entry["ppa"] is None else entry["ppa"]
                assert said == where[entry["lpa"]], entry
            assert device.problems() == []
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0


def test_a_request_costs_one_miss_in_a_translation_page() -> None:
    """64 pages in order, none of them cached: one miss, one translation read, and all of them wait for it."""
    device = tpftl(200)
    write(device, 0, SMALL.lpas)
    before = figures(device)
    start = device.quiet_at() + 1_000
    read(device, 0, 64, start)  # long gone: the cache has the last pages
    after = figures(device)
    assert after["lookups"] - before["lookups"] == 64
    assert after["misses"] - before["misses"] == after["loads"] - before["loads"] == 1
    alone, first = tpftl(200, prefetch="none"), None
    write(alone, 0, SMALL.lpas)
    first = figures(alone)["loads"]
    read(alone, 0, 64)
    assert figures(alone)["loads"] - first == 64


def test_what_is_prefetched_is_not_known_before_its_page_is_read() -> None:
    device = tpftl(200)
    write(device, 0, SMALL.lpas)
    start = device.quiet_at() + 1_000
    one = SMALL.read_ns + SMALL.transfer_ns
    reads = figures(device)["loads"]
    _, end = read(device, 3, 2, start)
    assert figures(device)["loads"] == reads + 1
    assert end >= start + 2 * one


def test_selective_prefetching_follows_the_nodes() -> None:
    """Three nodes more evicted than loaded: on, and a miss after three cached neighbours brings three more. Three more
    loaded: off."""
    device = tpftl(400, WIDE, prefetch="selective")
    write(device, 0, WIDE.lpas)
    device.trim(0, 5 * PER_PAGE * PAGE)  # trims take nodes away, and count for nothing
    mapping = device.ssd.mapping
    device, model = tpftl(24, WIDE), TwoLevels(24, PER_PAGE)
    turns = []
    for lpa in range(1_500):
        read(device, lpa * 7 % WIDE.lpas if lpa % 300 < 60 else lpa)
        model.request(lpa * 7 % WIDE.lpas if lpa % 300 < 60 else lpa, 1, False, WIDE.lpas - 1)
        turns.append(device.ssd.mapping.cmt.selective)
        assert turns[-1] == model.selective
    assert True in turns and False in turns
    assert mapping.check() == []


def test_clean_entries_leave_before_dirty_ones_and_these_go_together() -> None:
    """Of the coldest node the clean entries go first; then one program takes all its dirty ones, which stay."""
    device = tpftl(8, WIDE, prefetch="none")  # a node and two chunks, or more
    write(device, 0, PER_PAGE)
    write(device, 2 * PER_PAGE)
    before = figures(device)
    for lpa in range(5):
        write(device, lpa)
    while figures(device)["dirty_evictions"] == before["dirty_evictions"]:
        read(device, 5 * PER_PAGE + figures(device)["lookups"] % PER_PAGE)
    after = figures(device)
    entries = device.ssd.mapping.cmt.entries()
    assert after["evicted_entries"] - before["evicted_entries"] >= 5
    assert all(not entry["dirty"] for entry in entries if entry["node"] == 0)
    assert device.problems() == []


def test_the_cache_takes_what_it_says() -> None:
    device = Device.memory(SMALL, "tpftl", {"buffer": 0}, dram=100_000)
    assert sum(packed for packed, _ in device.ssd.dram().values()) <= 100_000
    small = tpftl(8)
    with pytest.raises(BindError, match="tpftl needs"):
        Device.memory(SMALL, "tpftl", {"buffer": 0, "cmt_bytes": 8 * UNIT_TAKES},
                      dram=sum(packed for packed, _ in small.ssd.dram().values()) - 1)  # fmt: skip


def test_a_page_that_cannot_be_read_is_made_again() -> None:
    device = tpftl(16)
    write(device, 0, 1_000)
    device.trim(5 * PAGE, PAGE)
    device.flush()
    for entry in device.ssd.mapping.directory.entries()[:3]:
        spoil(device.nand, *divmod(entry["ppa"], SMALL.pages_per_block))
    for lpa in range(1_000):
        assert read(device, lpa)[0] == (bytes(PAGE) if lpa == 5 else page_of(lpa))
    assert figures(device)["rebuilds"] >= 2


def test_reading_goes_on_where_nothing_may_be_written(tmp_path: Path) -> None:
    """And what was dirty at an unmount is in the cache again, as far as there is room."""
    path, how = tmp_path / "image.nand", {"buffer": "0", "cmt_bytes": str(30 * UNIT_TAKES)}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl="tpftl", options=how) as device:
        for lpa in range(0, 3_000, 5):
            write(device, lpa)
        dirty = device.ssd.mapping.cmt.dirty_n
        assert dirty > 0
    with Device.open(path, options=how, readonly=True) as device:
        assert device.ssd.mapping.cmt.dirty_n + device.ssd.mapping.pending.n == dirty
        for lpa in range(3_000):
            assert read(device, lpa)[0] == (bytes(PAGE) if lpa % 5 else page_of(lpa))
        assert device.stats()["nand"]["program"] == 0
