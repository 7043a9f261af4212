"""Remaps as requests: in batches, in recorded traces laid on a device, and played."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from schemes import EACH
from trace_files import whole

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay import trace_reader
from flashfs.replay._player import Player
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import MOVED, READ, REMAP, TRIM, WRITE, Batch, rebatch
from flashfs.replay.survey import Survey
from flashfs.replay.trace_writer import Recording
from flashfs.replay.traces import Options, Trace
from nandimg.presets import PRESETS

PAGE = 4096
MIB = 1 << 20
OP = {name: number for number, name in enumerate(trace_reader.OPERATIONS)}


def batch(*requests: tuple[int, int, int, int]) -> Batch:
    """Of (operation, offset, length, source), in pages, a move's source below 0."""
    op, offset, length, source = (np.array(column) for column in zip(*requests, strict=True))
    moved = np.where((op == REMAP) & (source < 0), MOVED, np.uint64(0))
    pages = np.abs(source).astype(np.uint64) * np.uint64(PAGE)
    columns = (column.astype(np.uint64) * np.uint64(PAGE) for column in (offset, length))
    return Batch(np.zeros(len(op), np.int64), op.astype(np.uint8), *columns, None, pages | moved)


def trace(path: Path) -> Path:
    """A recording of a device of 64 MiB: pages that are written, remapped, moved, copied."""
    header = trace_reader.Header(trace_reader.VERSION, 64 * MIB, PAGE, PAGE, 0, UUID(int=5), "pagemap")
    recorder = Recording(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path, header)
    try:
        assert recorder.record(OP["write"], 0, 4 * PAGE, bytes(range(4)) * PAGE)
        assert recorder.record_remap(0, 32 * MIB, 4 * PAGE)
        assert recorder.record_remap(32 * MIB, 48 * MIB + 512, PAGE, True)
        assert recorder.record_copy(0, 8 * PAGE, PAGE)
        assert recorder.record(OP["trim"], 0, PAGE)
    finally:
        recorder.close()
    return path


def sources(of: Batch) -> list[int]:
    assert of.source is not None
    return of.source.tolist()


def test_batches_keep_sources() -> None:
    one = batch((WRITE, 0, 4, 0), (REMAP, 8, 2, 1), (REMAP, 9, 1, -3))
    plain = Batch(np.zeros(1, np.int64), np.array([READ], np.uint8), *(np.full(1, PAGE, np.uint64),) * 2)
    assert sources(one.slice(1, 3)) == [PAGE, int(MOVED) + 3 * PAGE]
    assert sources(Batch.join([plain, one])) == [0, 0, PAGE, int(MOVED) + 3 * PAGE]
    assert Batch.join([plain, plain]).source is None
    assert [sources(part) for part in rebatch([one, one], 4)] == [
        [0, PAGE, int(MOVED) + 3 * PAGE, 0], [PAGE, int(MOVED) + 3 * PAGE],
    ]  # fmt: skip


def test_a_recording_has_them(tmp_path: Path) -> None:
    found = whole(Trace(trace(tmp_path / "t")))
    assert found.op.tolist() == [WRITE, REMAP, REMAP, READ, WRITE, TRIM]
    assert sources(found) == [0, 0, int(MOVED) + 32 * MIB, 0, 0, 0]
    assert found.hashes is not None and found.hashes.start.tolist() == [0, 4, 4, 4, 4, 4, 4]
    first = whole(Trace(tmp_path / "t", Options(first=2)))
    assert (first.op.tolist(), sources(first)) == ([WRITE, REMAP], [0, 0])
    ordered = whole(Trace(tmp_path / "t", Options(sort=True)))
    assert (ordered.op.tolist(), sources(ordered)) == (found.op.tolist(), sources(found))
    assert ordered.hashes is not None and ordered.hashes.grain.tolist() == found.hashes.grain.tolist()


def test_laid_on_another_device(tmp_path: Path) -> None:
    path = trace(tmp_path / "t")
    shifted = whole(Trace(path, Options(shift_bytes=PAGE)))
    assert sources(shifted) == [0, PAGE, int(MOVED) + 32 * MIB + PAGE, 0, 0, 0]
    clipped = Trace(path, device_bytes=48 * MIB)
    assert whole(clipped).op.tolist() == [WRITE, REMAP, READ, WRITE, TRIM]
    assert clipped.rejected.total == 1
    before = Trace(path, Options(shift_bytes=-PAGE), device_bytes=64 * MIB)
    assert sources(whole(before)) == [int(MOVED) + 32 * MIB - PAGE, 0]  # of the copy the read lies before the device
    wrapped = whole(Trace(path, Options(fit="wrap"), device_bytes=24 * MIB))
    assert (sources(wrapped)[2] ^ int(MOVED), int(wrapped.offset[2])) == (8 * MIB, 512)
    scaled = whole(Trace(path, Options(fit="scale"), device_bytes=16 * MIB))
    assert (scaled.source & ~MOVED < 16 * MIB).all()
    packed = Trace(path, Options(fit="pack"), device_bytes=3 * MIB)
    assert (sources(whole(packed))[2] ^ int(MOVED), packed.rejected.total) == (MIB, 0)
    assert packed.packed_bytes() == 3 * MIB


def test_a_survey_counts_them(tmp_path: Path) -> None:
    found = Survey()
    found.add(whole(Trace(trace(tmp_path / "t"))))
    figures = found.figures()
    by_name = {row["operation"]: row for row in figures["operations"]}
    assert (by_name["remap"]["requests"], by_name["remap"]["pages"]) == (2, 6)
    assert figures["footprint_pages"] == 4 + 4 + 2 + 1  # source and target of the first; target of the second; copy
    assert figures["span_bytes"] == 48 * MIB + 512 + PAGE


@pytest.mark.parametrize("ftl", EACH)
@pytest.mark.parametrize("backend", ["meta", "file"])
def test_they_are_played(ftl: str, backend: str) -> None:
    """As a model in memory has it, which pages hold something; the same in counts, whether there are data or not."""
    requests = [
        (WRITE, 0, 16, 0), (REMAP, 32, 16, 0), (REMAP, 34, 16, 32), (REMAP, 8, 4, -6), (TRIM, 1, 1, 0),
        (REMAP, 100, 4, -1), (REMAP, 33, 1, 33), (READ, 0, 128, 0),
    ]  # fmt: skip
    model = np.zeros(128, bool)
    for op, first, n, source in requests:
        if op == REMAP:
            moving = model[abs(source) : abs(source) + n].copy()
            if source < 0:
                model[-source : n - source] = False
            model[first : first + n] = moving
        elif op != READ:
            model[first : first + n] = op == WRITE
    with Device.memory(PRESETS["small-64m"].geometry, ftl, backend=backend) as device:
        player = Player(device.ssd, 1, device.quiet_at())
        assert player.take(batch(*requests)) == len(requests)
        assert [device.ssd.mapped(lpa) for lpa in range(128)] == model.tolist()
        assert (device.ssd.host_write, device.ssd.host_read, device.ssd.host_remap) == (16, 128, 16 + 16 + 4 + 4)
        assert player.requests() == {"read": 1, "write": 1, "trim": 1, "flush": 0, "remap": 5}
        assert player.histograms()["remap"].n == 5
        assert player.pages == 16 + 128 + 1 + 40
        device.flush()
        assert device.problems() == []


def test_what_cannot_be_played_is_told() -> None:
    with Device.memory(PRESETS["small-64m"].geometry) as device:
        player = Player(device.ssd, 1)
        last = device.size // PAGE
        with pytest.raises(UsageError, match="request 0: a remap from 67108864, length 4096: the device has"):
            player.take(batch((REMAP, 0, 1, last)))
        with pytest.raises(UsageError, match="no column of sources"):
            player.play(np.zeros(1, np.int64), np.array([REMAP], np.uint8), *(np.full(1, PAGE, np.uint64),) * 2)
        with pytest.raises(UsageError, match="operation 5: use 0 to 4"):
            player.take(batch((5, 0, 1, 0)))


def test_a_replay_says_so(tmp_path: Path) -> None:
    found = run(Setup(str(trace(tmp_path / "t")), geometry=PRESETS["small-64m"].geometry))
    assert found["requests"] == {"read": 1, "write": 2, "trim": 1, "flush": 0, "remap": 2}
    assert found["latency_us"]["remap"]["n"] == 2
    assert found["histograms"]["remap"]["count"]
    assert found["host"]["remap"] == 4  # the move is ragged: it is copied
    assert found["series"]["host_remap"][-1] == 4
