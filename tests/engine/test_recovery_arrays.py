"""What a recovery gathers, in arrays: the order of pages, the newest trim of an LPA; and the steps of its parts."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rig import sections_bytes

from flashfs import ftl as registry
from flashfs.device import Device, saved_bytes
from flashfs.engine.recovery.found_pages import in_order
from flashfs.engine.recovery.recovery import Recovery
from flashfs.engine.recovery.trim_index import newest_of
from flashfs.parts.defaults.page_bitmap import PageBitmap
from nandimg import Geometry, create

Row = tuple[int, int, int, int]
PAGES = 16
MOVED = 1
GEOMETRY = Geometry(page_bytes=512, pages_per_block=PAGES, blocks=64, oob_bytes=64, lpas=600)


def placed(rnd: random.Random, keys: list[int], copies: int) -> list[Row]:
    """Rows of so many versions of each key, some of which were moved a few times; the newest of a key comes last."""
    rows = [
        (seq, MOVED * (moves > 0) | (moves & 15) << 4, key, 0)
        for key in keys
        for seq in sorted(rnd.sample(range(1, 1 << 40), copies))
        for moves in range(rnd.choice((1, 1, 2, 5)))
    ]
    ppas = sorted(rnd.sample(range(4 * len(rows)), len(rows)))  # a copy lies in a block that was opened later
    return [(seq, flags, key, ppa) for (seq, flags, key, _), ppa in zip(rows, ppas, strict=True)]


@pytest.mark.parametrize(
    ("keys", "copies"), [(1, 1), (1, 40), (3, 300), (5_000, 2), (200, 30), (40_000, 1)], ids=str
)
@pytest.mark.parametrize("memory", [1 << 30, 1 << 15], ids=["memory", "file"])
def test_pages_found_are_put_in_order(keys: int, copies: int, memory: int) -> None:
    rnd = random.Random(keys * copies)
    rows = placed(rnd, sorted(rnd.sample(range(1 << 24), keys)), copies)
    orders = np.arange(rows[-1][3] // PAGES + 1, dtype=np.uint64)
    shuffled = rnd.sample(rows, len(rows))
    assert in_order(shuffled, orders, PAGES, 1 << 24, memory) == rows


def test_an_lpa_that_was_written_a_million_times() -> None:
    """More pages of neighbours than are sorted with a second buffer."""
    n = (1 << 20) + 5
    rows = [(seq, 0, seq * 7 // n, 3 * seq) for seq in range(1, n)]
    orders = np.arange(3 * n // PAGES + 1, dtype=np.uint64)
    assert in_order(rows[::2] + rows[1::2], orders, PAGES, 1 << 24) == rows  # one bucket of sixty-four has them all


def test_a_file_takes_what_is_too_much_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first record that has no room in memory on; and it grows by doubling."""
    sizes: list[int] = []
    reserve = os.posix_fallocate

    def reserved(fd: int, offset: int, length: int) -> None:
        sizes.append(length)
        reserve(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", reserved)
    rows = [(seq, 0, seq, seq) for seq in range(1, 20_001)]
    orders = np.zeros(20_001 // PAGES + 1, dtype=np.uint64)
    assert in_order(rows[:2_500], orders, PAGES, 1 << 15, 40_000) == rows[:2_500]
    assert sizes == []
    assert in_order(rows, orders, PAGES, 1 << 15, 40_000) == rows
    assert sizes == [80_000, 160_000, 320_000]


def test_a_page_that_was_moved_more_often_than_the_count_goes() -> None:
    """Four bits count the moves. With the order of blocks, which is nearly that of time, forty copies stand right."""
    rows = [(7, MOVED * (moves > 0) | (moves & 15) << 4, 3, moves * PAGES) for moves in range(40)]
    orders = np.arange(40, dtype=np.uint64)
    orders[11], orders[12] = orders[12], orders[11]  # cleaning had a block open for longer
    assert in_order(random.Random(1).sample(rows, 40), orders, PAGES, 10) == rows


@pytest.mark.parametrize("apart", [*range(1, 14), 16, 29])
def test_a_dead_copy_stays_through_many_moves(apart: int) -> None:
    """It is in a worn free block: others are erased first. 14 and 15 moves apart look like one or two less."""
    rows = [(7, MOVED | (moves & 15) << 4, 3, at * PAGES) for at, moves in enumerate((1, 1 + apart))]
    assert in_order(rows[::-1], np.arange(2, dtype=np.uint64), PAGES, 10) == rows


def test_the_newest_trim_of_each_lpa() -> None:
    rnd = random.Random(4)
    for _ in range(50):
        seqs = rnd.sample(range(1, 1000), rnd.randrange(40))
        trims = [(seq, rnd.randrange(300), rnd.randrange(1, 60)) for seq in seqs]
        lpas = sorted(rnd.sample(range(400), 100))
        newest = [max((seq for seq, first, n in trims if first <= lpa < first + n), default=0) for lpa in lpas]
        assert newest_of(trims, lpas) == newest


def test_many_copies_of_few_lpas_and_many_trims(tmp_path: Path) -> None:
    """More pages of one LPA than are sorted by hand, trims over trims, and moves."""
    create(tmp_path / "image", GEOMETRY)
    device = Device.open(tmp_path / "image", options={"buffer": "0", "checkpoint_every": "100000"})
    rnd, model = random.Random(2), dict[int, bytes]()
    for _ in range(1_500):
        lpa, n = rnd.choice((3, 3, 3, rnd.randrange(600))), rnd.randrange(1, 20)
        if rnd.random() < 0.1:
            device.trim(lpa * 512, min(n, 600 - lpa) * 512)
            for gone in range(lpa, min(lpa + n, 600)):
                model.pop(gone, None)
        else:
            model[lpa] = rnd.randbytes(512)
            device.write(lpa * 512, model[lpa])
    device.flush()
    device.close(clean=False)
    with Device.open(tmp_path / "image") as device:
        assert device.recovery.figures["pages_found"] > 500
        assert device.read(0, 600 * 512) == b"".join(model.get(lpa, bytes(512)) for lpa in range(600))
        assert device.problems() == []


# --- what parts contribute


def steps_of(device: Device) -> list[tuple[str, str]]:
    return [(step.part, step.name) for step in device.recovery.steps]


@pytest.mark.parametrize(("ftl", "step"), [("slimftl", "vbt"), ("leaftl", "relearn")])
def test_a_part_contributes_steps(tmp_path: Path, ftl: str, step: str) -> None:
    """They follow the engine's step that they name, are charged and shown."""
    create(tmp_path / "image", GEOMETRY)
    device = Device.open(tmp_path / "image", ftl=ftl)
    device.write(0, bytes(range(256)) * 20)
    device.flush()
    device.close(clean=False)
    with Device.open(tmp_path / "image") as device:
        steps = steps_of(device)
        behind = [("mapping", step), ("engine", "fit"), ("engine", "commit")]
        assert steps[steps.index(("engine", "blocks")) + 1 :] == behind
        own = next(one for one in device.recovery.steps if one.name == step)
        assert own.note and own.about and own.wall_ms > 0 and own.programs == 0


@pytest.mark.parametrize(("name", "after"), [("scan", "blocks"), ("mine", "nowhere")])
def test_a_step_has_a_name_of_its_own_and_a_place(name: str, after: str) -> None:
    device = Device.memory(GEOMETRY)
    recovery: Any = Recovery(device.ssd)
    recovery.parts = {"mapping": type("Part", (), {"recovery_steps": lambda self: [(name, after, "", str)]})()}
    with pytest.raises(ValueError, match="it needs a name of its own"):
        recovery.table()


def test_a_checkpoint_is_the_sum_of_what_parts_ask_for() -> None:
    scheme = registry.SCHEMES["pagemap"]
    parts = scheme.checkpoint_sections(GEOMETRY, scheme.resolve({}))
    assert parts == {"mapping": 4 * 600, "pvb": 64 * 8}
    assert PageBitmap.section_bytes(GEOMETRY) == {"pvb": 64 * 8}
    assert saved_bytes(scheme, GEOMETRY) == 4 * 600 + 64 * 8 + 64 * 10
    device = Device.memory(GEOMETRY)
    assert sections_bytes(device.ssd) == saved_bytes(scheme, GEOMETRY)
