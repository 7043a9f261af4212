"""The data cache against the plainest LRU there is, and a device with one against the same device without."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from schemes import KINDS

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import Geometry

GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=700)
PAGE = GEOMETRY.page_bytes
SLOT = PAGE + 20


def tables_bytes(ftl: str) -> int:
    with Device.memory(GEOMETRY, ftl, {"buffer": 4}) as device:
        return int(device.stats()["dram"]["total"])


def with_slots(ftl: str, slots: int) -> Device:
    """A device whose cache has exactly so many slots. The budget is set after it is made: a scheme whose table may
    grow into it would refuse one so small."""
    device = Device.memory(GEOMETRY, ftl, {"buffer": 4})
    device.ssd.set_budget(tables_bytes(ftl) + slots * SLOT)
    assert device.ssd.cache.slots == slots
    return device


@pytest.mark.parametrize("ftl", KINDS)
@pytest.mark.parametrize("slots", [7, 20, 64])
def test_it_is_lru_and_changes_no_answer(ftl: str, slots: int) -> None:
    rnd = random.Random(slots)
    device, plain = with_slots(ftl, slots), Device.memory(GEOMETRY, ftl, {"buffer": 4})
    model: OrderedDict[int, None] = OrderedDict()
    hits = misses = 0
    written: set[int] = set()

    def put(lpa: int) -> None:
        model[lpa] = None
        model.move_to_end(lpa)
        if len(model) > slots:
            model.popitem(last=False)

    for step in range(4_000):
        lpa = rnd.randrange(100) if rnd.random() < 0.7 else rnd.randrange(GEOMETRY.lpas)
        kind = rnd.random()
        if kind < 0.5:
            assert device.read(lpa * PAGE, PAGE) == plain.read(lpa * PAGE, PAGE)
            if lpa in model:
                hits += 1
                model.move_to_end(lpa)
            else:
                misses += 1
                if lpa in written and device.ssd.buffer.held == 0:
                    put(lpa)
        elif kind < 0.9:
            data = rnd.randbytes(PAGE)
            device.write(lpa * PAGE, data)
            plain.write(lpa * PAGE, data)
            model.pop(lpa, None)
            put(lpa)
            written.add(lpa)
        else:
            device.trim(lpa * PAGE, PAGE)
            plain.trim(lpa * PAGE, PAGE)
            model.pop(lpa, None)
            written.discard(lpa)
        if device.ssd.buffer.held:
            device.flush()  # so that what is read and not cached comes from flash
        assert device.ssd.cache.pages() == list(reversed(model)), step
    assert (device.ssd.cache.hits, device.ssd.cache.misses) == (hits, misses)
    assert device.ssd.check() == []
    assert device.read(0, device.size) == plain.read(0, plain.size)


@pytest.mark.parametrize("ftl", KINDS)
def test_a_hit_reads_no_flash(ftl: str) -> None:
    device = with_slots(ftl, 40)
    device.write(0, bytes(range(256)) * 2 * 40)
    device.flush()
    before = device.ssd.operations()[0]
    assert device.read(0, 40 * PAGE) == bytes(range(256)) * 2 * 40
    assert device.ssd.operations()[0] == before
    assert device.ssd.cache.hits == 40


@pytest.mark.parametrize("ftl", KINDS)
def test_a_read_without_data_leaves_no_page_behind(ftl: str) -> None:
    """What was only checked, its data left where they are, must not be taken for what was read."""
    device = with_slots(ftl, 40)
    device.write(0, b"\x77" * (60 * PAGE))  # more than the cache holds: the first pages are not in it any more
    device.flush()
    device.ssd.read_pages(np.arange(10, dtype=np.uint32))
    assert device.read(0, 10 * PAGE) == b"\x77" * (10 * PAGE)


def test_the_budget_holds_as_tables_grow_and_shrink() -> None:
    """What the cache has is what is left; a smaller share gives up what was used longest ago."""
    device = with_slots("pagemap", 50)
    device.write(0, bytes(50 * PAGE))
    stats = device.stats()
    assert stats["dram"]["data_cache"] == 50 * SLOT
    assert stats["dram"]["total"] <= device.ssd.budget < stats["dram"]["total"] + SLOT
    last = device.ssd.cache.pages()
    device.ssd.set_budget(tables_bytes("pagemap") + 10 * SLOT)
    assert device.ssd.cache.slots == 10
    assert device.ssd.cache.held == 0
    device.write(0, bytes(50 * PAGE))
    assert device.ssd.cache.pages() == last[:10]


def test_a_crash_takes_the_cache_and_nothing_else(tmp_path: object) -> None:
    path = f"{tmp_path}/chip"
    nandimg.create(path, GEOMETRY)
    budget = tables_bytes("pagemap") + 32 * 1024 + 100 * SLOT
    device = Device.open(path, ftl="pagemap", dram=budget)
    device.write(0, b"\x5a" * (80 * PAGE))
    device.flush()
    device.close(clean=False)
    with Device.open(path, dram=budget) as again:
        assert again.ssd.cache.slots and not again.ssd.cache.held
        assert again.read(0, 80 * PAGE) == b"\x5a" * (80 * PAGE)
        assert again.ssd.cache.held == min(80, again.ssd.cache.slots)


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BindError, match="pagemap needs"):
        Device.memory(GEOMETRY, "pagemap", dram=1000)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ftl", KINDS)
def test_a_mount_takes_no_more_than_it_is_given(ftl: str, clean: bool, tmp_path: object) -> None:
    """A cache full of dirty entries: the mount must put them somewhere, and that memory counts."""
    import nandimg

    geometry = Geometry(page_bytes=512, pages_per_block=32, blocks=400, channels=2, dies=4, oob_bytes=64, lpas=8_000)
    path = f"{tmp_path}/chip"
    nandimg.create(path, geometry)
    with Device.memory(geometry, ftl, {"buffer": 4}) as device:
        budget = int(device.stats()["dram"]["total"]) + 60_000
    device = Device.open(path, ftl=ftl, options={"buffer": "4"}, dram=budget)
    lpas = np.random.default_rng(3).permutation(geometry.lpas).astype(np.uint32)
    for _ in range(2):
        for lpa in lpas.tolist():
            device.write(lpa * PAGE, bytes(PAGE))
        assert device.stats()["dram"]["total"] <= budget
        device.close(clean=clean)
        device = Device.open(path, options={"buffer": "4"}, dram=budget)
        assert device.recovery.clean == clean
        if not clean:  # what a crash left to be found is written first
            for lpa in lpas[:200].tolist():
                device.write(lpa * PAGE, bytes(PAGE))
        assert device.stats()["dram"]["total"] <= budget
    device.close()


LARGE = Geometry(page_bytes=4096, pages_per_block=64, blocks=800, channels=4, dies=4, oob_bytes=64, lpas=40_000)
BUDGET = 3 << 20


@pytest.mark.parametrize("ftl", ["dftl", "tpftl", "sftl"])
def test_the_data_cache_has_what_the_cache_of_the_map_has_not_filled(ftl: str) -> None:
    """A new device has most of that for data. Entries come first: the budget holds at each step, and all of it is in
    use."""
    rnd = random.Random(3)
    with Device.memory(LARGE, ftl, {"buffer": 0, "cmt_bytes": 1 << 20}, dram=BUDGET) as device:
        mapping, cache = device.ssd.mapping, device.ssd.cache
        lent, slots = mapping.lent, cache.slots
        assert lent > 100_000
        for step in range(400):
            lpas = rnd.sample(range(LARGE.lpas), 100)
            device.ssd.write_pages(np.array(lpas[:90], np.uint32), np.zeros(90 * 4096, np.uint8))
            device.ssd.read_pages(np.array(lpas, np.uint32))
            total = device.stats()["dram"]["total"]
            assert BUDGET - 4096 - 20 - 65_536 < total <= BUDGET
            assert step % 100 or device.problems() == []  # they would say that what is lent is in use
        assert mapping.lent < 0.8 * lent
        assert slots - cache.slots == pytest.approx((lent - mapping.lent) / (4096 + 20), abs=20)
        assert cache.held == cache.slots > 0
        assert device.problems() == []


def test_reads_alone_give_back_what_the_cache_of_the_map_begins_to_use(tmp_path: Path) -> None:
    """After a mount it is empty, and nothing is written that would be an occasion to look."""
    chip = replace(LARGE, page_bytes=512)
    path, options = tmp_path / "chip", {"buffer": "0", "cmt_bytes": "1000000"}
    nandimg.create(path, chip)
    rnd = random.Random(4)
    with Device.open(path, ftl="dftl", options=options) as device:
        for _ in range(400):
            lpas = np.array(rnd.sample(range(chip.lpas), 100), np.uint32)
            device.ssd.write_pages(lpas, np.zeros(len(lpas) * 512, np.uint8))
    with Device.open(path, options=options, dram=BUDGET) as device:
        lent = device.ssd.mapping.lent
        assert lent > 100_000
        for lpa in rnd.sample(range(chip.lpas), 20_000):
            device.ssd.read_pages(np.array([lpa], np.uint32))
        assert device.ssd.mapping.lent < lent / 2
        assert device.problems() == []  # they would say that what is lent is in use
        assert device.stats()["dram"]["total"] <= BUDGET


def test_a_condensed_map_leaves_its_share_to_the_data_cache() -> None:
    """S-FTL's entries of a device that was written in order take less room than its cache has, and data keeps that."""
    with Device.memory(LARGE, "sftl", {"buffer": 0, "cmt_bytes": 1 << 20}, dram=BUDGET) as device:
        for first in range(0, LARGE.lpas, 200):
            device.ssd.write_pages(np.arange(first, first + 200, dtype=np.uint32), np.zeros(200 * 4096, np.uint8))
        assert device.ssd.mapping.lent > 50_000
        assert BUDGET - 4096 - 20 < device.stats()["dram"]["total"] <= BUDGET


def test_trims_give_back_what_they_take_of_a_condensed_map() -> None:
    """A hole in a run of S-FTL's makes three entries of one, and no page is written that would be an occasion."""
    with Device.memory(LARGE, "sftl", {"buffer": 0, "cmt_bytes": 1 << 20}, dram=BUDGET) as device:
        for first in range(0, LARGE.lpas, 200):
            device.ssd.write_pages(np.arange(first, first + 200, dtype=np.uint32), np.zeros(200 * 4096, np.uint8))
        lent = device.ssd.mapping.lent
        for lpa in range(0, LARGE.lpas, 2):
            device.ssd.trim_pages(lpa, 1)
        assert device.ssd.mapping.lent < lent
        assert device.problems() == []
        assert device.stats()["dram"]["total"] <= BUDGET


def test_pages_that_were_dropped_keep_no_memory_of_a_smaller_cache() -> None:
    """Their slots are spare, but a page in each was used: with the pages in use they are no more than may be."""
    with Device.memory(LARGE, "dftl", {"buffer": 0, "cmt_bytes": 1 << 20}, dram=BUDGET) as device:
        device.ssd.write_pages(np.arange(0, LARGE.lpas, 200, dtype=np.uint32), np.zeros(200 * 4096, np.uint8))
        device.ssd.fit_cache()
        cache, n = device.ssd.cache, device.ssd.cache.slots
        assert n > 200
        device.ssd.write_pages(np.arange(n, dtype=np.uint32), np.zeros(n * 4096, np.uint8))
        assert (cache.held, cache.warm) == (n, 0)
        device.ssd.trim_pages(0, n - 100)
        assert (cache.held, cache.warm) == (100, n - 100)
        device.ssd.write_pages(np.arange(1000, 1050, dtype=np.uint32), np.zeros(50 * 4096, np.uint8))
        assert (cache.held, cache.warm) == (150, n - 150)  # slots with memory are used first
        for first in range(2000, LARGE.lpas, 200):
            device.ssd.read_pages(np.arange(first, first + 200, dtype=np.uint32), np.zeros(200 * 4096, np.uint8))
        assert cache.slots < n  # the map's cache has filled
        assert cache.held + cache.warm <= cache.slots
        assert device.problems() == []
