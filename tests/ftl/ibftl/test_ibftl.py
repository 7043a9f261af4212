"""IB-FTL's own: the validity log against a plain bitmap, its chains, its cleaning, and what damage leaves of it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import nandimg
from flashfs.crash.bench import Bench
from flashfs.crash.cases import Case
from flashfs.device import Device
from flashfs.engine.recovery import found
from flashfs.engine.views import block_map
from flashfs.parts.paged.cmt import ENTRY_BYTES
from nandimg import Geometry
from nandimg._torn import spoil

PAGE = 512
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=256, channels=2, dies=2, oob_bytes=64, lpas=2_400)
OPTIONS = {"buffer": 0, "cmt_bytes": 300 * ENTRY_BYTES, "fanout": 4, "nodes": 2}


def ibftl(**options: int) -> Device:
    return Device.memory(SMALL, "ibftl", {**OPTIONS, **options})


def put(device: Device, lpa: int, n: int = 1) -> None:
    lpas = np.arange(lpa, lpa + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.repeat(lpas % 251, PAGE).astype(np.uint8))


def worked(device: Device, turns: int, seed: int = 1, trims: bool = True) -> Device:
    rnd = random.Random(seed)
    for turn in range(turns):
        lpa = rnd.randrange(SMALL.lpas - 16)
        if trims and turn % 9 == 0:
            device.trim(lpa * PAGE, 16 * PAGE)
        else:
            put(device, lpa, rnd.choice((1, 1, 1, 4, 16)))
    return device


def named(device: Device) -> dict[int, set[int]]:
    """{block: its live pages}, as the owners of the pages name them: the plain bitmap."""
    live: dict[int, set[int]] = {block: set() for block in range(SMALL.blocks)}
    ppas = [ppa for ppa in block_map.locations(device.ssd).tolist() if ppa < SMALL.pages]
    for ppa in [*ppas, *(at for _, at in device.ssd.owned_pages())]:
        live[ppa // SMALL.pages_per_block].add(ppa % SMALL.pages_per_block)
    return live


@pytest.mark.parametrize("log", [100, 200, 400])
def test_the_log_says_what_a_bitmap_says(log: int) -> None:
    """After each stretch of writes, trims, cleaning, checkpoints, for every block."""
    device = ibftl(log=log)
    for stretch in range(12):
        worked(device, 250, stretch)
        if stretch % 4 == 3:
            device.checkpoint()
        expected = named(device)
        for block in range(SMALL.blocks):
            assert set(device.ssd.validity.live_in(block)) == expected[block], (stretch, block)
        assert device.problems() == []
    figures = device.ssd.validity.figures()
    assert figures["log_programs"] > 20
    assert figures["log_discarded"] > 0


def test_a_chain_leads_back_through_the_log() -> None:
    device = worked(ibftl(), 2_000)
    log = device.ssd.validity
    lengths = []
    for block in range(SMALL.blocks):
        chain = log.chain(block)
        places = [entry["position"] for entry in chain if entry["position"] is not None]
        pages = [entry["page"] for entry in chain]
        assert len(set(pages)) == len(pages)
        assert not set(pages) & set(log.live_in(block))
        lengths.append(len(places))
    assert max(lengths) > 3


def test_the_oldest_page_is_reclaimed_beyond_x_entries() -> None:
    """X = 2 D: what is logged again is about one entry an entry at most (Appendix E), and the log does not grow."""
    device = ibftl(cmt_bytes=2_400 * ENTRY_BYTES)
    put(device, 0, SMALL.lpas)
    worked(device, 6_000, trims=False)
    log = device.ssd.validity
    figures = log.figures()
    assert log.entries_most == 2 * (SMALL.blocks * SMALL.pages_per_block - SMALL.lpas)
    assert figures["log_pages"] <= log.pages_most + 2
    assert 0 < figures["log_reinserted"] <= figures["log_discarded"]


def test_neither_directory_nor_bitmap_is_in_dram() -> None:
    device = worked(ibftl(), 500)
    tables = device.ssd.dram()
    assert not {"gtd", "pvb"} & tables.keys()
    assert tables["pvl_heads"] == tables["pvl_stamps"] == (4 * SMALL.blocks, 4 * SMALL.blocks)
    assert not {"gtd", "pvb"} & {*device.ssd.mapping.save(), *device.ssd.validity.save()}


def test_a_page_of_the_log_that_cannot_be_read_costs_nothing_but_time() -> None:
    device = worked(ibftl(), 1_500)
    device.checkpoint()
    ppas = [ppa for ppa in device.ssd.validity.page_ppas() if ppa is not None]
    for ppa in ppas[:: max(1, len(ppas) // 5)]:
        spoil(device.nand, *divmod(ppa, SMALL.pages_per_block))
    assert device.ssd.validity.problems_in_flash() != []
    worked(device, 1_500, 7)
    assert device.ssd.validity.figures()["log_rebuilds"] >= 1
    device.checkpoint()
    assert device.problems() == []
    expected = named(device)
    for block in range(SMALL.blocks):
        assert set(device.ssd.validity.live_in(block)) == expected[block], block


def test_a_crash_is_recovered_from_the_whole_log(tmp_path: Path) -> None:
    path, how = tmp_path / "image.nand", {name: str(value) for name, value in OPTIONS.items()}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl="ibftl", options=how) as device:
        worked(device, 1_500)
    for seed in range(3):
        device = Device.open(path, options=how)
        worked(device, 150, seed)
        device.flush()
        pages = device.ssd.validity.figures()["log_pages"]
        device.close(clean=False)
    with Device.open(path, options=how) as device:
        steps = {step.name: step for step in device.recovery.steps}
        assert steps["named"].reads >= pages // 2 > 0
        anew = int(steps["named"].note.split("pages, ")[-1].split()[0])
        assert anew < SMALL.blocks // 2, "the chains of the others stand"
        assert steps["sync"].programs > 0
        assert device.problems() == []
        expected = named(device)
        for block in range(SMALL.blocks):
            assert set(device.ssd.validity.live_in(block)) == expected[block], block


@pytest.mark.parametrize("left", [40, 1, -1])
@pytest.mark.parametrize("fence", ["0", "1"])
def test_a_clock_of_32_bits_goes_round(monkeypatch: pytest.MonkeyPatch, left: int, fence: str) -> None:
    """Orders have 40 bits, the log's clock has 32: entries count by what lies between them. The order begins so many
    blocks before 2^32, once with a log from before, as no chip is old enough for."""

    class Aged(found.LoadedCheckpoint):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: object, **settings: object) -> None:
            super().__init__(*arguments, **settings)
            self.order = (1 << 32) - left

    chip = (("dies", 1), ("pages_per_block", 16), ("blocks", 60), ("lpas", 560))
    bench = Bench(Case("ibftl", "f", "tiny-288", options=(("fence", fence),), chip=chip))
    chance = random.Random(left)
    try:
        bench.format()
        bench.step("w", 0, 560)
        bench.flush()
        bench.ssd.checkpoint(True)
        with monkeypatch.context() as patch:
            patch.setattr(found, "LoadedCheckpoint", Aged)
            bench.mount()
        for turn in range(500):
            bench.step("w", chance.randrange(550), chance.choice((1, 3, 9)))
            if turn % 10 == 0:
                bench.flush()
            if turn % 170 == 169:
                bench.power_on()
                bench.mount()
                assert bench.judge.all_crashed(bench.read_all()) is None
        assert bench.ssd.pool.last_order > 1 << 32
        assert bench.judge.not_newest(bench.read_all()) is None
        assert bench.ssd.check() == []
    finally:
        bench.release()
