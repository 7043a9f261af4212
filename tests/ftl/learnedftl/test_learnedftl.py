"""LearnedFTL's own: which reads its models spare, that no model is sure of what is not so, what a mount begins with.
The cache is TPFTL's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.engine.node_map import UNIT_TAKES
from flashfs.engine.superblocks import Superblocks
from flashfs.ftl import scheme
from nandimg import Geometry

PAGE = 512
PER_PAGE = PAGE // 4
#: 24 translation pages; room for cleaning, and for superblocks of 64 pages
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=256, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def learnedftl(units: int = 24, **options: Any) -> Device:
    how = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": units * UNIT_TAKES, **options}
    return Device.memory(SMALL, "learnedftl", how)


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


def reads_since(device: Device, before: dict[str, Any]) -> tuple[int, int, int]:
    after = figures(device)
    cached, modelled, doubled = (after[name] - before[name] for name in ("reads_cached", "reads_modelled",
                                                                         "reads_doubled"))  # fmt: skip
    return cached, modelled, doubled


@pytest.mark.parametrize("place", ["superblocks", "streams"])
@pytest.mark.parametrize("train", ["always", "cleaning"])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_model_is_sure_of_what_is_not_so(place: str, train: str, seed: int) -> None:
    """Through writes in runs and alone, cleaning, trims and write-backs: a bit is set only where the map says what the
    model says, and each page reads as it was written."""
    rnd = random.Random(f"{place} {train} {seed}")
    device, written = learnedftl(place=place, train=train), set()
    assert isinstance(device.ssd.placement, Superblocks) == (place == "superblocks")
    for turn in range(2_000):
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
        if turn % 100 == 0:
            assert device.ssd.mapping.stale() == []
            assert device.problems() == []
    found = figures(device)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert found["models_taken"] and found["reads_modelled"] and found["reads_doubled"]
    assert found["mispredictions"] == 0
    assert found["lookups"] == found["hits"] + found["misses"] + found["reads_modelled"] + found["writes_modelled"]


def test_what_was_written_in_order_is_read_once() -> None:
    """A line of slope 1 for each model, of runs that the host wrote: no look-up reads a translation page, however
    little is cached."""
    device = learnedftl()
    for first in range(0, SMALL.lpas, 60):
        write(device, first, 60)
    assert figures(device)["lpas_modelled"] > 0.95 * SMALL.lpas
    before, reads = figures(device), device.ssd.mapping.store.reads
    known = [lpa for lpa in range(0, SMALL.lpas, 7) if device.ssd.mapping.models.where(lpa) is not None]
    for lpa in known:
        assert read(device, lpa)[0] == page_of(lpa)
    cached, modelled, doubled = reads_since(device, before)
    assert (cached + modelled, doubled) == (len(known), 0)
    assert modelled > 0.9 * len(known)
    assert device.ssd.mapping.store.reads == reads


def test_a_model_hit_takes_one_read_and_a_double_read_two() -> None:
    device = learnedftl(8)
    write(device, 0, SMALL.lpas)
    one = SMALL.read_ns + SMALL.transfer_ns
    for lpa in range(1_000, 1_400):  # what is dirty in the cache makes room for these
        device.ssd.mapping.models.change(lpa)
        read(device, lpa)
    start = device.quiet_at() + 1_000_000
    assert device.ssd.mapping.explain(5)["where"] == "in flash"
    assert read(device, 5, 1, start)[1] == start + one
    device.ssd.mapping.models.change(5)
    start = device.quiet_at() + 1_000_000
    assert read(device, 5, 1, start)[1] == start + 2 * one


def test_a_write_asks_the_model_where_the_page_was() -> None:
    device = learnedftl(8)
    write(device, 0, SMALL.lpas)
    reads, known = device.ssd.mapping.store.reads, figures(device)["writes_modelled"]
    assert device.ssd.mapping.models.where(5) is not None
    write(device, 5)
    found = figures(device)
    assert found["writes_modelled"] == known + 1
    assert device.ssd.mapping.store.reads - reads <= 1  # of the page that made room
    assert device.ssd.mapping.models.where(5) is None
    assert device.problems() == []


def test_models_begin_empty_and_are_trained_as_pages_are_read(tmp_path: Path) -> None:
    path = tmp_path / "img"
    nandimg.create(path, SMALL)
    options = {"buffer": "0", "cmt_bytes": str(24 * UNIT_TAKES)}
    with Device.open(path, ftl="learnedftl", options=options) as device:
        write(device, 0, SMALL.lpas)
        assert figures(device)["lpas_modelled"] == SMALL.lpas
    with Device.open(path, options=options) as device:
        assert figures(device)["lpas_modelled"] == 0
        before = figures(device)
        for lpa in range(0, 10 * PER_PAGE, 10):
            assert read(device, lpa)[0] == page_of(lpa)
        assert reads_since(device, before)[2] == 10
        assert device.ssd.mapping.stale() == []


def test_trained_by_cleaning_alone() -> None:
    device = learnedftl(train="cleaning", runs="off", place="superblocks")
    write(device, 0, SMALL.lpas)
    assert figures(device)["models_trained"] == 0
    rnd = random.Random(3)
    for _ in range(6_000):
        write(device, rnd.randrange(SMALL.lpas))
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert figures(device)["models_trained"] > 0
    assert device.ssd.mapping.stale() == []


def test_dram_names_models_and_filters() -> None:
    """52 bytes a model and a bit an LPA, packed; pages of 128 entries have a model each."""
    tables = learnedftl().ssd.mapping.tables()
    assert tables["models"][0] == 24 * 52
    assert tables["filters"][0] == 24 * 16


#: a superblock holds the pages of two translation pages: twelve groups; twice the room that they take
GROUPED = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=96, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def grouped(**options: Any) -> Device:
    how = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": 24 * UNIT_TAKES, **options}
    return Device.memory(GROUPED, "learnedftl", how)


def superblocks_of(device: Device, lpas: range | list[int]) -> set[int]:
    """The superblocks that these LPAs are in. They are read: what a look-up finds is in the cache, or a model's."""
    found = set()
    for lpa in lpas:
        assert read(device, lpa)[0] == page_of(lpa)
        known = device.ssd.mapping.explain(lpa)
        ppa = known["modelled"] if known["ppa"] is None else known["ppa"]
        found.add(ppa // (GROUPED.pages_per_block * GROUPED.dies))
    return found


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("lend_share", [10, 100])
def test_groups_are_put_in_order(group: int, lend_share: int) -> None:
    """Written at random again and again, most pages are where their models say; and nothing is lost on the way."""
    rnd, device = random.Random(group), grouped(group=group, lend_share=lend_share)
    write(device, 0, GROUPED.lpas)
    for turn in range(12_000):
        write(device, rnd.randrange(GROUPED.lpas))
        if turn % 1_000 == 0:
            assert device.ssd.mapping.stale() == []
            assert device.problems() == []
    found = figures(device)
    assert found["groups"] == (12 if group == 0 else 24)
    assert found["groups_ordered"] > 2 * found["groups"]
    assert found["pages_borrowed"] > 1_000
    assert (found["superblocks_lent"] > 0) == (lend_share < 100)
    assert found["lpas_modelled"] > 0.4 * GROUPED.lpas
    assert read(device, 0, GROUPED.lpas)[0] == b"".join(page_of(lpa) for lpa in range(GROUPED.lpas))
    alone = grouped(place="superblocks")
    write(alone, 0, GROUPED.lpas)
    for _ in range(12_000):
        write(alone, rnd.randrange(GROUPED.lpas))
    assert figures(alone)["groups"] == 0
    assert figures(alone)["lpas_modelled"] < found["lpas_modelled"] / 2


def test_a_group_has_a_superblock_of_its_own_while_there_is_room() -> None:
    """Two groups whose pages are written in turn do not mix; all of them have lines."""
    device = grouped(open=2)
    lpas = 2 * PER_PAGE
    for first in range(0, lpas, 32):
        write(device, first, 32)
        write(device, lpas + first, 32)
    mine, others = superblocks_of(device, range(lpas)), superblocks_of(device, range(lpas, 2 * lpas))
    assert len(mine) == len(others) == 1 and mine != others
    assert figures(device)["pages_borrowed"] == 0
    assert figures(device)["superblocks_of_groups"] == 2
    assert figures(device)["lpas_modelled"] == 2 * lpas


def test_a_third_group_borrows_and_is_cleaned_with_its_lender() -> None:
    """Where two superblocks may be open, a third group writes to one of them. When it has half of that, both are due;
    put in order, each is in a superblock of its own again, and what was borrowed with it."""
    device = grouped(open=2, group_share=5, lend_share=25)
    lpas = 2 * PER_PAGE
    write(device, 0, 10)
    write(device, lpas, 10)
    rnd = random.Random(5)
    third = rnd.sample(range(2 * lpas, 3 * lpas), 120)
    for lpa in third:
        write(device, lpa)
    found = figures(device)
    assert found["pages_borrowed"] == len(third)
    assert found["superblocks_lent"] == 1
    due = [entry["group"] for entry in device.ssd.mapping.groups.groups() if entry["due"]]
    assert 2 in due and len(due) == 2
    while figures(device)["groups_ordered"] < 2:  # the device fills up, and the two are the first
        write(device, rnd.randrange(3 * lpas, GROUPED.lpas))
    for group in due:
        written = [lpa for lpa in (*range(10), *range(lpas, lpas + 10), *third) if lpa // lpas == group]
        assert len(superblocks_of(device, written)) == 1
    assert device.ssd.mapping.stale() == []
    assert device.problems() == []


def test_a_group_that_is_in_order_is_only_looked_at() -> None:
    device = grouped(group_share=10)
    for _ in range(4):
        for first in range(0, GROUPED.lpas, 60):
            write(device, first, 60)
    found = figures(device)
    assert found["groups_ordered"] == 0
    assert found["lpas_modelled"] > 0.95 * GROUPED.lpas


def test_what_is_drawn_of_a_model_are_the_pages_that_it_knows() -> None:
    """Behind a mount, when no model was trained yet, what the map gives is drawn."""
    device = grouped()
    write(device, 0, GROUPED.lpas)
    for lpa in random.Random(4).sample(range(GROUPED.lpas), 300):
        write(device, lpa)
    learned = scheme("learnedftl")
    for _ in range(2):
        models = learned.views["models"](device)
        assert sum(model["exact"] for model in models) > GROUPED.lpas // 2
        drawn = next(chart for chart in learned.charts(device) if chart.get("title") == "A model")
        met = [(x, y) for band in drawn["bands"] for x, y, known in band["points"] if known]
        assert len(met) == len(set(met)) and any(model["exact"] == len(met) for model in models)
        for band in drawn["bands"]:
            assert all(0 <= y <= band["y_most"] for _, y, _ in band["points"])
            assert all(0 <= line[end] <= band["y_most"] for line in band["lines"] for end in ("y1", "y2"))
        device.ssd.mapping.models.clear()
