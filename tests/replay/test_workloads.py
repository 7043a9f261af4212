"""Workloads do what their text says, and the same everywhere and always."""

from __future__ import annotations

import hashlib
import math
import os
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from trace_files import rows, whole

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay import workloads
from flashfs.replay.open_source import open_source
from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, TraceError
from flashfs.replay.traces import Options, Trace
from flashfs.replay.workloads import PATTERNS, Workload
from flashfs.replay.workloads._random import Alias, Shuffle, Stream, Zipf, ln
from nandimg.presets import PRESETS

PAGE = 4096
DEVICE = 10_000 * PAGE


def pages(text: str, device_bytes: int = DEVICE) -> np.ndarray:
    """The page at which each request begins."""
    return (whole(Workload(text, device_bytes)).offset // PAGE).astype(np.int64)


def fingerprint(workload: Workload) -> str:
    """Of every column of every request."""
    batch = whole(workload)
    out = hashlib.sha256()
    for column in (batch.time_ns, batch.op, batch.offset, batch.length, *(batch.hashes or ()),
                   *(() if batch.source is None else (batch.source,))):  # fmt: skip
        out.update(column.astype(f"<{column.dtype.kind}{column.dtype.itemsize}").tobytes())
    return out.hexdigest()[:16]


#: A line that changes here makes results of different versions incomparable: then workloads.VERSION must rise
GOLDEN = {
    "sequential:ops=30k,size=4k/2:16k/1": "9882563c94192624",
    "uniform:ops=30k": "671ee3adf047579f",
    "uniform:ops=30k,write=0.6,trim=0.1,flush=0.01,seed=7,span=0.5,start=0.25": "ff2d2bf1662de3f5",
    "zipf:ops=30k,theta=0.9": "ac0a4b5dd21ddcb4",
    "zipf:ops=30k,theta=1.2,scatter=0,size=4k/60:64k/40": "fff5360348bfe17f",
    "hotcold:ops=30k,hot=0.1,heat=0.9,scatter=1": "07e57e61ec7398ae",
    "strided:ops=30k,stride=7": "7a21c156daab864e",
    "holes:ops=30k,keep=0.3": "3d2d23fe5a37b04f",
    "uniform:ops=30k,dup=0.3,dup_theta=0.9,contents=100": "ae75c7d7fdeba800",
    "uniform:ops=30k,rate=12345.6,arrival=poisson": "a1cfba8c0ef4be51",
}
OF_PROGRAMS = {  # on a device of 64 MiB
    "fileset:ops=20k": "104bb67ad45c5e88",
    "fileset:ops=20k,personality=varmail,seed=7,discard=1": "08238bc073d655a4",
    "fileset:ops=20k,personality=webserver,files=300,gamma=0": "de870cf57c52ccb2",
    "fileset:ops=20k,personality=oltp": "322fdb94010b23bc",
    "fileset:ops=5k,personality=compflow,span=0.5,start=0.5": "f03e9fdb8f869142",
    "lsm:ops=20k": "64ca0220229a1416",
    "lsm:ops=20k,order=seq,sync=1": "bfbe790f7f70d591",
    "lsm:ops=20k,get=0.5,update=0.5,dist=zipf:0.99,loaded=1,value=1k": "92d76057e7fcbe91",
    "wal:ops=20k": "18b8994b3ea057bb",
    "wal:ops=20k,frames=6,run=3,sync=checkpoint,dist=zipf:0.9,loaded=1,remap=0": "e0f9a8742a1745e9",
    "lfs:ops=20k": "1d1745f54f037c3d",
    "lfs:ops=20k,remap=0,policy=cost-benefit,logs=1,nodes=0": "fd9439b3710ce52f",
    "lfs:ops=20k,discard=0,hot=0.1": "117fdc976fec37a1",
    "wal:ops=5k,remap=0,contents=zipf:N=0.9,a=0.2": "0310340b931df4df",
    "uniform:ops=20k,contents=zipf:N=0.9,a=0.2": "cbc10dc4fcebc163",
    "remaps:ops=20k": "72fd0157208ae3c3",
    "remaps:ops=20k,iosize=16k,move=1,seed=3": "dcd473462ccc1148",
}
FOR_EVER = [(DEVICE, *one) for one in GOLDEN.items()] + [(64 << 20, *one) for one in OF_PROGRAMS.items()]


@pytest.mark.parametrize("text", ["lfs:%sutil=0.5", "wal:%sorder=seq", "uniform:%swrite=0.5,contents=zipf:N=0.7,a=0.2",
                                  "fileset:%sdiscard=1,dup=0.4", "remaps:%sspan=0.5"])  # fmt: skip
def test_what_is_left_out_has_been_played_before(text: str) -> None:
    """A workload that skips goes on where a shorter one of the same text ended."""
    every, rest = (whole(Workload(text % keys, 64 << 20)) for keys in ("ops=25k,", "skip=18k,ops=7k,"))
    for column in ("time_ns", "op", "offset", "length", "source"):
        mine, other = getattr(rest, column), getattr(every, column)
        assert (mine is None and other is None) or (mine == other[18_000:]).all()
    if every.hashes is not None:
        assert (rest.hashes.grain == every.hashes.grain[every.hashes.start[18_000] :]).all()


def test_to_skip_is_another_workload() -> None:
    one, some = (Workload(f"lfs:{keys}ops=100", 64 << 20) for keys in ("", "skip=5,"))
    assert one.hash() != some.hash()
    assert one.hash().startswith("dbca72075fe1e6ce")  # of before there was such a key
    with pytest.raises(UsageError, match="skip and rate"):
        Workload("uniform:skip=5,rate=100", 64 << 20)


@pytest.mark.parametrize(("size", "text", "said"), FOR_EVER)
def test_the_same_requests_for_ever(size: int, text: str, said: str) -> None:
    assert fingerprint(Workload(text, size)) == said


@pytest.mark.parametrize(("size", "text"), [one[:2] for one in FOR_EVER])
def test_the_same_requests_in_any_batches(size: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows(whole(Workload(text, size)))
    monkeypatch.setattr(workloads, "BLOCK", 777)
    workload = Workload(text, size)
    assert rows(whole(workload, 1000)) == first
    assert rows(whole(workload, 65_536)) == first  # and again


def test_columns_do_not_disturb_each_other() -> None:
    plain = pages("uniform:ops=5000")
    for more in ("write=0.5", "trim=0.3", "dup=0.5", "rate=100,arrival=poisson"):
        assert (pages(f"uniform:ops=5000,{more}") == plain).all()
    assert (pages("uniform:ops=5000,seed=2") != plain).any()


def test_the_hash_is_of_the_meaning() -> None:
    one = Workload("uniform:ops=1k", DEVICE)
    assert one.hash() == Workload("uniform:write=1,ops=1000,size=4k", DEVICE).hash()
    others = [
        Workload("uniform:ops=1k", DEVICE + PAGE), Workload("uniform:ops=1001", DEVICE),
        Workload("uniform:ops=1k,seed=2", DEVICE), Workload("uniform:ops=1k", DEVICE, 8192),
        Workload("hotcold:ops=1k", DEVICE),
    ]  # fmt: skip
    assert len({one.hash(), *(other.hash() for other in others)}) == 6


def test_sequential() -> None:
    assert (pages("sequential:ops=25k") == np.arange(25_000) % 10_000).all()
    batch = whole(Workload("sequential:ops=2000,size=12k,span=0.001", DEVICE))  # 10 pages: three fit
    assert (batch.offset // PAGE).tolist() == [0, 3, 6] * 666 + [0, 3]
    mixed = whole(Workload("sequential:ops=9000,size=4k/1:8k/1:64k/1,span=0.1", DEVICE))
    ends = mixed.offset + mixed.length
    follows = mixed.offset[1:] == ends[:-1]
    assert ((mixed.offset[1:] == 0) | follows).all()
    assert (ends <= DEVICE // 10).all()
    assert (ends[:-1][~follows] + mixed.length[1:][~follows] > DEVICE // 10).all()  # only when the next did not fit


def test_uniform_is_uniform() -> None:
    counts = np.bincount(pages("uniform:ops=2M"), minlength=10_000)
    chi = ((counts - 200) ** 2 / 200).sum()
    assert abs(chi - 9999) < 5 * math.sqrt(2 * 9999)
    half = pages("uniform:ops=20k,span=0.25,start=0.5")
    assert half.min() == 5000 and half.max() == 7499


@pytest.mark.parametrize("theta", [0.0, 0.5, 0.99, 1.0, 1.5])
def test_zipf_has_the_weights_it_says(theta: float) -> None:
    n, ops = 10_000, 2_000_000
    ranks = pages(f"zipf:ops={ops},theta={theta},scatter=0")
    weights = np.arange(1, n + 1, dtype=float) ** -theta
    expected = weights / weights.sum() * ops
    counts = np.bincount(ranks, minlength=n)
    for first, last in ((0, 1), (1, 2), (2, 10), (10, 100), (100, 256), (256, 1000), (1000, 5000), (5000, n)):
        want, have = expected[first:last].sum(), counts[first:last].sum()
        assert abs(have - want) < 5 * math.sqrt(want) + 0.003 * want, (first, last)


def test_zipf_scattered_is_the_same_elsewhere() -> None:
    near, far = pages("zipf:ops=100k,scatter=0"), pages("zipf:ops=100k")
    assert sorted(Counter(near.tolist()).values()) == sorted(Counter(far.tolist()).values())
    hottest = [page for page, _ in Counter(far.tolist()).most_common(100)]
    assert max(hottest) - min(hottest) > 9_000


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 1000, 4097])
def test_a_shuffle_is_a_bijection(n: int) -> None:
    index = np.arange(n, dtype=np.int64)
    out = Shuffle(n, 3)(index)
    assert sorted(out.tolist()) == index.tolist()
    if n > 60:
        assert (out != Shuffle(n, 4)(index)).any()
        assert abs(np.corrcoef(index, out)[0, 1]) < 0.3


def test_zipf_of_a_device_of_any_size() -> None:
    for n in (1, 2, 511, 513, 1 << 29):
        zipf = Zipf(n, 0.99)
        ranks = zipf.draw(Stream(1, 0), Stream(1, 1), 1000)
        assert ranks.min() >= 0 and ranks.max() < n
        assert zipf._first[0] == 0 and (np.diff(zipf._first) == zipf._width[:-1]).all()
        assert zipf._first[-1] + zipf._width[-1] == n


def test_an_alias_table_is_exact() -> None:
    weights = [5, 1, 0, 3, 1000, 7, 1]
    alias = Alias(weights)
    share = [Decimal(0)] * len(weights)
    for at in range(len(weights)):
        share[at] += Decimal(float(alias._keep[at])) / len(weights)
        share[int(alias._other[at])] += (1 - Decimal(float(alias._keep[at]))) / len(weights)
    for have, weight in zip(share, weights, strict=True):
        assert abs(have - Decimal(weight) / sum(weights)) < Decimal("1e-15")


def test_logarithms_are_right() -> None:
    x = np.concatenate([Stream(1, 0).unit(10_000), [1.0, 0.5, 2.0**-53, 1 - 2.0**-53, 0.7071067811865475]])
    x = x[x > 0]
    exact = np.array([math.log(value) for value in x])
    assert (np.abs(ln(x) - exact) <= 1e-15 * np.maximum(1, np.abs(exact))).all()


def test_hotcold() -> None:
    found = pages("hotcold:ops=200k,hot=0.2,heat=0.8")
    hot = (found < 2000).mean()
    assert abs(hot - 0.8) < 0.01
    assert len(np.unique(found[found < 2000])) == 2000
    scattered = Counter(pages("hotcold:ops=200k,hot=0.2,heat=0.8,scatter=1").tolist()).most_common(2000)
    assert max(page for page, _ in scattered) > 9_900
    assert abs(sum(n for _, n in scattered) / 200_000 - 0.8) < 0.02


@pytest.mark.parametrize("stride", [1, 3, 7, 100, 9_999, 10_000])
def test_strided_visits_everything_once_a_round(stride: int) -> None:
    found = pages(f"strided:ops=20k,stride={stride}")
    assert sorted(found[:10_000].tolist()) == list(range(10_000))
    assert (found[10_000:] == found[:10_000]).all()
    expected = [at for first in range(stride) for at in range(first, 10_000, stride)]
    assert found[:10_000].tolist() == expected


def test_a_stride_in_bytes() -> None:
    assert (pages("strided:ops=9k,stride=64k") == pages("strided:ops=9k,stride=16")).all()
    with pytest.raises(UsageError, match="a multiple of a place"):
        Workload("strided:stride=6k", DEVICE)


def test_holes_are_those_of_python_s_random() -> None:
    """41,784 of 60,000 at seed 3, by Python's generator."""
    rnd = random.Random(3)
    kept = [page for page in range(60_000) if rnd.random() < 0.7]
    workload = Workload("holes:seed=3,keep=0.7", 60_000 * PAGE)
    assert workload.ops == len(kept) == 41_784
    assert (whole(workload, 1000).offset // PAGE).tolist() == kept
    twice = pages(f"holes:seed=3,keep=0.7,ops={2 * len(kept)}", 60_000 * PAGE)
    assert twice.tolist() == kept + kept
    for seed in (0, 1 << 32, 12345678901234567890 % (1 << 63)):
        rnd = random.Random(seed)
        kept = [page for page in range(2000) if rnd.random() < 0.5]
        assert pages(f"holes:seed={seed},keep=0.5", 2000 * PAGE).tolist() == kept


def test_operations_come_in_their_shares() -> None:
    batch = whole(Workload("uniform:ops=100k,write=0.5,trim=0.1,flush=0.05", DEVICE))
    shares = np.bincount(batch.op, minlength=4) / 100_000
    assert np.abs(shares - [0.35, 0.5, 0.1, 0.05]).max() < 0.01
    flush = batch.op == FLUSH
    assert not batch.offset[flush].any() and not batch.length[flush].any() and batch.length[~flush].all()
    for text, op in (("", WRITE), (",write=0", READ), (",trim=1", TRIM), (",flush=1", FLUSH)):
        assert (whole(Workload(f"uniform:ops=1000{text}", DEVICE)).op == op).all()
    assert set(whole(Workload("uniform:ops=1000,trim=0.5", DEVICE)).op.tolist()) == {WRITE, TRIM}


def test_sizes_come_in_their_shares_and_stay_in_the_span() -> None:
    batch = whole(Workload("uniform:ops=100k,size=4k/60:16k/30:1M/10,span=0.1,start=0.5", DEVICE))
    counts = Counter(batch.length.tolist())
    assert abs(counts[4096] / 1e5 - 0.6) < 0.01 and abs(counts[1 << 20] / 1e5 - 0.1) < 0.01
    assert (batch.offset >= DEVICE // 2).all()
    assert (batch.offset + batch.length <= DEVICE // 2 + DEVICE // 10).all()
    assert not (batch.offset % 4096).any()
    ragged = whole(Workload("uniform:ops=10k,size=6k,align=512", DEVICE))
    assert (ragged.offset % 4096 != 0).any() and not (ragged.offset % 512).any()


def test_a_page_is_the_device_s() -> None:
    batch = whole(Workload("uniform:ops=100", DEVICE, 16_384))
    assert (batch.length == 16_384).all() and not (batch.offset % 16_384).any()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.9, 1.0])
def test_duplicates_come_in_their_share(share: float) -> None:
    batch = whole(Workload(f"uniform:ops=40k,dup={share},size=4k/1:8k/1,write=0.5", DEVICE))
    assert batch.hashes is not None
    lengths = np.diff(batch.hashes.start)
    assert (lengths == np.where(batch.op == WRITE, batch.length // PAGE, 0)).all()
    duplicates = 1 - len(np.unique(batch.hashes.grain)) / len(batch.hashes.grain)
    assert abs(duplicates - share) < 0.01
    assert whole(Workload("uniform:ops=10", DEVICE)).hashes is None


def test_rates() -> None:
    fixed = Workload("uniform:ops=10001,rate=50000", DEVICE)
    assert fixed.timed and fixed.qd is None
    assert whole(fixed).time_ns[[0, 1, 10_000]].tolist() == [0, 20_000, 200_000_000]
    gaps = np.diff(whole(Workload("uniform:ops=100001,rate=50000,arrival=poisson", DEVICE)).time_ns)
    assert abs(gaps.mean() / 20_000 - 1) < 0.02
    assert abs((gaps > 20_000).mean() - math.exp(-1)) < 0.01
    assert abs((gaps > 60_000).mean() - math.exp(-3)) < 0.005
    closed = Workload("uniform:ops=10,qd=32", DEVICE)
    assert not closed.timed and closed.qd == 32
    assert not whole(closed).time_ns.any()


def skew_file(path: Path) -> Path:
    path.write_text("LBA,Frequency\n81920,100\n4096,50\n8192,50\n0,1\n")
    return path


def test_skew(tmp_path: Path) -> None:
    """Addresses in order: 0 (1), 4096 (50), 8192 (50), 81920 (100 of 201)."""
    file = skew_file(tmp_path / "freq.csv")
    found = Counter(pages(f"skew:ops=201k,file={file},stretch=0").tolist())
    assert sorted(found) == [0, 1, 2, 3]
    for page, weight in ((0, 1), (1, 50), (2, 50), (3, 100)):
        assert abs(found[page] - 1000 * weight) < 5 * math.sqrt(1000 * weight)
    wide = pages(f"skew:ops=201k,file={file}")
    assert len(np.unique(wide)) > 8_000
    assert abs((wide >= 7500).sum() - 100_000) < 1500
    narrow = Counter(pages(f"skew:ops=201k,file={file}", 2 * PAGE).tolist())
    assert abs(narrow[0] - 51_000) < 1500 and set(narrow) == {0, 1}
    assert sorted(Counter(pages(f"skew:ops=1k,file={file},stretch=0,top=2").tolist())) == [0, 1]
    other = skew_file(tmp_path / "elsewhere.csv")
    assert Workload(f"skew:file={file}", DEVICE).hash() == Workload(f"skew:file={other}", DEVICE).hash()
    other.write_text("0,1\n4096,50\n", encoding="utf-8-sig")  # a byte order mark makes no name of a column
    assert set(pages(f"skew:ops=1k,file={other}", 2 * PAGE).tolist()) == {0, 1}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="pipe: a pipe: a trace is read more than once"):
        Workload(f"skew:file={tmp_path / 'pipe'}", DEVICE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonesuch", "workload nonesuch: use sequential, uniform.*"),
        ("uniform:nonesuch=1", "'nonesuch=1': use KEY=VALUE, with ops, skip, write"),
        ("uniform:ops", "'ops': use KEY=VALUE"),
        ("uniform:theta=1", "use KEY=VALUE"),
        ("uniform:ops=1,ops=2", "ops is there twice"),
        ("uniform:ops=0", "ops=0: use a whole number above 0"),
        ("uniform:ops=-1", "a whole number above 0"),
        ("uniform:ops=1.5", "a whole number above 0"),
        ("uniform:write=1.1", "write=1.1: use a share from 0 to 1"),
        ("uniform:write=0.9,trim=0.2", "more than 1 together"),
        ("uniform:size=0", "a size above 0"),
        ("uniform:size=4k/1:4k/2", "each size once"),
        ("uniform:size=1G", "a request of 1073741824 bytes in a span of"),
        ("uniform:span=0", "a request of 4096 bytes in a span of 0"),
        ("uniform:span=0.6,start=0.6", "start and span are more than 1 together"),
        ("uniform:qd=2,rate=5", "qd and rate: use one of them"),
        ("uniform:arrival=sometimes", "use fixed or poisson"),
        ("uniform:seed=x", "use a whole number from 0 on"),
        ("zipf:scatter=2", "use 0 or 1"),
        ("hotcold:hot=0", "use some of each"),
        ("hotcold:hot=1", "use some of each"),
        ("strided:stride=0", "use 1 to 10000 places"),
        ("strided:stride=10001", "use 1 to 10000 places"),
        ("holes:keep=0", "it has no request"),
        ("skew", "file=FILE is missing"),
    ],
)
def test_workloads_that_cannot_be(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        Workload(text, DEVICE)
    assert "\n" not in str(caught.value)


def test_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_source("uniform:ops=5", DEVICE), Workload)
    with pytest.raises(UsageError, match=r"nonesuch: no such file; workloads are sequential, .*"):
        open_source("nonesuch", DEVICE)
    with pytest.raises(UsageError, match="options of traces are not for it"):
        open_source("uniform:ops=5", DEVICE, options=Options(loops=2))
    (tmp_path / "uniform").write_text("0 0 8 8 0\n")
    assert isinstance(open_source("uniform", DEVICE, format="mqsim"), Trace)


def test_every_workload_makes_requests_by_default(tmp_path: Path) -> None:
    file = skew_file(tmp_path / "freq.csv")
    for name in PATTERNS:
        workload = Workload(name if name != "skew" else f"skew:file={file}", 1000 * PAGE)
        assert workload.ops == len(whole(workload)) > 0


def test_waf_of_the_oracle_workload() -> None:
    """Uniform overwrites of an empty device: 2.13 over the first million, as greedy cleaning is known to give."""
    preset = PRESETS["oracle-1g"].geometry
    workload = Workload("uniform:ops=1M,write=1", preset.logical_bytes, preset.page_bytes)
    with Device.memory(preset, "pagemap", backend="meta") as device:
        for batch in workload.batches():
            device.ssd.write_pages((batch.offset // np.uint64(preset.page_bytes)).astype(np.uint32))
        stats = device.stats()
    assert stats["host"]["write"] == 1_000_000
    assert abs(stats["nand"]["program"] / 1e6 / 2.13 - 1) < 0.02
