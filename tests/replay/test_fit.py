"""What is done with a trace before it is replayed: shift, fit, speed-up, loops, the first so many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_files import DATA, MS, REQUESTS, in_ns, rows, whole

from flashfs.errors import UsageError
from flashfs.replay.request_source import READ, TRIM, WRITE
from flashfs.replay.traces import Options, Trace

MIB = 1 << 20


def iolog(path: Path, requests: list[tuple[str, int, int]]) -> Path:
    lines = [f"{at} /d {action} {offset} {length}\n" for at, (action, offset, length) in enumerate(requests)]
    path.write_text("fio version 3 iolog\n" + "".join(lines))
    return path


def places(trace: Trace) -> list[tuple[int, int, int]]:
    return [(op, offset, length) for _, op, offset, length in rows(whole(trace))]


def test_the_first_requests_in_loops() -> None:
    trace = Trace(DATA / "msr.csv", Options(first=3, loops=3))
    gap = 2 * MS // 2  # between requests, on average
    once = in_ns(REQUESTS[:3])
    assert rows(whole(trace)) == [(time + loop * (2 * MS + gap), *rest) for loop in range(3) for time, *rest in once]
    assert rows(whole(trace, 2)) == rows(whole(trace))


def test_what_is_wrong_is_told_once_however_often_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text((DATA / "msr.csv").read_text() + "noise\n")
    trace = Trace(path, Options(loops=4))
    for _ in range(2):
        assert len(whole(trace)) == 4 * len(REQUESTS)
        assert trace.rejected.total == 1


def test_speed_up() -> None:
    for factor in (2.0, 0.5, 1000.0):
        found = whole(Trace(DATA / "msr.csv", Options(speedup=factor, loops=2))).time_ns
        n = len(REQUESTS)
        plain = np.array([ms * MS for ms, *_ in REQUESTS])
        assert found[:n].tolist() == np.floor(plain / factor).astype(int).tolist()
        period = (plain[-1] + plain[-1] // (n - 1)) / factor
        assert abs((found[n:] - found[:n]) - period).max() <= 1


def test_sorted_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of one time stay in their order; the first so many are the earliest; disks lie as they lay."""
    path = tmp_path / "trace"
    when = [30, 10, 20, 10, 40, 0]
    path.write_text("".join(f"{at},{'ab'[i % 2]},{i * 4096},4096,w\n" for i, at in enumerate(when)))
    asked = "columns:time:ms,dev,offset:1,length:1,op"
    plain, ordered = Trace(path, format=asked), Trace(path, Options(sort=True), format=asked)
    found, wanted = rows(whole(ordered)), rows(whole(plain))
    assert plain.adjusted.total == 4
    assert "; --sort puts requests into the order of their times" in plain.complaints()[0]
    assert ordered.complaints() == []
    assert [time for time, *_ in found] == [at * MS for at in sorted(when)]
    assert [row[1:] for row in found] == [wanted[i][1:] for i in (5, 1, 3, 2, 0, 4)]
    assert (ordered.units, ordered.span_bytes()) == (plain.units, plain.span_bytes())
    assert rows(whole(Trace(path, Options(sort=True, first=2, loops=2), format=asked)))[1][1:] == found[1][1:]
    monkeypatch.setattr("flashfs.replay.traces._content.CHUNK_BYTES", 20)
    monkeypatch.setattr("flashfs.replay.traces._content.PIECE_BYTES", 20)
    assert rows(whole(ordered)) == found
    with pytest.raises(UsageError, match=r"sort: .*trace, read as columns:-,-,offset:1,length:1,op, has no times"):
        Trace(path, Options(sort=True), format="columns:-,-,offset:1,length:1,op")


def test_sorted_with_all_that_a_request_has(tmp_path: Path) -> None:
    """Hashes of contents of any length go with their requests, and so do the sources of remaps."""
    fiu = [line.split() for line in (DATA / "fiu.txt").read_text().splitlines()]
    path = tmp_path / "trace"
    path.write_text("\n".join(" ".join(line) for line in reversed(fiu)) + "\n")
    found, wanted = whole(Trace(path, Options(sort=True))), whole(Trace(DATA / "fiu.txt"))
    # of two requests of one time, the one that stands first comes first
    later = [i + 1 if i == 2 else i - 1 if i == 3 else i for i in range(len(REQUESTS))]
    assert [rows(found)[i] for i in later] == rows(wanted)
    assert found.hashes is not None and wanted.hashes is not None
    start = wanted.hashes.start.tolist()
    runs = [wanted.hashes.grain[start[i] : start[i + 1]].tolist() for i in later]
    assert found.hashes.grain.tolist() == [number for run in runs for number in run]


def test_shift() -> None:
    trace = Trace(DATA / "msr.csv", Options(shift_bytes=3584))
    assert [offset for _, offset, _ in places(trace)] == [offset + 3584 for _, _, offset, _ in REQUESTS]
    assert trace.span_bytes() == 2 * MIB + 24576 + 3584
    flushes = Trace(DATA / "fio3.log", Options(shift_bytes=-(1 << 40)))
    assert len(whole(flushes)) == 1  # the flush has no address
    assert flushes.rejected.total == len(REQUESTS) + 1


def test_wrap(tmp_path: Path) -> None:
    path = iolog(tmp_path / "trace", [
        ("write", 0, 4096), ("write", 5 * MIB + 8192, 4096), ("write", 2 * MIB - 4096, 8192),
        ("write", 3 * MIB - 512, 4096), ("read", MIB + 512, MIB), ("write", 0, 3 * MIB), ("trim", MIB, 4096),
    ])  # fmt: skip
    trace = Trace(path, Options(fit="wrap"), device_bytes=2 * MIB)
    assert places(trace) == [
        (WRITE, 0, 4096), (WRITE, MIB + 8192, 4096), (WRITE, 2 * MIB - 8192, 8192), (WRITE, MIB - 512, 4096),
        (READ, MIB - 4096 + 512, MIB), (TRIM, MIB, 4096),
    ]  # fmt: skip
    assert [row["reason"] for row in trace.rejected.rows()] == ["longer than the device"]
    assert trace.span_bytes() == 2 * MIB


def test_scale(tmp_path: Path) -> None:
    requests = [("write", at * MIB + 512, 4096) for at in range(64)]
    path = iolog(tmp_path / "trace", [*requests, ("trim", 32 * MIB, 32 * MIB), ("read", 64 * MIB - 4096, 4096)])
    found = places(Trace(path, Options(fit="scale"), device_bytes=MIB))
    assert all(offset % 4096 == 512 for _, offset, _ in found[:63])
    assert [offset // 4096 for _, offset, _ in found[:63]] == [at * 4 for at in range(63)]
    assert found[64] == (TRIM, MIB // 2, MIB // 2)
    assert found[65] == (READ, MIB - 4096, 4096)
    assert max(offset + length for _, offset, length in found) <= MIB
    roomy = Trace(path, Options(fit="scale"), device_bytes=1 << 30)
    assert places(roomy) == places(Trace(path))  # there is nothing to scale


def test_pack(tmp_path: Path) -> None:
    """MiBs 1, 2 and 9 are touched; trims shrink to what is left of their range."""
    path = iolog(tmp_path / "trace", [
        ("write", 9 * MIB + 512, 4096), ("trim", 0, 12 * MIB), ("trim", 4 * MIB, 2 * MIB),
        ("write", 2 * MIB - 4096, 8192), ("trim", MIB + 4096, 8 * MIB), ("read", 2 * MIB + 8192, 4096),
    ])  # fmt: skip
    trace = Trace(path, Options(fit="pack"), device_bytes=3 * MIB)
    assert places(trace) == [
        (WRITE, 2 * MIB + 512, 4096), (TRIM, 0, 3 * MIB), (WRITE, MIB - 4096, 8192),
        (TRIM, 4096, 2 * MIB - 4096 + 4096), (READ, MIB + 8192, 4096),
    ]  # fmt: skip
    assert trace.rejected.total == 0
    assert trace.skipped["trims of space that nothing else touches"] == 1
    small = Trace(path, Options(fit="pack"), device_bytes=2 * MIB)
    assert [row["reason"] for row in (whole(small), small.rejected.rows())[1]] == ["beyond the device"]


def test_pack_by_pages(tmp_path: Path) -> None:
    """A device of the footprint's size holds everything, in the order of addresses."""
    path = iolog(tmp_path / "trace", [
        ("write", 9 * MIB + 512, 4096), ("write", 1 << 40, 8192), ("read", 4096, 512), ("trim", 0, 1 << 41),
    ])  # fmt: skip
    trace = Trace(path, Options(fit="pack", pack_bytes=4096), device_bytes=5 * 4096)
    assert places(trace) == [(WRITE, 4096 + 512, 4096), (WRITE, 3 * 4096, 8192), (READ, 0, 512), (TRIM, 0, 5 * 4096)]
    random_pages = np.random.default_rng(6).integers(0, 1 << 30, 3000)
    path = iolog(tmp_path / "trace", [("write", int(page) * 4096, 4096) for page in random_pages])
    distinct, place = np.unique(random_pages, return_inverse=True)
    trace = Trace(path, Options(fit="pack", pack_bytes=4096), device_bytes=len(distinct) * 4096)
    assert (whole(trace).offset // 4096 == place).all()
    assert trace.packed_bytes() == len(distinct) * 4096


@pytest.mark.parametrize("fit", ["clip", "wrap", "scale", "pack"])
def test_whatever_the_fit_requests_lie_on_the_device(fit: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    kinds = ["read", "write", "trim"]
    numbers = zip(rng.integers(0, 3, 2000), rng.integers(0, 1 << 26, 2000), rng.integers(1, 1024, 2000), strict=True)
    requests = [(kinds[kind], int(offset) * 512, int(length) * 512) for kind, offset, length in numbers]
    path = iolog(tmp_path / "trace", requests)
    device = 10 * MIB
    trace = Trace(path, Options(fit=fit, shift_bytes=1024), device_bytes=device)
    found = whole(trace)
    assert (found.offset + found.length <= device).all()
    assert (found.length > 0).all()
    dropped = trace.rejected.total + trace.skipped.get("trims of space that nothing else touches", 0)
    assert len(found) + dropped == len(requests)
    if fit in ("wrap", "scale"):
        assert dropped == 0


def test_hashes_go_with_their_requests(tmp_path: Path) -> None:
    """Those of requests that are left out are left out; those of the others stay the same."""
    lines = [f"{at} 1 p {at * 2048} 8 W 6 0 {at % 7 + 1:032x}\n" for at in range(100)]
    path = tmp_path / "trace"
    path.write_text("".join(lines).replace(f"{7 + 0:032x}", f"{0x7000000000000000:016x}{0:016x}"))
    everything = whole(Trace(path, format="fiu"))
    half = whole(Trace(path, device_bytes=50 * MIB, format="fiu"))
    assert everything.hashes is not None and half.hashes is not None
    assert len(half) == len(half.hashes.grain) == 50
    assert half.hashes.grain.tolist() == everything.hashes.grain.tolist()[:50]
