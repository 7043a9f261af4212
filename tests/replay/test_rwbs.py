"""What blkparse and ftrace say in RWBS: flushes before a request and after it, and operations without data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from trace_files import rows, whole

from flashfs.replay import phases
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, TraceError
from flashfs.replay.traces import Options, Trace
from flashfs.replay.traces._text import FLUSH_AFTER, FLUSH_BEFORE, with_flushes
from nandimg import Geometry

COMMITS = 200
SECTOR = 512
#: of a commit, as a journal writes one on a drive with FUA: (stage, microseconds, RWBS, first sector of its kind)
COMMIT = (
    ("Q", 50, "WS", 1000), ("D", 100, "WS", 1000), ("Q", 150, "FWFS", 500_000), ("D", 200, "FN", None),
    ("C", 250, "FN", None), ("D", 300, "WFS", 500_000), ("C", 350, "WFS", 500_000),
)  # fmt: skip
EVENTS = {"Q": "block_bio_queue", "D": "block_rq_issue", "C": "block_rq_complete"}


def blkparse(stage: str, us: int, rwbs: str, sector: int | None) -> str:
    where = "" if sector is None else f" {sector} + 8"
    return f"259,0 0 1 {us / 1e6:.9f} 500 {stage} {rwbs:>4}{where} [j 1]"


def ftrace(stage: str, us: int, rwbs: str, sector: int | None) -> str:
    """A flush of its own is FF there, and has an address and a length that say nothing."""
    rwbs = rwbs.replace("FN", "FF")
    where = f"{(1 << 64) - 1} + 0" if sector is None else f"{sector} + 8"
    size = {"Q": "", "D": "4096 () ", "C": "() "}[stage]
    return f" j 1-500 [000] d..1. {us / 1e6:.6f}: {EVENTS[stage]}: 259,0 {rwbs} {size}{where} [j]"


WRITERS = {"blkparse": blkparse, "ftrace": ftrace}
Writer = Callable[[str, int, str, int | None], str]


def commits(path: Path, write: Writer) -> Path:
    lines = [
        write(stage, us + i * 10_000, rwbs, None if sector is None else sector + 8 * i)
        for i in range(COMMITS)
        for stage, us, rwbs, sector in COMMIT
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_csv(path: Path, event: str) -> Path:
    """The same commits in words: what is queued has its flushes at its own time."""
    flush_us, commit_us = {"Q": (150, 150), "D": (200, 300)}[event]
    lines = ["time_us,op,offset_512,size_512"]
    for i in range(COMMITS):
        at = i * 10_000
        lines += [
            f"{at + {'Q': 50, 'D': 100}[event]},W,{1000 + 8 * i},8", f"{at + flush_us},flush,0,0",
            f"{at + commit_us},W,{500_000 + 8 * i},8", f"{at + commit_us},flush,0,0",
        ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("event", ["Q", "D"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_journal_commit(name: str, event: str, tmp_path: Path) -> None:
    """At Q the letters have both flushes; at D the first has a line of its own, and FUA has none."""
    trace = Trace(commits(tmp_path / "trace", WRITERS[name]), Options(event=event))
    assert trace.format.name == name
    found = whole(trace)
    assert np.bincount(found.op, minlength=4).tolist() == [0, 2 * COMMITS, 0, 2 * COMMITS]
    assert rows(found) == rows(whole(Trace(as_csv(tmp_path / "same.csv", event))))
    assert (trace.rejected.total, trace.adjusted.total) == (0, 0)
    assert trace.units == {"259,0": 4 * COMMITS}


def test_a_commit_costs_what_its_flushes_cost(tmp_path: Path) -> None:
    chip = Geometry.sized(512 << 20, op=0.25)
    path, same = commits(tmp_path / "trace", blkparse), as_csv(tmp_path / "same.csv", "D")
    found, wanted = (run(Setup(source=str(one), geometry=chip, trace=Options())) for one in (path, same))
    assert found["requests"] == wanted["requests"] == {**wanted["requests"], "write": 400, "flush": 400}
    assert found["latency_us"] == wanted["latency_us"]


ALL = [
    # RWBS, sectors, what it means at D, what at Q
    ("R", 8, [READ], [READ]), ("RA", 8, [READ], [READ]), ("RSM", 8, [READ], [READ]),
    ("W", 8, [WRITE], [WRITE]), ("WSM", 8, [WRITE], [WRITE]), ("WFSM", 8, [WRITE, FLUSH], [WRITE, FLUSH]),
    ("WFSU", 8, [WRITE, FLUSH], [WRITE, FLUSH]), ("FWS", 8, [WRITE], [FLUSH, WRITE]),
    ("FWFSM", 8, [WRITE, FLUSH], [FLUSH, WRITE, FLUSH]),
    ("D", 2048, [TRIM], [TRIM]), ("DS", 2048, [TRIM], [TRIM]), ("DE", 2048, [TRIM], [TRIM]),
    ("FDS", 2048, [TRIM], [FLUSH, TRIM]), ("WZ", 2048, [TRIM], [TRIM]), ("WZS", 2048, [TRIM], [TRIM]),
    ("WZFS", 2048, [TRIM, FLUSH], [TRIM, FLUSH]), ("FWZFS", 2048, [TRIM, FLUSH], [FLUSH, TRIM, FLUSH]),
    ("FN", 0, [FLUSH], [FLUSH]), ("FF", 0, [FLUSH], [FLUSH]), ("F", 0, [FLUSH], [FLUSH]), ("FWS", 0, [FLUSH], [FLUSH]),
    ("N", 0, [], []), ("NS", 8, [], []),
]  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_all_letters(name: str, tmp_path: Path) -> None:
    for event, column in (("D", 2), ("Q", 3)):
        path = tmp_path / "trace"
        lines = [WRITERS[name](event, 10 * i, one[0], 4096) for i, one in enumerate(ALL)]
        path.write_text(
            "".join(line.replace("+ 8", f"+ {one[1]}") + "\n" for line, one in zip(lines, ALL, strict=True))
        )
        trace = Trace(path, Options(event=event), format=name)
        found = rows(whole(trace))
        assert [row[1] for row in found] == [op for one in ALL for op in one[column]]
        assert {row[2:] for row in found if row[1] == FLUSH} == {(0, 0)}
        assert {row[2:] for row in found if row[1] == TRIM} == {(4096 * SECTOR, 2048 * SECTOR)}
        assert trace.rejected.total == 0
        assert trace.skipped["events of other stages, or without data"] == 2


def test_ftrace_by_other_tools(tmp_path: Path) -> None:
    """trace-cmd has lines of its own above, perf names the system of an event; lost events are reported."""
    path = tmp_path / "trace"
    lines = [
        "version = 6", "CPU 1 is empty", "cpus=2",
        "     a b-12 [000]  1.000001: block_rq_issue:       8,0 W 4096 () 8 + 8 [a b]",
        "     a b    12 [000]     1.000002:   block:block_rq_issue: 8,0 R 4096 (28 00 1f) 16 + 8 [a b]",
        " x-1 [001] d..2. 1.000003: sched_switch: prev_comm=x prev_pid=1 prev_prio=120 1.5: ==> next_comm=y",
        "CPU:1 [LOST 123 EVENTS]", " x-1 [001] d..2. 1.000004: block_rq_issue: 8,0 W 4096 () 1",
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    trace = Trace(path, format="ftrace")
    assert rows(whole(trace)) == [(0, WRITE, 8 * SECTOR, 4096), (1000, READ, 16 * SECTOR, 4096)]
    assert [(one["reason"], one["first_line"]) for one in trace.rejected.rows()] == [
        ("too few columns", 7), ("offset is no number", 8),
    ]  # fmt: skip
    assert trace.skipped == {"events of other stages, or without data": 4}


def test_operations_of_zoned_devices_are_told(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("".join(blkparse("D", i, rwbs, 8) + "\n" for i, rwbs in enumerate(("W", "ZA", "ZR", "X"))))
    trace = Trace(path)
    assert len(whole(trace)) == 1
    assert [(one["reason"], one["count"], one["first_line"]) for one in trace.rejected.rows()] == [
        ("unknown operation", 3, 2)
    ]


def test_a_flush_goes_with_its_request(tmp_path: Path) -> None:
    """Of a disk that is not wanted, or of a line that cannot be read, there is none."""
    path = tmp_path / "trace"
    lines = [blkparse("D", 1, "WFS", 8), blkparse("D", 2, "WFS", 8).replace("259,0", "8,0"),
             blkparse("D", 3, "WFS", 8).replace(" 8 ", " 8x ")]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    trace = Trace(path, Options(unit="8,0"))
    assert [row[1] for row in rows(whole(trace))] == [WRITE, FLUSH]
    assert trace.units == {"8,0": 2}
    assert trace.skipped["requests of other units"] == 2
    assert trace.rejected.total == 1


def test_where_flushes_are_put() -> None:
    op = np.array([WRITE, READ, TRIM, WRITE, WRITE], np.uint8)
    row, out = with_flushes(op, np.array([0, FLUSH_BEFORE, FLUSH_AFTER, FLUSH_BEFORE + FLUSH_AFTER, 0], np.uint8))
    assert row.tolist() == [0, 1, 1, 2, 2, 3, 3, 3, 4]
    assert out.tolist() == [WRITE, FLUSH, READ, TRIM, FLUSH, FLUSH, WRITE, FLUSH, WRITE]


def test_a_phase_counts_the_same_stage_as_what_is_measured(tmp_path: Path) -> None:
    """Requests of which only Q was traced were none in --before, whatever --event said."""
    path = tmp_path / "trace"
    path.write_text("".join(f"{blkparse('Q', 10 * n, 'W', 8 * n)}\n" for n in range(20)))
    (source,) = phases.sources((str(path),), 1 << 30, 4096, Options(event="Q"))
    assert sum(len(batch) for batch in source.batches()) == 20
    with pytest.raises(TraceError, match="no request in it"):
        list(phases.sources((str(path),), 1 << 30, 4096, Options(event="D"))[0].batches())
