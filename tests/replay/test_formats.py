"""Each format gives the requests that are in it, however it is packed; real traces give the counts beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from trace_files import DATA, FILES, PACKERS, REQUESTS, in_ns, rows, shared, whole

from flashfs.errors import UsageError
from flashfs.replay import trace_reader
from flashfs.replay._record import xxh3_64
from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, TraceError
from flashfs.replay.survey import survey
from flashfs.replay.trace_writer import Recording
from flashfs.replay.traces import FORMATS, Options, Trace, _content, format_named


def test_every_format_has_a_file() -> None:
    assert {one.name for one in FORMATS} - {name for name, _ in FILES.values()} == {"flashfs"}
    assert sorted(FILES) == sorted(path.name for path in DATA.iterdir())


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("file", FILES)
def test_requests(file: str, packing: str, tmp_path: Path) -> None:
    name, more = FILES[file]
    path = tmp_path / "trace"  # the name says nothing
    path.write_bytes(PACKERS[packing]((DATA / file).read_bytes()))
    trace = Trace(path)
    assert trace.format.name == name
    assert rows(whole(trace)) == in_ns(REQUESTS + more)
    assert trace.complaints() == []
    assert trace.timed
    assert trace.hash() == Trace(DATA / file).hash()
    assert rows(whole(trace, 5)) == in_ns(REQUESTS + more)  # again, and in other batches
    assert trace.span_bytes() == 2 * 2**20 + 24576


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("chunk_bytes", [1, 37, 200])
def test_borders_of_chunks(file: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_content, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(_content, "PIECE_BYTES", 16)
    trace = Trace(DATA / file)
    assert rows(whole(trace)) == in_ns(REQUESTS + FILES[file][1])
    skipped, units = dict(trace.skipped), trace.units
    monkeypatch.undo()
    whole(trace)
    assert (trace.skipped, trace.units) == (skipped, units)


def test_a_format_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("0 0 8 1 0\n5 0 16 2 1\n")
    with pytest.raises(TraceError, match="--format mqsim, but 2 lines are too few to show the units"):
        Trace(path)
    assert rows(whole(Trace(path, format="mqsim"))) == [(0, WRITE, 4096, 512), (5, READ, 8192, 1024)]
    assert rows(whole(Trace(path, format="ssdsim"))) == [(0, WRITE, 4096, 512), (5, READ, 8192, 1024)]
    assert rows(whole(Trace(path, format="mqsim-bytes"))) == [(0, WRITE, 8, 512), (5, READ, 16, 1024)]
    assert rows(whole(Trace(path, format="disksim"))) == [(0, WRITE, 4096, 512), (5_000_000, READ, 8192, 1024)]
    assert rows(whole(Trace(path, format="ascii-pages"))) == [(0, WRITE, 4096, 4096), (5_000_000, READ, 8192, 8192)]
    with pytest.raises(UsageError, match=r"format nonesuch: use .*msr.*"):
        format_named("nonesuch")


def test_line_endings_and_a_last_line_without_one(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    content = (DATA / "msr.csv").read_bytes()
    for changed in (content.replace(b"\n", b"\r\n"), content.rstrip(b"\n"), b"\n" + content, b"# note\n\n" + content):
        path.write_bytes(changed)
        trace = Trace(path)
        assert rows(whole(trace)) == in_ns(REQUESTS)
        assert trace.complaints() == []


def test_streams_one_after_the_other(tmp_path: Path) -> None:
    """As `cat a.gz b.gz` makes them, and parallel compressors."""
    content = (DATA / "msr.csv").read_bytes()
    for name in ("gz", "bz2", "xz", "zst"):
        path = tmp_path / name
        path.write_bytes(PACKERS[name](content[:100]) + PACKERS[name](content[100:]))
        assert rows(whole(Trace(path))) == in_ns(REQUESTS)


def test_times_are_exact(tmp_path: Path) -> None:
    """A double of seconds since 1970 would be off by some 100 ns."""
    path = tmp_path / "trace"
    path.write_text("".join(f"8 8 4096 1 1398396860.{ns:09d} 1.0 1.0 1.0\n" for ns in (1, 2, 3, 999_999_999)))
    assert whole(Trace(path, format="biotracer")).time_ns.tolist() == [0, 1, 2, 999_999_998]


def test_content_hashes() -> None:
    """Three contents in turn; a request of one 4 KiB keeps its number, pieces of others have numbers of their own."""
    hashes = whole(Trace(DATA / "fiu.txt")).hashes
    assert hashes is not None
    pieces = [length // 4096 for _, _, _, length in REQUESTS]
    assert np.diff(hashes.start).tolist() == pieces
    assert len(set(hashes.grain.tolist())) < len(hashes.grain)
    first = [int(hashes.grain[at]) for at in hashes.start[:-1]]
    for i, number in enumerate(first):
        assert [at for at, other in enumerate(first) if other == number] == list(range(i % 3, len(first), 3))


def test_units_lie_behind_each_other(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("1,0,4096,w,0\n0,8,4096,r,1\n1,4096,512,w,2\n0,0,512,w,3\n")
    trace = Trace(path)
    room = 3 << 20  # of unit 1, which comes first and ends after 2 MiB
    assert [offset for _, _, offset, _ in rows(whole(trace))] == [0, room + 4096, 2 << 20, room]
    assert trace.units == {"1": 2, "0": 2}
    assert trace.span_bytes() == room + 8192
    one = Trace(path, Options(unit="0"))
    assert [offset for _, _, offset, _ in rows(whole(one))] == [4096, 0]
    assert one.skipped == {"requests of other units": 2}
    assert one.span_bytes() == 8192
    with pytest.raises(TraceError, match="no request"):
        whole(Trace(path, Options(unit="7")))
    for file in ("biotracer.txt", "v1.vscsi"):
        with pytest.raises(UsageError, match="name no units"):
            Trace(DATA / file, Options(unit="7"))
    with pytest.raises(UsageError, match="have no stages"):
        Trace(DATA / "msr.csv", Options(event="Q"))


def test_waits_add_up_over_chunks_and_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file makes a pass over everything begin in the middle of this one."""
    path = tmp_path / "trace"
    lines = [f"/{'ab'[i % 7 == 6]} wait 5 0\n/{'ab'[i % 7 == 6]} write {i * 4096} 4096\n" for i in range(100)]
    path.write_text("fio version 2 iolog\n" + "".join(lines))
    monkeypatch.setattr(_content, "CHUNK_BYTES", 300)
    monkeypatch.setattr(_content, "PIECE_BYTES", 100)
    found = rows(whole(Trace(path)))
    assert [time for time, *_ in found] == [i * 5000 for i in range(100)]
    assert [offset for _, _, offset, _ in found] == [i * 4096 + (1 << 20) * (i % 7 == 6) for i in range(100)]


def test_a_request_without_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("1,0,4096,w,0\n,8,4096,w,1\n")
    trace = Trace(path, format="spc")
    assert len(whole(trace)) == 2
    assert trace.units == {"1": 1, "-1": 1}
    assert len(whole(Trace(path, Options(unit="1"), format="spc"))) == 1


def test_stages_of_a_blktrace() -> None:
    for event in "QC":
        trace = Trace(DATA / "blkparse.txt", Options(event=event))
        found = rows(whole(trace))
        assert found[: len(REQUESTS)] == in_ns(REQUESTS)
        assert len(found) == len(REQUESTS) + (event == "Q")  # a flush was queued


def recording(path: Path) -> Recording:
    """Of a device of 1 GiB, to a new file."""
    header = trace_reader.Header(1, 1 << 30, 4096, 4096, 1_700_000_000_000_000_000, UUID(int=5), "pagemap")
    return Recording(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path, header)


def test_our_own_recorder(tmp_path: Path) -> None:
    """A zeroing is a trim, a copy is a read and a write, and an empty request is reported."""
    path = tmp_path / "trace"
    op = {name: number for number, name in enumerate(trace_reader.OPERATIONS)}
    one, two = b"1" * 4096, b"2" * 4096
    recorder = recording(path)
    try:
        assert recorder.record(op["write"], 4096, 8192, one + two)
        assert recorder.record_copy(81920, 40960, 4096)
        assert recorder.record(op["zero"], 0, 4096)
        assert recorder.record(op["flush"], 0, 0)
        assert recorder.record(op["read"], 512, 0)
        assert recorder.record(op["trim"], 8192, 4096)
        assert recorder.record(op["write"], 0, 4096)  # its data were not at hand
        assert recorder.record(op["write"], 8192, 4096, one)
    finally:
        recorder.close()
    trace = Trace(path)
    assert trace.format.name == "flashfs"
    assert trace.made_for() == (1 << 30, 4096)
    found = whole(trace)
    assert [row[1:] for row in rows(found)] == [
        (WRITE, 4096, 8192), (READ, 81920, 4096), (WRITE, 40960, 4096), (TRIM, 0, 4096), (FLUSH, 0, 0),
        (TRIM, 8192, 4096), (WRITE, 0, 4096), (WRITE, 8192, 4096),
    ]  # fmt: skip
    assert found.hashes is not None
    assert found.hashes.start.tolist() == [0, 2, 2, 2, 2, 2, 2, 2, 3]
    assert found.hashes.grain.tolist() == [xxh3_64(one), xxh3_64(two), xxh3_64(one)]
    assert [line.partition(": ")[2] for line in trace.complaints()] == [
        "1 line rejected: empty request (first: line 5: 'read, offset 512, length 0')"
    ]
    shifted = whole(Trace(path, Options(shift_bytes=512)))
    assert shifted.hashes is None  # they are of other 4 KiB now
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    cut = Trace(path)
    assert len(whole(cut)) == len(found)
    assert [row["reason"] for row in cut.rejected.rows()] == ["empty request", "the file ends early"]
    path.write_bytes(PACKERS["gz"](content))
    with pytest.raises(TraceError, match="unpack the gz"):
        whole(Trace(path))


def expected() -> list[Any]:
    """Rows of the table beside the real traces, if they are here."""
    folder = shared()
    if folder is None:
        return [pytest.param(None, [], marks=pytest.mark.skip(reason="needs real traces: FLASHFS_TRACES says where"))]
    out = []
    for line in (folder / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 8 and re.fullmatch(r"[\d,]+", cells[2]):
            numbers = [int(number.replace(",", "")) for cell in cells[2:] for number in cell.split("/")]
            path = next(folder.glob(f"{cells[0]}__*"))
            out.append(pytest.param(path, numbers, id=cells[0]))
    assert out
    return out


@pytest.mark.parametrize(("path", "numbers"), expected())
def test_real_traces(path: Path, numbers: list[int]) -> None:
    found = survey(Trace(path))
    by = {row["operation"]: row for row in found["operations"]}
    none = {"requests": 0, "pages": 0}
    read, write, trim = (by.get(name, none) for name in ("read", "write", "trim"))
    assert [
        found["requests"], read["requests"], write["requests"], trim["requests"], found["footprint_pages"],
        write["pages"], found["distinct_written_pages"], read["pages"],
    ] == numbers  # fmt: skip


@pytest.mark.skipif(shared() is None, reason="needs real traces: FLASHFS_TRACES says where")
def test_what_is_wrong_with_real_traces() -> None:
    """Debris of a tar archive, a negative offset, and a partition that is 7 sectors off."""
    folder = shared()
    assert folder is not None
    fiu = Trace(next(folder.glob("fiu_mail*")))
    whole(fiu)
    assert fiu.rejected.total == 4
    wiscsee = Trace(next(folder.glob("sqlite_rbj*")))
    whole(wiscsee)
    assert [(row["reason"], row["count"], row["first_line"]) for row in wiscsee.rejected.rows()] == [
        ("negative offset", 1, 113)
    ]
    path = next(folder.glob("cloudphysics*"))
    assert survey(Trace(path))["unaligned_requests"] == 113_768
    straight = survey(Trace(path, Options(shift_bytes=-7 * 512)))
    assert straight["unaligned_requests"] == 32_619
    assert straight["operations"][1]["pages"] == 608_352
