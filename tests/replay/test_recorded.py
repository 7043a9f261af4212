"""What is noted is what is read back: all of it, in order, with the right hashes; and what is not there is counted."""

from __future__ import annotations

import logging
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import trace_reader as reader
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from flashfs.errors import UsageError
from flashfs.replay import trace_reader, trace_writer
from flashfs.replay._record import CHUNK_BYTES, CHUNK_RECORDS, CHUNK_WORDS, OPERATIONS, Recorder, xxh3_64
from flashfs.replay.trace_reader import ChunkHeader, Header, TraceError, read, summary
from flashfs.replay.trace_writer import Recording, check
from nandimg import checksum

READ, WRITE, TRIM, ZERO, FLUSH, COPY, REMAP, MOVE = range(len(OPERATIONS))
FILE_HEADER_BYTES, CHUNK_HEADER_BYTES = 128, 48
SIZE = 1 << 40
PAGE = 4096
HEADER = Header(2, SIZE, PAGE, PAGE, 1_700_000_000_000_000_000, UUID(int=5), "pagemap")

Request = tuple[int, int, int, list[int]]  # operation, offset, length, hashes


@contextmanager
def opened(path: Path, **keywords: Any) -> Iterator[Recording]:
    """A recording to ``path``, closed at the end."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    recording = Recording(file, path, HEADER, **keywords)
    try:
        yield recording
    finally:
        recording.close()


def requests(path: Path) -> list[Request]:
    """All that a trace has."""
    out = []
    for batch in read(path):
        words = np.split(batch.hashes, batch.hash_first[1:-1])
        columns = (batch.op.tolist(), batch.offset.tolist(), batch.length.tolist(), [some.tolist() for some in words])
        out += list(zip(*columns, strict=True))
    return out


def hashes(offset: int, data: bytes) -> list[int]:
    """The hash of each piece of a write, found another way: the device's 4 KiB borders cut the data."""
    borders = sorted({0, len(data), *range(-offset % PAGE, len(data), PAGE)})
    return [xxh3_64(data[start:end]) for start, end in pairwise(borders)]


# ---- there and back ----

numbers = st.integers(0, SIZE - (1 << 20))
lengths = st.one_of(st.integers(0, 20_000), st.sampled_from([PAGE, 8 * PAGE, 1 << 20]))
plain = st.tuples(st.sampled_from([READ, TRIM, ZERO]), numbers, lengths, st.none())
writes = st.tuples(st.just(WRITE), numbers, st.binary(max_size=3 * PAGE), st.booleans())
flushes = st.just((FLUSH, 0, 0, None))
copies = st.tuples(st.sampled_from([COPY, REMAP, MOVE]), numbers, lengths, numbers)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(plain, writes, flushes, copies), max_size=40), st.integers(1, 7))
def test_what_is_noted_is_read(tmp_path_factory: pytest.TempPathFactory, given: list[Any], pause: int) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    expected: list[Request] = []
    with opened(path) as recorder:
        for number, (op, offset, what, more) in enumerate(given):
            if op == WRITE:
                assert recorder.record(op, offset, len(what), what if more else None)
                expected.append((op, offset, len(what), hashes(offset, what) if more and what else []))
            elif op == COPY:
                assert recorder.record_copy(more, offset, what)
                expected.append((op, offset, what, [more]))
            elif op in (REMAP, MOVE):
                assert recorder.record_remap(more, offset, what, op == MOVE)
                expected.append((op, offset, what, [more]))
            else:
                assert recorder.record(op, offset, what)
                expected.append((op, offset, what, []))
            if number % pause == 0:
                recorder._write_all(unfinished=False)  # as the thread does, at some moment
    assert requests(path) == expected
    trace = read(path)
    list(trace)
    assert (trace.ending, trace.records, trace.dropped) == (None, len(expected), 0)
    assert trace.header == HEADER
    said, others, dropped = reader.read(path)  # what the documentation says is what is there
    assert [row[1:] for row in others] == expected
    assert [row[0] for row in others] == [int(time) for batch in trace for time in batch.time_ns]
    assert (said["size"], said["ftl"], said["uuid"], dropped) == (SIZE, "pagemap", HEADER.uuid.hex, 0)


def test_the_hash_is_xxh3() -> None:
    # As the library computes it without any vector instruction (XXH_VECTOR=0, 0.8.1).
    assert f"{xxh3_64(b''):016x}" == "2d06800538d394c2"
    assert f"{xxh3_64(bytes(PAGE)):016x}" == "93d76fe148c689ba"
    assert f"{xxh3_64(bytes(range(256)) * 16):016x}" == "eb4b7c3707879151"


def test_many_chunks_and_times(tmp_path: Path) -> None:
    count = 5 * CHUNK_RECORDS + 17
    before = time.monotonic_ns()
    with opened(tmp_path / "t") as recorder:
        for number in range(count):
            recorder.record(READ, number * 512, 512)
    took = time.monotonic_ns() - before
    batches = list(read(tmp_path / "t"))
    assert len(batches) >= 6
    offsets = np.concatenate([batch.offset for batch in batches])
    assert (offsets == np.arange(count, dtype=np.uint64) * 512).all()
    times = np.concatenate([batch.time_ns for batch in batches])
    assert (np.diff(times.astype(np.int64)) >= 0).all()
    assert times[-1] <= took


def test_a_write_of_more_hashes_than_a_chunk_holds(tmp_path: Path) -> None:
    data = bytes(CHUNK_WORDS * PAGE + 5000)
    with opened(tmp_path / "t") as recorder:
        assert recorder.record(WRITE, 100, len(data), data)
    found = requests(tmp_path / "t")
    assert len(found) == 2
    assert found[0][1] == 100
    assert found[1][1] == 100 + found[0][2]
    assert found[0][2] + found[1][2] == len(data)
    assert found[0][3] + found[1][3] == hashes(100, data)


def test_from_many_threads(tmp_path: Path) -> None:
    each, data = 4000, os.urandom(2 * PAGE)

    def work(number: int) -> None:
        for index in range(each):
            recorder.record(WRITE, (number * each + index) * PAGE, len(data), data)

    with opened(tmp_path / "t") as recorder:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = requests(tmp_path / "t")
    assert sorted(offset for _, offset, _, _ in found) == [number * PAGE for number in range(4 * each)]
    assert {tuple(words) for *_, words in found} == {tuple(hashes(0, data))}
    for number in range(4):  # each thread's own are in its order
        mine = [offset for _, offset, _, _ in found if number * each <= offset // PAGE < (number + 1) * each]
        assert mine == sorted(mine)


def test_from_many_threads_without_the_interpreter(tmp_path: Path) -> None:
    """As a native server calls it, while the writing thread takes chunks away: nothing is lost, nothing mixed up."""
    each, data = 3 * CHUNK_RECORDS, [bytes([number]) * PAGE for number in range(3)]

    def work(number: int) -> None:
        assert recorder.note_often(WRITE, number * PAGE, PAGE, data[number], each) == 0

    with opened(tmp_path / "t") as recorder:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert recorder.note_often(READ, SIZE, 1, None, 5) == 5  # not within the device: dropped and counted
    batches = list(read(tmp_path / "t"))
    offset, words = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("offset", "hashes"))
    for number in range(3):
        mine = words[offset == number * PAGE]
        assert len(mine) == each
        assert (mine == xxh3_64(data[number])).all()
    assert (len(offset), recorder.dropped) == (3 * each, 5)


@pytest.mark.parametrize(
    "call",
    [
        lambda recorder: recorder.record(READ, SIZE - 1, 2),
        lambda recorder: recorder.record(READ, SIZE + 1, 0),
        lambda recorder: recorder.record(COPY, 0, 0),
        lambda recorder: recorder.record(9, 0, 0),
        lambda recorder: recorder.record(WRITE, 0, 5, b"four"),
        lambda recorder: recorder.record(READ, 0, 4, b"four"),
        lambda recorder: recorder.record_copy(SIZE - 1, 0, 2),
    ],
)
def test_no_request_of_the_device(tmp_path: Path, call: Callable[[Recorder], bool]) -> None:
    with opened(tmp_path / "t") as recorder, pytest.raises(ValueError, match=r"\d"):
        call(recorder)
    assert requests(tmp_path / "t") == []


def test_it_is_in_the_file_within_a_second(tmp_path: Path) -> None:
    with opened(tmp_path / "t") as recorder:
        recorder.record(READ, 0, PAGE)
        end = time.monotonic() + 30  # of a machine that does other things; the period is half a second
        while not requests(tmp_path / "t") and time.monotonic() < end:
            time.sleep(0.02)
        assert requests(tmp_path / "t") == [(READ, 0, PAGE, [])]
        assert "ends after 1 requests" in str(summary(tmp_path / "t")["ending"])
    assert trace_writer.PERIOD_S < 1


def test_a_long_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times within a chunk are 32 bits: a longer pause begins another. The chunk is not taken meanwhile here."""
    recorder = Recorder(SIZE)
    recorder.record(READ, 0, 1)
    taken = recorder.take(True)
    assert taken is not None
    recorder.record(READ, 1, 1)
    time.sleep(4.4)
    recorder.record(READ, 2, 1)
    first, second = recorder.take(True), recorder.take(True)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (1, 1)
    assert second[2] - first[2] > 1 << 32


def test_summary(tmp_path: Path) -> None:
    with opened(tmp_path / "t") as recorder:
        recorder.record(WRITE, 0, 2 * PAGE, bytes(2 * PAGE))
        recorder.record_copy(0, PAGE, PAGE)
        recorder.record(FLUSH, 0, 0)
        recorder.record(WRITE, PAGE, PAGE)
    found = summary(tmp_path / "t")
    assert found["by_operation"] == [
        {"operation": "write", "requests": 2, "bytes": 3 * PAGE},
        {"operation": "flush", "requests": 1, "bytes": 0},
        {"operation": "copy", "requests": 1, "bytes": PAGE},
    ]
    assert (found["requests"], found["dropped"], found["hashes"], found["ending"]) == (4, 0, 2, None)
    assert (found["ftl"], found["size"], found["started_ns"]) == ("pagemap", SIZE, HEADER.wall_ns)


# ---- files that are cut off, damaged, foreign ----


def three_chunks(path: Path) -> list[int]:
    """A trace of three chunks and an end; where each begins, and where the file ends."""
    starts = []
    with opened(path) as recorder:
        for number in range(3):
            for index in range(number + 2):
                recorder.record(WRITE, (10 * number + index) * PAGE, PAGE, bytes([number]) * PAGE)
            starts.append(path.stat().st_size)
            recorder._write_all(unfinished=True)
    assert path.stat().st_size == recorder.figures()["bytes"]
    return [*starts, path.stat().st_size - CHUNK_HEADER_BYTES, path.stat().st_size]


def test_cut_off_at_every_byte(tmp_path: Path) -> None:
    path, cut = tmp_path / "t", tmp_path / "cut"
    starts = three_chunks(path)
    whole, all_of_it = path.read_bytes(), requests(path)
    assert len(all_of_it) == 9
    for length in range(FILE_HEADER_BYTES, len(whole)):
        cut.write_bytes(whole[:length])
        kept = sum(length >= start for start in starts[1:4])
        trace = read(cut)
        assert sum(len(batch) for batch in trace) == (0, 2, 5, 9)[kept]
        assert trace.ending is not None
        assert f"after {(0, 2, 5, 9)[kept]} requests, at byte {starts[kept]}" in trace.ending
        assert requests(cut) == all_of_it[: (0, 2, 5, 9)[kept]]
    for length in range(FILE_HEADER_BYTES):
        cut.write_bytes(whole[:length])
        with pytest.raises(TraceError, match="no recorded trace" if length < 8 else "cut off within its header"):
            read(cut)


def test_a_tail_of_zeros_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t"
    starts = three_chunks(path)
    whole = path.read_bytes()
    for kept in (starts[2], starts[2] + CHUNK_HEADER_BYTES):
        path.write_bytes(whole[:kept] + bytes(100_000))
        assert len(requests(path)) == 5
        path.write_bytes(whole[:kept] + bytes(100_000) + b"x")
        with pytest.raises(TraceError, match="damaged: chunk 2"):
            requests(path)


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t"
    starts = three_chunks(path)
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        whole[at] ^= 0x10
        path.write_bytes(whole)
        whole[at] ^= 0x10
        with pytest.raises(TraceError) as caught:
            requests(path)
        said = str(caught.value)
        assert said.startswith(f"{path}: ")
        assert "\n" not in said
        if at >= FILE_HEADER_BYTES:
            number = sum(at >= start for start in starts[1:4])
            assert f"damaged: chunk {number}: " in said


def forged(rows: list[tuple[int, int, int, int]], words: list[int], **changes: Any) -> bytes:
    """A chunk with right checksums, whatever is in it: (gap, operation byte, offset, length) each."""
    gap, op, offset, length = (list(column) for column in zip(*rows, strict=True))
    raw = b"".join(
        np.array(column, kind).view(np.uint8).reshape(len(rows), -1).T.tobytes()
        for column, kind in ((gap, "<u4"), (op, "u1"), (offset, "<u8"), (length, "<u8"))
    )
    raw += np.array(words, "<u8").tobytes()
    stored = changes.pop("stored", zstandard.compress(raw))
    head = ChunkHeader(b"CHNK", len(rows), len(words), len(raw), len(stored), checksum(stored), 0, 0, 1)
    return head._replace(**changes).packed() + stored


ONE = [(0, 0, 0, 512)]


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (forged([(0, 8, 0, 0)], []), "operation 8, which version 2 does not know"),
        (forged([(0, 6, 0, 512)], [SIZE - 511]), "a remap that this device cannot have had"),
        (forged([(0, 7, 0, 512)], [2**64 - 1]), "a remap that this device cannot have had"),
        (forged([(0, 0, SIZE, 1)], []), "cannot have had"),
        (forged([(0, 0, 2**64 - 1, 2)], []), "cannot have had"),
        (forged([(0, 0x80, 0, 512)], [1]), "cannot have had"),
        (forged([(0, 0x81, 4095, 2)], [1]), "1 hashes for 2 pieces"),
        (forged([(0, 5, 0, 0)], []), "0 hashes for 1 pieces"),
        (forged(ONE, [], records=2), "not of the length"),
        (forged(ONE, [], records=0), "not of the length"),
        (forged(ONE, [], unpacked_bytes=1 << 31), "not of the length"),
        (forged(ONE, [], kind=7), "not of the length"),
        (forged(ONE, [], kind=0), "not of the length"),
        (forged(ONE, [], stored=b"no zstd"), "not of the length"),
        (forged(ONE, [], stored=zstandard.compress(bytes(22))), "not of the length"),
        (forged(ONE, []) + forged(ONE, []), "begins after 0 requests, and 1 came before"),
        (ChunkHeader(b"CHNK", 0, 0, 0, 0, 0, 0, 0, 2).packed() + b"x", "more after the end"),
    ],
)
def test_forged_chunks_are_refused(tmp_path: Path, chunk: bytes, said: str) -> None:
    (tmp_path / "t").write_bytes(HEADER.packed() + chunk)
    with pytest.raises(TraceError, match=said):
        requests(tmp_path / "t")


def test_a_trace_of_version_1(tmp_path: Path) -> None:
    """It is read as ever, and has no remaps."""
    old = replace(HEADER, version=1)
    (tmp_path / "t").write_bytes(old.packed() + forged([(0, 5, 4096, 512)], [77]))
    assert requests(tmp_path / "t") == [(COPY, 4096, 512, [77])]
    (tmp_path / "t").write_bytes(old.packed() + forged([(0, 6, 4096, 512)], [77]))
    with pytest.raises(TraceError, match="operation 6, which version 1 does not know"):
        requests(tmp_path / "t")


def header(**changes: Any) -> bytes:
    """A file's header with right checksum."""
    fields = list(trace_reader.FILE_HEADER.unpack_from(HEADER.packed()))
    names = ("magic", "version", "header_bytes", "size", "page_bytes", "grain", "wall_ns", "uuid", "ftl", "zero")
    for name, value in changes.items():
        fields[names.index(name)] = value
    raw = trace_reader.FILE_HEADER.pack(*fields)
    return raw + struct.pack("<I", checksum(raw))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no recorded trace"),
        (b"NANDIMG\0" + bytes(200), "no recorded trace"),
        (header(version=3), "a trace of version 3: this flashfs reads versions 1 to 2"),
        (header(header_bytes=500), "that is not version 2"),
        (header(grain=512), "that is not version 2"),
        (header(size=1 << 63), "that is not version 2"),
        (header(ftl=b"\xff"), "no UTF-8"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(TraceError, match=said) as caught:
        read(tmp_path / "t")
    assert str(caught.value).startswith(str(tmp_path / "t"))


# ---- what is not there is counted ----


def test_full_memory_drops_and_counts() -> None:
    recorder = Recorder(SIZE, 2 * CHUNK_BYTES)
    kept = sum(recorder.record(READ, number, 1) for number in range(3 * CHUNK_RECORDS))
    assert (kept, recorder.noted, recorder.lost) == (2 * CHUNK_RECORDS, 3 * CHUNK_RECORDS, CHUNK_RECORDS)
    with pytest.raises(UsageError, match="two chunks"):
        Recorder(SIZE, CHUNK_BYTES)


def test_a_gap_shows_where_it_is(tmp_path: Path) -> None:
    """The thread cannot keep up, as when the disk is slow: what fits in memory is kept, and the trace says how many
    requests are missing after it."""
    slow = threading.Event()

    class Slow(Recording):
        def _put(self, data: bytes) -> None:
            slow.wait(60)
            super()._put(data)

    slow.set()
    path = tmp_path / "t"
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    recorder = Slow(file, path, HEADER, 2 * CHUNK_BYTES)
    try:
        slow.clear()
        kept = [number for number in range(6 * CHUNK_RECORDS) if recorder.record(READ, number, 1)]
        dropped = 6 * CHUNK_RECORDS - len(kept)
        assert dropped >= 2 * CHUNK_RECORDS  # two in memory, one more in the thread's hands
        assert recorder.figures() == {
            "requests": len(kept), "dropped": dropped, "bytes": FILE_HEADER_BYTES, "failed": None
        }  # fmt: skip
        slow.set()
        end = time.monotonic() + 60
        while not recorder.record(READ, SIZE - 1, 1) and time.monotonic() < end:
            dropped += 1
    finally:
        slow.set()
        recorder.close()
    assert [offset for _, offset, _, _ in requests(path)] == [*kept, SIZE - 1]
    assert recorder.dropped == dropped
    trace = read(path)
    list(trace)
    assert (trace.dropped, trace.ending) == (dropped, None)


def test_a_full_disk_ends_the_recording_only(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A limit on the file's size stands for the full disk: the first chunks fit, a later one does not."""
    path, before = tmp_path / "t", resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with caplog.at_level(logging.WARNING), opened(path) as recorder:
            recorder.record(READ, 0, 1)
            recorder._write_all(unfinished=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
            data = os.urandom(1 << 20)
            for _ in range(3):
                recorder.record(WRITE, 0, len(data), data)
            end = time.monotonic() + 60
            while recorder.failed is None and time.monotonic() < end:
                time.sleep(0.01)
            assert not recorder.record(READ, 0, 1)
            figures = recorder.figures()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (figures["requests"], figures["dropped"], figures["failed"]) == (1, 4, "File too large")
    assert requests(path) == [(READ, 0, 1, [])]
    assert path.stat().st_size == figures["bytes"]  # no half a chunk
    stopped = [record.getMessage() for record in caplog.records if "recording stopped" in record.getMessage()]
    assert stopped == [f"{path}: recording stopped, the mount goes on: File too large"]
    assert "4 requests are not in the trace" in caplog.records[-1].getMessage()


def test_a_device_that_is_full(tmp_path: Path) -> None:
    """Not even the header can be written: the recording raises at once."""
    file = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left"):
            Recording(file, Path("/dev/full"), HEADER)
    finally:
        os.close(file)


def test_any_error_of_the_thread_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recording):
        def _write(self, chunk: Any) -> bool:
            if chunk is None:
                return False
            raise ValueError("of\ntwo lines")

    path = tmp_path / "t"
    recorder = Broken(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path, HEADER)
    for number in range(100):
        recorder.record(READ, number, 1)
    with caplog.at_level(logging.WARNING):
        recorder.close()
    recorder.close()  # once more does nothing
    assert (recorder.dropped, recorder.failed) == (100, "ValueError: of two lines")
    assert requests(path) == []


def test_a_kill_leaves_a_readable_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    program = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_recorded import opened
with opened(Path({str(path)!r})) as recorder:
    number = 0
    while True:
        recorder.record(1, number * 4096, 4096, bytes(4096))
        number += 1
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (path.exists() and path.stat().st_size > 100_000):
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    found = requests(path)
    assert [offset for _, offset, _, _ in found] == [number * PAGE for number in range(len(found))]
    assert len(found) > CHUNK_RECORDS
    assert "the mount was not unmounted" in str(summary(path)["ending"])


# ---- where a trace may be made ----


def test_a_trace_takes_no_place_of_another_file(tmp_path: Path) -> None:
    check(tmp_path / "free")
    (tmp_path / "empty").touch()
    check(tmp_path / "empty")
    (tmp_path / "full").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "free")
    for name, said in (("full", "exists already"), ("link", "regular file"), ("no/where", "no directory")):
        with pytest.raises(UsageError, match=said) as caught:
            check(tmp_path / name)
        assert f"--record {tmp_path / name}: " in str(caught.value)
    with pytest.raises(UsageError, match="regular file"):
        check(Path("/dev/full"))
