"""Wear levelling that scans: a few figures of the whole chip in DRAM, a spare area read for each page programmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schemes import FEW, KINDS

import nandimg
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

GEOMETRY = Geometry(page_bytes=512, pages_per_block=8, blocks=1024, dies=2, channels=1, oob_bytes=64, lpas=7200)
HOT = 8  #: pages: 0.1 % of them; without wear levelling, the spare blocks take all erases then
SPREAD = 8
SLACK = 12  #: erases beyond it: a block in use may lag 4 more, and each waits for the scan and its turn
NEVER = 1 << 20


def worn(ftl: str, batches: int = 1_500, pages: int = 40, **options: Any) -> Device:
    """A device that was written once, and then in few pages only, so many at a time."""
    device = Device.memory(GEOMETRY, ftl, {"buffer": 0, "wear_spread": SPREAD, **options}, backend="meta")
    rng = np.random.default_rng(1)
    device.ssd.write_pages(np.arange(GEOMETRY.lpas, dtype=np.uint32))
    for _ in range(batches):
        device.ssd.write_pages(rng.integers(0, HOT, pages, dtype=np.uint32))
    return device


def erases(device: Device) -> list[int]:
    return [device.nand.erase_count(block) for block in range(device.nand.blocks)]


@pytest.mark.parametrize("ftl", KINDS)
def test_few_hot_blocks_do_not_run_ahead(ftl: str) -> None:
    device = worn(ftl, wear="scan")
    wear = device.smart()["erases"]
    without = worn(ftl, wear_spread=NEVER).smart()["erases"]
    assert without["spread"] > 5 * (SPREAD + SLACK)
    # where hashes choose the blocks, which of them is opened is no matter of wear alone
    # the least worn superblock is opened, whichever of its blocks is most worn; a merge opens blocks one after another
    slack = SLACK + 4 * (SCHEMES[ftl].by_superblock or SCHEMES[ftl].merges)
    assert wear["spread"] <= (without["spread"] / 3 if SCHEMES[ftl].hashed else SPREAD + slack)
    assert wear["max"] > SPREAD + 4  # it did have something to level
    assert device.stats()["nand"]["by_cause"]["program"]["wear"] > GEOMETRY.lpas
    assert device.problems() == []


@pytest.mark.parametrize("ftl", FEW)
def test_where_all_blocks_lag_at_once_few_are_emptied(ftl: str) -> None:
    """One for as many programs as half the spread takes: a fourth of all, at a spread of 8, if each block is full."""
    device = worn(ftl, batches=20_000, pages=1, wear="scan")
    programs = device.stats()["nand"]["program"]
    assert 0 < device.stats()["nand"]["by_cause"]["program"]["wear"] <= programs / (SPREAD // 2)


def test_a_spare_area_is_read_for_each_page_programmed() -> None:
    """On whosever account: of what the last request programmed the next one reads."""
    for reads in (1, 3):
        device = worn("dftl", wear="scan", wear_reads=reads)
        device.ssd.idle()
        nand = device.stats()["nand"]
        assert len(nand["by_cause"]["program"]) > 3
        last = nand["program"] - device.ssd.pool.programs_n  # nothing: the pool's count is the chip's
        assert last == 0
        read = nand["by_cause"]["spare_read"]["wear_scan"]
        assert 0 <= nand["program"] * reads - read <= GEOMETRY.pages_per_block * 2 * reads  # a block emptied just now


def test_the_scan_takes_time_of_the_dies_and_nothing_else() -> None:
    exact, scan = (worn("pagemap", batches=200, wear_spread=NEVER, wear=how) for how in ("exact", "scan"))
    read = scan.stats()["nand"]["by_cause"]["spare_read"].pop("wear_scan")
    assert read > 5_000
    assert "wear_scan" not in exact.stats()["nand"]["by_cause"]["spare_read"]
    assert scan.stats()["nand"]["program"] == exact.stats()["nand"]["program"]
    busy = [sum(device.busy_ns()["dies"]) for device in (exact, scan)]
    assert busy[1] - busy[0] == read * GEOMETRY.spare_ns > 0


def test_what_is_known_of_all_blocks_is_so() -> None:
    """After a round without erases meanwhile: the figures are those of the blocks that have pages."""
    device = worn("pagemap", wear="scan", wear_reads=1024, wear_spread=NEVER)
    for _ in range(10):
        device.ssd.idle()
        before = erases(device)
        device.ssd.write_pages(np.arange(2, dtype=np.uint32))
        device.ssd.idle()  # two rounds are due: whatever was under way ends, and another
        device.ssd.write_pages(np.arange(1, dtype=np.uint32))
        device.ssd.idle()  # here the figures of that one come to count
        if erases(device) == before:
            break
    else:
        pytest.fail("a block is opened for every other page")
    known = device.smart()["levelling"]
    used = [block for block in range(device.nand.blocks) if device.nand.read_spare_area(block, 0)[0] == 1]
    counts = [before[block] for block in used]
    assert (known["by"], known["blocks"]) == ("scan", len(used))
    assert known["erases"] == {"min": min(counts), "max": max(counts), "mean": round(float(np.mean(counts)), 3)}
    orders = [int.from_bytes(device.nand.read_spare_area(block, 0)[1][12:17], "little") for block in used]
    last = device.ssd.pool.last_order
    assert known["age"]["min"] == last - max(orders)
    assert known["age"]["max"] == last - min(orders)
    assert known["age"]["mean"] == pytest.approx(last - float(np.mean(orders)), abs=0.01)


def test_its_tables_are_as_large_on_any_chip() -> None:
    rows = []
    for blocks in (64, 4096):
        geometry = Geometry(page_bytes=512, pages_per_block=8, blocks=blocks, oob_bytes=64, lpas=blocks * 6)
        exact, scan = (Device.memory(geometry, "pagemap", {"wear": how}, backend="meta") for how in ("exact", "scan"))
        own = scan.stats()["dram"].pop("wear")
        rows.append(own)
        assert "wear" not in exact.stats()["dram"]
        assert scan.stats()["dram"]["total"] - exact.stats()["dram"]["total"] == own
    assert rows == [76, 76]


def test_it_is_chosen_at_each_mount(tmp_path: Path) -> None:
    """No byte of the image depends on it. Mounts may be shorter than a round: each begins somewhere else."""
    image = tmp_path / "img"
    nandimg.create(image, GEOMETRY, backend="meta")
    for how in ("exact", "scan", "exact", "scan"):
        with Device.open(image, ftl="pagemap", options={"wear": how, "wear_spread": "4", "buffer": "0"}) as device:
            rng = np.random.default_rng(2)
            for _ in range(100):
                device.ssd.write_pages(rng.integers(0, GEOMETRY.lpas, 40, dtype=np.uint32))
            assert device.smart()["levelling"]["by"] == how
            assert device.problems() == []
    with pytest.raises(UsageError, match="use exact or scan"):
        Device.memory(GEOMETRY, "pagemap", {"wear": "some"})
