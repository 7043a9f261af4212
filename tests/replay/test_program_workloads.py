"""Workloads that are programs: no unwritten page is read, space is accounted right, and shapes are as asked."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from trace_files import whole

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, Batch
from flashfs.replay.workloads import Workload
from flashfs.replay.workloads._lsm import Lsm, evenly
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import Gammas, Space
from nandimg.presets import PRESETS

PAGE = 4096
DEVICE = 64 << 20
PERSONALITIES = ("fileserver", "varmail", "webserver", "oltp", "compflow")

def holes_read(batch: Batch) -> int:
    """Pages that are read and hold nothing then."""
    there = np.zeros(DEVICE // PAGE, bool)
    holes = 0
    for op, offset, length in zip(batch.op, batch.offset.tolist(), batch.length.tolist(), strict=True):
        pages = slice(offset // PAGE, (offset + length) // PAGE)
        if op == READ:
            holes += int((~there[pages]).sum())
        elif op != FLUSH:
            there[pages] = op == WRITE
    return holes


@pytest.mark.parametrize("text", [
    *(f"fileset:ops=30k,personality={name},discard=1" for name in PERSONALITIES),
    "fileset:ops=30k,iosize=16k,discard=1", "lsm:ops=30k", "lsm:ops=30k,order=seq",
    "lsm:ops=30k,get=0.4,update=0.3,dist=zipf:0.9", "lsm:ops=30k,get=1,loaded=1",
])  # fmt: skip
def test_nothing_is_read_that_is_not_there(text: str) -> None:
    batch = whole(Workload(text, DEVICE))
    assert holes_read(batch) == 0
    assert (batch.offset + batch.length <= DEVICE).all()
    assert not (batch.offset % PAGE).any() and not (batch.length % PAGE).any()
    assert ((batch.length == 0) == (batch.op == FLUSH)).all()


def test_space_is_first_fit_and_grows_together_again() -> None:
    space = Space(100, "here")
    first, second, third = space.take(10), space.take(20), space.take(30)
    assert (first, second, third) == ([(0, 10)], [(10, 20)], [(30, 30)])
    space.give(first)
    space.give(third)
    assert space.runs() == [(0, 10), (30, 70)]
    assert space.take(10) == first  # all of it
    space.give(first)
    assert space.take(40) == [(30, 40)]  # the first that holds it, not the first that there is
    assert space.take(35) == [(0, 10), (70, 25)]  # none does: pieces from the lowest on
    space.give(second)
    space.give([(0, 10)])
    assert space.runs() == [(0, 30), (95, 5)] and space.free == 35
    with pytest.raises(UsageError, match="36 pages of 4 KiB, 35 are free"):
        space.take(36)


def test_space_against_a_list_of_pages() -> None:
    dice = np.random.default_rng(5)
    space, free, taken = Space(2000, "here"), np.ones(2000, bool), []
    for _ in range(3000):
        if taken and dice.random() < 0.5:
            runs = taken.pop(int(dice.integers(len(taken))))
            space.give(runs)
            for first, n in runs:
                free[first : first + n] = True
        elif (pages := int(dice.integers(1, 40))) <= space.free:
            runs = space.take(pages)
            for first, n in runs:
                assert free[first : first + n].all()
                free[first : first + n] = False
            taken.append(runs)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], free.astype(int), [0]))))
        assert space.runs() == [(a, b - a) for a, b in edges.reshape(-1, 2).tolist()]


@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5, 4.0])
def test_sizes_have_the_moments_of_a_gamma_distribution(shape: float) -> None:
    gammas = Gammas(shape, 1, 10)
    drawn = np.array([gammas.next() for _ in range(200_000)])
    assert abs(drawn.mean() - 1) < 0.01
    assert abs(drawn.var() - 1 / shape) < 0.05 / shape
    assert abs((drawn < 1).mean() - _below_mean(shape)) < 0.005


def _below_mean(shape: float) -> float:
    """The lower incomplete gamma function at the shape, by its series."""
    term = total = 1 / shape
    for k in range(1, 200):
        term *= shape / (shape + k)
        total += term
    return total * math.exp(-shape + shape * math.log(shape)) / math.gamma(shape)


def counts(text: str, device_bytes: int = DEVICE) -> Counter[int]:
    return Counter(whole(Workload(text, device_bytes)).op.tolist())


def test_personalities_do_what_they_are_called() -> None:
    mail = counts("fileset:ops=40k,personality=varmail,make=0")
    assert mail[FLUSH] > 0.2 * 40_000 and mail[TRIM] == 0
    web = counts("fileset:ops=40k,personality=webserver,make=0")
    assert 9.5 < web[READ] / web[WRITE] < 10.5  # ten files, an append to the log; files are mostly one request
    oltp = counts("fileset:ops=40k,personality=oltp,make=0")
    assert 39 < oltp[READ] / oltp[WRITE] < 42  # of 210 threads, 200 only read, the others every second time
    flow = whole(Workload("fileset:ops=400,personality=compflow,make=0,iosize=64k", DEVICE))
    reads, writes = flow.op == READ, flow.op == WRITE
    assert reads.sum() == writes.sum()
    assert (flow.offset[reads][1:100] == (flow.offset + flow.length)[reads][:99]).all()  # one after the other
    assert counts("fileset:ops=40k,discard=1")[TRIM] > 1000


def test_threads_are_the_depth_unless_somebody_says() -> None:
    assert Workload("fileset:personality=varmail", DEVICE).qd == 16
    assert Workload("fileset:personality=varmail,threads=3", DEVICE).qd == 3
    assert Workload("fileset:personality=varmail,qd=2", DEVICE).qd == 2
    assert Workload("fileset:personality=varmail,rate=100", DEVICE).qd is None
    assert Workload("lsm", DEVICE).qd == 1


def tree(text: str, turns: int) -> Lsm:
    made = Workload(text, DEVICE)
    lsm = Lsm(Span(made.span.places, made.span.align, made.values))
    pieces = lsm.requests()
    for _ in range(turns):
        next(pieces)
    return lsm


@pytest.mark.parametrize("text", ["lsm", "lsm:order=seq", "lsm:get=0.5,update=0.2,dist=zipf:0.99", "lsm:loaded=1"])
def test_a_tree_keeps_its_rules(text: str) -> None:
    lsm = tree(text, 300)
    levels = lsm._levels.tables
    for number, level in enumerate(levels):
        for table in level:
            assert (np.diff(table.keys) > 0).all() and len(table.keys) * lsm._entry <= table.pages * PAGE
        if number:
            assert all(one.keys[-1] < other.keys[0] for one, other in pairwise(level))
    assert len(levels[0]) < 4
    used = sum(table.pages for level in levels for table in level)
    logs = 2 * (lsm._memtable // PAGE + 1)
    assert lsm._space.free <= lsm.pages - used <= lsm._space.free + logs


def test_a_sequential_fill_of_a_tree_moves_nothing() -> None:
    batch = whole(Workload("lsm:ops=1500,order=seq,value=1k", DEVICE))
    assert (batch.op != READ).all()  # tables only change their level


def test_a_get_reads_a_block_a_level_until_it_is_found() -> None:
    lsm = tree("lsm:loaded=1,get=0.999,order=seq", 1)
    levels = [len(level) for level in lsm._levels.tables]
    assert sum(n > 0 for n in levels) == 1  # one level has all keys: a block a get
    gets = np.arange(0, lsm._keys, 97)
    none = np.empty(0, np.int64)
    assert len(list(lsm._probes(none, gets, np.zeros(len(gets), np.int64), None))) == len(gets)
    assert list(lsm._probes(gets, gets, np.full(len(gets), len(gets)), None)) == []  # all are in the memtable
    assert list(lsm._probes(none, gets, np.zeros(len(gets), np.int64), gets)) == []  # or in the one before


def test_evenly() -> None:
    some, others = [(0, n, 1) for n in range(6)], [(1, n, 1) for n in range(2)]
    both = evenly(some, others)
    assert [one for one in both if one[0] == 0] == some and [one for one in both if one[0] == 1] == others
    assert [at for at, one in enumerate(both) if one[0] == 1] == [2, 6]


def test_contents_by_a_law() -> None:
    text = "uniform:ops=400k,contents=zipf:N=0.5,a=0.2"
    batch = whole(Workload(text, DEVICE))
    assert batch.hashes is not None
    n = DEVICE // PAGE // 2
    seen = Counter(batch.hashes.grain.tolist())
    assert len(seen) == n  # each was drawn some time: 49 times on average
    weights = np.arange(1, n + 1) ** -0.2
    expected = weights / weights.sum() * 400_000
    drawn = np.array(sorted(seen.values(), reverse=True), float)
    assert abs(drawn[: n // 10].sum() / expected[: n // 10].sum() - 1) < 0.06
    assert abs(drawn[n // 2 :].sum() / expected[n // 2 :].sum() - 1) < 0.06
    plain = whole(Workload("uniform:ops=400k", DEVICE))
    assert (plain.offset == batch.offset).all()
    assert Workload(f"{text},seed=1", DEVICE).hash() == Workload(text, DEVICE).hash()
    assert Workload(text.replace("0.5", "0.6"), DEVICE).hash() != Workload(text, DEVICE).hash()


@pytest.mark.parametrize(("text", "why"), [
    ("fileset:personality=mail", "use fileserver or varmail or webserver or oltp or compflow"),
    ("fileset:files=100k", "100,000 files of 131,072 bytes in 67,108,864 bytes: use files that take 70%"),
    ("fileset:gamma=1.3", "use 0, 0.5, 1, 1.5 and so on"),
    ("fileset:write=0.5", ": use KEY=VALUE, with ops, skip, span"),
    ("lsm:keys=1M", "1,000,000 keys of 424 bytes in 67,108,864 bytes: fill 60% at most"),
    ("lsm:get=0.7,update=0.7", "get and update are more than 1 together"),
    ("lsm:memtable=1M", "memtable=1048576: use 262144 at most, 1/256 of the span"),
    ("lsm:dist=normal", "use uniform, zipf or zipf:0.99"),
    ("uniform:contents=zipf:N=2,a=0.2", "zipf:N=SHARE,a=EXPONENT"),
    ("uniform:contents=zipf:N=0.5", "zipf:N=SHARE,a=EXPONENT"),
    ("uniform:contents=zipf:N=0.5,a=0.2,dup=0.1", "dup and contents=zipf: use one of them"),
    ("uniform:a=0.2", "'a=0.2': use KEY=VALUE"),
])  # fmt: skip
def test_what_cannot_be_is_told(text: str, why: str) -> None:
    with pytest.raises(UsageError) as told:
        Workload(text, DEVICE)
    assert why in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["fileset:ops=3k", "lsm:ops=3k,get=0.2"])
def test_a_replay(text: str) -> None:
    found = run(Setup(text, geometry=PRESETS["small-64m"].geometry))
    assert found["input"]["requests"] == 3000 and found["unreadable"] == 0 and not found["complaints"]
    assert found["config"]["qd"] == (50 if text.startswith("fileset") else 1)
    with Device.memory(PRESETS["small-64m"].geometry, "pagemap") as device:
        assert device.size == DEVICE
