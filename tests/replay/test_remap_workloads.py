"""Workloads that remap: a write-ahead log and a log-structured file system, against models of their own."""

from __future__ import annotations

import numpy as np
import pytest
from trace_files import whole

from flashfs.errors import UsageError
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import FLUSH, MOVED, READ, REMAP, TRIM, WRITE, Batch
from flashfs.replay.workloads import Workload
from nandimg.presets import PRESETS

PAGE = 4096
DEVICE = 64 << 20
WALS = (
    "wal:ops=20k", "wal:ops=20k,frames=6,run=3,checkpoint=500,dist=zipf:0.9", "wal:ops=20k,order=seq,sync=checkpoint",
    "wal:ops=20k,frames=7,headers=10,sync=checkpoint,loaded=1", "wal:ops=20k,start=0.5,span=0.5",
)  # fmt: skip
LFSES = (
    "lfs:ops=20k", "lfs:ops=20k,policy=cost-benefit,segment=512k", "lfs:ops=20k,logs=1,nodes=0,util=0.5",
    "lfs:ops=20k,discard=0,hot=0", "lfs:ops=20k,hot=1,segment=256k,span=0.6,start=0.25", "lfs:ops=20k,make=0",
)  # fmt: skip


def rows(batch: Batch) -> list[tuple[int, int, int, int]]:
    """(operation, first page, pages, source in pages) of each request."""
    source = (batch.source & ~MOVED) // PAGE  # type: ignore[operator]
    columns = (batch.op, batch.offset // PAGE, batch.length // PAGE, source)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def contents(text: str) -> np.ndarray:
    """What each page of the device holds at the end: the number that was written, brought along by remaps, and where
    the text says remap=0 by contents."""
    batch = whole(Workload(text, DEVICE))
    held = np.zeros(DEVICE // PAGE, np.uint64)
    assert batch.hashes is not None
    for number, (op, first, n, source) in enumerate(rows(batch)):
        if op == WRITE:
            held[first : first + n] = batch.hashes.grain[batch.hashes.start[number] : batch.hashes.start[number + 1]]
        elif op == REMAP:
            held[first : first + n] = held[source : source + n].copy()
    return held


@pytest.mark.parametrize("text", [*WALS, *LFSES])
@pytest.mark.parametrize("remap", [0, 1])
def test_requests_are_sound(text: str, remap: int) -> None:
    workload = Workload(f"{text},remap={remap}", DEVICE)
    batch = whole(workload)
    assert (batch.offset + batch.length <= DEVICE).all() and (batch.offset[batch.length > 0] >= workload.at()).all()
    assert not (batch.offset % PAGE).any() and not (batch.length % PAGE).any()
    assert ((batch.length == 0) == (batch.op == FLUSH)).all()
    assert (REMAP in batch.op) == bool(remap) and (READ in batch.op) == (not remap)
    there = np.zeros(DEVICE // PAGE, bool)
    if "make=0" in text:
        there[:] = True
    assert batch.source is not None
    assert ((batch.source >= MOVED) == ((batch.op == REMAP) & ("discard=0" in text))).all()
    for op, first, n, source in rows(batch):
        if op == REMAP:
            assert there[source : source + n].all()
            assert source + n <= first or first + n <= source
        if op == READ:
            assert there[first : first + n].all()
        elif op != FLUSH:
            there[first : first + n] = op != TRIM


@pytest.mark.parametrize("text", ["wal:ops=8k", "wal:ops=9k,frames=6,run=3,dist=zipf:0.9", "wal:ops=8k,order=seq"])
def test_a_checkpoint_brings_the_newest_frames(text: str) -> None:
    workload = Workload(text, DEVICE)
    batch = whole(workload)
    frames, run_pages = workload.values["frames"], workload.values["run"] or workload.values["frames"]
    in_log = -(-1000 // frames) * frames
    heads = -(-in_log // 170)
    checkpoints, since = 0, 0
    for op, first, n, source in rows(batch):
        if op == WRITE and first >= heads:
            assert (n, first) == (frames, heads + since % in_log)
            since += n
        elif op == WRITE:
            assert (first, first + n - 1) == ((since - frames) % in_log // 170, (since - 1) % in_log // 170)
        elif op == REMAP:
            assert since % in_log == 0 and heads <= source < heads + in_log and first >= heads + in_log
            assert n == 1 and (source - heads) % run_pages == (first - heads - in_log) % run_pages
        checkpoints += op == REMAP
    assert checkpoints > in_log / 2
    ops = batch.op[: 3 * in_log // frames + 1]
    assert ops.tolist() == [WRITE, WRITE, FLUSH] * (in_log // frames) + [FLUSH]
    relaxed = whole(Workload(f"{text},sync=checkpoint", DEVICE))
    assert (relaxed.op == FLUSH).sum() < len(relaxed) / 100
    assert (relaxed.op == REMAP).sum() > len(relaxed) / 2


@pytest.mark.parametrize("text", ["wal:ops=3k,dist=zipf:0.9", "wal:ops=3k,order=seq,sync=checkpoint"])
def test_a_copied_page_has_its_contents(text: str) -> None:
    """A checkpoint that copies writes what was in the log: with deduplication it is as good as a remap. The same work
    comes to the same disk either way."""
    law = "contents=zipf:N=0.9,a=0.2"
    batch = whole(Workload(f"{text},remap=0,{law}", DEVICE))
    held = np.zeros(DEVICE // PAGE, np.uint64)
    assert batch.hashes is not None
    read, copies = None, 0
    for number, (op, first, n, _) in enumerate(rows(batch)):
        grain = batch.hashes.grain[batch.hashes.start[number] : batch.hashes.start[number + 1]]
        if op == READ:
            read = held[first : first + n].copy()
        elif op == WRITE:
            if read is not None:
                assert grain.tolist() == read.tolist()
                copies += 1
            held[first : first + n] = grain
            read = None
    assert copies > 500


@pytest.mark.parametrize("policy", ["greedy", "cost-benefit"])
@pytest.mark.parametrize("logs", [1, 6])
def test_a_log_is_written_in_order(policy: str, logs: int) -> None:
    """No page of a segment is written twice before the segment was cleaned, and trimmed."""
    batch = whole(Workload(f"lfs:ops=60k,policy={policy},logs={logs},segment=512k", DEVICE))
    used = np.zeros(DEVICE // PAGE, bool)
    durable, flushed = True, 0
    for op, first, n, _ in rows(batch):
        if op in (WRITE, REMAP):
            assert not used[first : first + n].any()
            used[first : first + n] = True
            durable = False
        elif op == TRIM:
            assert n == 128 and first % 128 == 0 and durable  # what was moved is safe by then
            used[first : first + n] = False
        elif op == FLUSH:
            durable = True
            flushed += 1
    assert flushed > 20
    assert used.sum() <= DEVICE // PAGE


def test_all_is_cleaned_once() -> None:
    """After so many changes; the requests are as before until then."""
    text = "lfs:ops=30k,segment=512k,remap=0,make=0"
    plain, other = (whole(Workload(f"{text}{more}", DEVICE)) for more in ("", ",clean_all=9000"))
    same = int(((plain.offset == other.offset) & (plain.length == other.length)).cumprod().sum())
    changed = int(plain.length[:same][plain.op[:same] == WRITE].sum()) // PAGE
    assert changed >= 9_000 and same < 15_000
    first = np.flatnonzero(other.op[same:] == TRIM)[0] + same
    cleaned = [n for op, _, n, _ in rows(other)[first : first + 3000] if op == TRIM]
    assert sum(cleaned) > 60 * 128  # of 128 segments, in a row


@pytest.mark.parametrize("ops", ["15k", pytest.param("60k", marks=pytest.mark.slow)])
def test_hot_blocks_apart_make_cleaning_cheap(ops: str) -> None:
    def moved(text: str) -> float:
        batch = whole(Workload(f"lfs:ops={ops},segment=256k,batch=64k,hot=0.1,heat=0.9,{text}", 4 * DEVICE))
        written = int(batch.length[batch.op == WRITE].sum())
        return float(batch.length[batch.op == REMAP].sum()) / written

    assert moved("logs=6") < moved("logs=1") * 0.9
    assert moved("logs=6,policy=greedy") > 0


@pytest.mark.parametrize("text", ["lfs:ops=9k,util=0.5", "lfs:ops=9k,logs=1"])
def test_contents_move_along(text: str) -> None:
    law = "contents=zipf:N=1,a=0"
    batch = whole(Workload(f"{text},remap=0,{law}", DEVICE))
    held = np.zeros(DEVICE // PAGE, np.uint64)
    assert batch.hashes is not None
    moves = 0
    found = rows(batch)
    for number, (op, first, n, _) in enumerate(found):
        if op != WRITE:
            continue
        grain = batch.hashes.grain[batch.hashes.start[number] : batch.hashes.start[number + 1]]
        before, at, pages, _ = found[number - 1]
        if before == READ:
            assert pages == n and (held[at : at + n] == grain).all()
            moves += 1
        held[first : first + n] = grain
    assert moves > 100
    assert (contents(f"{text},{law}") > 0).any()


@pytest.mark.parametrize(("text", "why"), [
    ("wal:frames=4,run=3", "run=3 and frames=4: use a divisor of the frames"),
    ("wal:checkpoint=20k", "a log of 20000 frames and 118 pages of headers in 16384 pages"),
    ("wal:sync=always", "use commit or checkpoint"),
    ("wal:remap=2", "remap=2: use 0 or 1"),
    ("lfs:util=0.95", "util=0.95 of 256 segments"),
    ("lfs:logs=2", "logs=2: use 1 or 6"),
    ("lfs:policy=lru", "use greedy or cost-benefit"),
    ("lfs:segment=64M", "at most, which leaves room to clean"),
])  # fmt: skip
def test_what_cannot_be_is_told(text: str, why: str) -> None:
    with pytest.raises(UsageError) as told:
        Workload(text, DEVICE)
    assert why in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["wal:ops=6k", "lfs:ops=6k,segment=512k", "lfs:ops=6k,remap=0,discard=0,segment=512k"])
@pytest.mark.parametrize("ftl", ["pagemap", "slimftl"])
def test_a_replay(text: str, ftl: str) -> None:
    found = run(Setup(text, ftl, geometry=PRESETS["small-64m"].geometry))
    assert found["input"]["requests"] == 6000 and found["unreadable"] == 0 and not found["complaints"]
    assert found["holes_read"] == 0
    assert found["requests"]["remap"] == (0 if "remap=0" in text else found["latency_us"]["remap"]["n"])
