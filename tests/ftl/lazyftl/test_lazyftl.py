"""LazyFTL's own: the share of the cache that may be dirty, what is written for it, and when a recovery writes back."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import nandimg
from flashfs import inspect
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from nandimg import Geometry

PAGE = 512
SMALL = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=128, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def lazy(slots: int = 200, ftl: str = "lazyftl", **options: int) -> Device:
    return Device.memory(SMALL, ftl, {"buffer": 0, "cmt_bytes": slots * ENTRY_BYTES, **options})


def put(device: Device, lpa: int, n: int = 1) -> None:
    device.ssd.write_pages(np.arange(lpa, lpa + n, dtype=np.uint32), np.full(n * PAGE, lpa % 251, np.uint8))


@pytest.mark.parametrize(("dirty", "slots"), [(10, 200), (10, 8), (3, 400), (50, 64)])
def test_no_more_is_dirty_than_may_be(dirty: int, slots: int) -> None:
    device = lazy(slots, dirty=dirty)
    mapping, rnd, most = device.ssd.mapping, random.Random(dirty), 0
    assert mapping.dirty_most == max(1, slots * dirty // 100)
    for turn in range(4_000):
        if turn % 7:
            put(device, rnd.randrange(SMALL.lpas - 40), rnd.choice((1, 1, 3, 40)))
        else:
            device.trim(rnd.randrange(SMALL.lpas - 9) * PAGE, 9 * PAGE)
        assert mapping.cmt.dirty_n <= mapping.dirty_most
        most = max(most, mapping.cmt.dirty_n)
    assert most == mapping.dirty_most
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert device.problems() == []


def test_the_page_whose_dirty_entry_is_the_oldest_is_written() -> None:
    """20 may be dirty: the 21st writes the page of the first, with all dirty entries that it has, and no other."""
    device = lazy(200)
    for page in range(5):
        put(device, page * PAGE // 4, 1)
    put(device, 2, 15)
    assert device.ssd.mapping.figures()["translation_programs"] == 0
    put(device, 5 * PAGE // 4)
    found = device.ssd.mapping.figures()
    assert (found["translation_programs"], found["entries_written"], found["bound_writes"]) == (1, 16, 1)
    assert device.ssd.mapping.cmt.queue() == [1, 2, 3, 4, 5]


def test_the_bound_costs_programs() -> None:
    """The same writes with the whole cache dirty write fewer translation pages."""
    programs = {}
    for ftl in ("lazyftl", "dftl"):
        device, rnd = lazy(400, ftl), random.Random(1)
        for _ in range(4_000):
            put(device, rnd.randrange(SMALL.lpas))
        programs[ftl] = device.ssd.mapping.figures()["translation_programs"]
    assert programs["lazyftl"] > 2 * programs["dftl"]


def test_a_recovery_writes_what_it_found_before_the_host_is_served(tmp_path: Path) -> None:
    """The step `sync`, after the recovery's checkpoint; a read-only mount leaves it out."""
    path, how = tmp_path / "image.nand", {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES)}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl="lazyftl", options=how) as device:
        put(device, 0, 900)
    device = Device.open(path, options=how)
    for lpa in range(0, 900, 9):
        put(device, lpa)
    device.flush()
    device.close(clean=False)
    with Device.open(path, options=how, readonly=True) as device:
        assert "sync" not in [step.name for step in device.recovery.steps]
        assert device.ssd.mapping.pending.n >= 100
    with Device.open(path, options=how) as device:
        step = next(step for step in device.recovery.steps if step.name == "sync")
        assert device.ssd.mapping.pending.n == 0
        assert step.reads >= int(step.note.split()[3])
        assert device.ssd.mapping.figures()["translation_programs"] > 0
        assert device.ssd.mapping.cmt.dirty_n == 0
        assert step.virtual_us > 0
        assert step.note.endswith("translation pages")
        assert device.problems() == []


def filled(path: Path, ftl: str, **options: str) -> dict[str, str]:
    """An image with 900 LPAs written, unmounted clean; the options of a mount."""
    how = {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES), **options}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl=ftl, options=how) as device:
        put(device, 0, 900)
    return {name: value for name, value in how.items() if name != "fence"}


def worn_and_killed(path: Path, how: dict[str, str], turns: int, seed: int) -> np.ndarray:
    """``turns`` flushed writes over the first 900 LPAs, then death; what the LPAs hold."""
    device, rnd = Device.open(path, options=how), random.Random(seed)
    for turn in range(turns):
        lpa = rnd.randrange(880)
        device.ssd.write_pages(np.arange(lpa, lpa + 3, dtype=np.uint32), np.full(3 * PAGE, turn % 255, np.uint8))
    device.flush()
    held = np.frombuffer(device.read(0, 900 * PAGE), np.uint8)
    device.close(clean=False)
    return held


@pytest.mark.parametrize("ftl", ["lazyftl", "ibftl"])
def test_a_crash_is_recovered_from_pages(ftl: str, tmp_path: Path) -> None:
    """Translation pages, the pages programmed since the fence before the last, and a table read whole for validity."""
    path = tmp_path / "image.nand"
    how = filled(path, ftl)
    for seed in range(4):
        held = worn_and_killed(path, how, 700, seed)
        with Device.open(path, options=how) as device:
            steps = {step.name: step for step in device.recovery.steps}
            every = device.ssd.mapping.from_pages.every
            assert 0 < steps["scan"].spare_reads <= 2 * every + 8 * 32 + 64
            assert steps["named"].reads >= device.ssd.mapping.figures()["translation_pages"]
            assert steps["translation"].spare_reads > 0
            assert steps["checkpoint"].reads <= 2
            assert (np.frombuffer(device.read(0, 900 * PAGE), np.uint8) == held).all()
            assert device.problems() == []
            assert device.recovery.alarms == []


@pytest.mark.parametrize("ftl", ["lazyftl", "ibftl"])
def test_without_fences_a_crash_is_recovered_from_a_checkpoint(ftl: str, tmp_path: Path) -> None:
    path = tmp_path / "image.nand"
    how = filled(path, ftl, fence="0")
    held = worn_and_killed(path, how, 300, 5)
    with Device.open(path, options=how) as device:
        names = [step.name for step in device.recovery.steps]
        assert "named" not in names
        assert "sync" in names
        assert (np.frombuffer(device.read(0, 900 * PAGE), np.uint8) == held).all()


@pytest.mark.parametrize("ftl", ["lazyftl", "ibftl"])
def test_a_translation_page_that_is_lost_loses_no_page(ftl: str, tmp_path: Path) -> None:
    """The newest version of one was durable and cannot be read: all pages are read, and it is reported."""
    path = tmp_path / "image.nand"
    how = filled(path, ftl)
    held = worn_and_killed(path, how, 900, 2)
    with Device.open(path, options=how) as device:  # recovered; then a crash with everything in flash
        device.checkpoint()
        device.close(clean=False)
    with Device.open(path, options=how, readonly=True) as device:
        ppa = device.ssd.mapping.gtd.entries()[2]["ppa"]
    with path.open("r+b") as file:
        file.seek(inspect.header(path)["layout"]["data_at"] + ppa * PAGE)
        file.write(b"spoilt")
    with Device.open(path, options=how) as device:
        assert any("all pages are read" in alarm for alarm in device.recovery.alarms)
        assert (np.frombuffer(device.read(0, 900 * PAGE), np.uint8) == held).all()
        assert device.problems() == []
