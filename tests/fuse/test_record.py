"""A recorded mount: the trace has exactly what was asked of `disk`."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mounting import TIMEOUT_S, flashfs, kill

from flashfs.fuse import SERVERS, commands, mounts
from flashfs.replay._record import OPERATIONS, xxh3_64
from flashfs.replay.trace_reader import read, summary
from nandimg import image

pytestmark = pytest.mark.mount
PAGE = 4096
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE = 1, 2, 16  # linux/falloc.h


def found(trace: Path) -> list[tuple[str, int, int, list[int]]]:
    """(operation, offset, length, hashes) of each request."""
    out = []
    for batch in read(trace):
        for i in range(len(batch)):
            words = batch.hashes[batch.hash_first[i] : batch.hash_first[i + 1]].tolist()
            out.append((OPERATIONS[batch.op[i]], int(batch.offset[i]), int(batch.length[i]), words))
    return out


@contextmanager
def disk_of(mountpoint: Path) -> Iterator[int]:
    fd = os.open(mountpoint / "disk", os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("server", SERVERS)
def test_exactly_the_known_requests(chip: Path, mountpoint: Path, tmp_path: Path, server: str) -> None:
    trace, data = tmp_path / "trace", os.urandom(3 * PAGE)
    began_ns = time.time_ns()
    said = flashfs("mount", chip, mountpoint, "--record", trace, "--server", server).stdout
    assert f"recording every request in {trace}" in said
    asked: list[tuple[str, int, int, list[int]]] = []
    pages = [xxh3_64(data[start : start + PAGE]) for start in range(0, 3 * PAGE, PAGE)]
    with disk_of(mountpoint) as fd:
        size = os.fstat(fd).st_size
        os.pwrite(fd, data, 16 * PAGE)
        asked.append(("write", 16 * PAGE, 3 * PAGE, pages))
        os.pwrite(fd, data[:700], 5 * PAGE + 100)
        asked.append(("write", 5 * PAGE + 100, 700, [xxh3_64(data[:700])]))
        os.pwrite(fd, data[:PAGE], 9 * PAGE - 6)
        asked.append(("write", 9 * PAGE - 6, PAGE, [xxh3_64(data[:6]), xxh3_64(data[6:PAGE])]))
        os.pread(fd, PAGE, 16 * PAGE)
        asked.append(("read", 16 * PAGE, PAGE, []))
        os.fsync(fd)
        asked.append(("flush", 0, 0, []))
        os.pread(fd, 2 * PAGE, size - PAGE)
        asked.append(("read", size - PAGE, PAGE, []))  # what the device was asked: the rest does not exist
        os.pread(fd, PAGE, size)  # nothing of the device
        with mmap.mmap(-1, 2 * PAGE) as zeros:
            os.pwritev(fd, [zeros], 0)
        asked.append(("write", 0, 2 * PAGE, [xxh3_64(bytes(PAGE))] * 2))
        config = json.loads((mountpoint / "config.json").read_text())
        figures = json.loads((mountpoint / "stats.json").read_text())["record"]
    assert (config["record"], figures["requests"], figures["dropped"]) == (str(trace), len(asked), 0)
    flashfs("umount", mountpoint)
    asked.append(("flush", 0, 0, []))  # umount's own
    assert found(trace) == asked
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    header, whole = read(trace).header, summary(trace)
    assert (header.size, header.uuid, header.ftl) == (size, image.inspect(chip).uuid, "pagemap")
    assert began_ns < header.wall_ns < time.time_ns()
    assert (whole["ending"], whole["dropped"], whole["requests"]) == (None, 0, len(asked))


def test_trims_and_copies(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    """What only the native server has."""
    trace = tmp_path / "trace"
    flashfs("mount", chip, mountpoint, "--record", trace, "--server", "native")
    with disk_of(mountpoint) as fd:
        for mode in (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE):
            assert ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_long(3 * PAGE), ctypes.c_long(5 * PAGE)) == 0
        assert os.copy_file_range(fd, fd, 2 * PAGE, 7 * PAGE, 11 * PAGE) == 2 * PAGE
        commands.remap(fd, PAGE, 3 * PAGE, 9 * PAGE)
        commands.remap(fd, 7, 90, 8, move=True)
        assert os.lseek(fd, 0, os.SEEK_HOLE) == 0  # asks for no data
    flashfs("umount", mountpoint)
    copy = ("copy", 11 * PAGE, 2 * PAGE, [7 * PAGE])
    remaps = [("remap", 3 * PAGE, 9 * PAGE, [PAGE]), ("move", 90, 8, [7])]
    trimmed = [(name, 3 * PAGE, 5 * PAGE, []) for name in ("trim", "zero")]
    assert found(trace) == [*trimmed, copy, *remaps, ("flush", 0, 0, [])]


def test_in_real_time_too(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    for server in SERVERS:
        trace = tmp_path / server
        flashfs("mount", chip, mountpoint, "--record", trace, "--server", server, "--realtime")
        with disk_of(mountpoint) as fd:
            os.pwrite(fd, bytes(PAGE), 0)
        flashfs("umount", mountpoint)
        assert found(trace) == [("write", 0, PAGE, [xxh3_64(bytes(PAGE))]), ("flush", 0, 0, [])]


def test_without_it_nothing_is_said(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    assert json.loads((mountpoint / "config.json").read_text())["record"] is None
    assert "record" not in json.loads((mountpoint / "stats.json").read_text())
    flashfs("umount", mountpoint)


def test_a_killed_mount_leaves_what_was_half_a_second_old(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    flashfs("mount", chip, mountpoint, "--record", trace)
    with disk_of(mountpoint) as fd:
        for number in range(50):
            os.pwrite(fd, bytes(PAGE), number * PAGE)
    end = time.monotonic() + TIMEOUT_S
    while summary(trace)["requests"] < 50 and time.monotonic() < end:
        time.sleep(0.05)
    kill(mountpoint)
    assert [offset for _, offset, _, _ in found(trace)] == [number * PAGE for number in range(50)]
    assert "ends after 50 requests" in str(summary(trace)["ending"])


def test_refusals_leave_nothing(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text("mine")
    assert f"--record {trace}: exists already" in flashfs("mount", chip, mountpoint, "--record", trace, code=2).stderr
    assert trace.read_text() == "mine"
    said = flashfs("mount", chip, mountpoint, "--record", tmp_path / "no" / "trace", code=2).stderr
    assert "there is no directory" in said
    assert mounts.at(mountpoint) is None
    trace.unlink()
    assert "nosuch" in flashfs("mount", chip, mountpoint, "--record", trace, "--server", "nosuch", code=2).stderr
    assert not trace.exists()  # or the next try would be refused
    flashfs("mount", chip, mountpoint, "--record", trace)
    flashfs("umount", mountpoint)
    assert found(trace) == [("flush", 0, 0, [])]


@pytest.fixture
def small_disk(need_fuse: None) -> Iterator[Path]:
    """A file system of 32 KiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    path = Path(tempfile.mkdtemp())
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "flashfs-test", path], capture_output=True)
    if done.returncode != 0:
        path.rmdir()
        pytest.skip(f"needs a tmpfs, which this machine does not let us mount: {done.stderr!r}")
    yield path
    subprocess.run(["umount", "-l", path], check=True)
    path.rmdir()


def test_a_full_disk_does_not_stop_the_mount(chip: Path, mountpoint: Path, tmp_path: Path, small_disk: Path) -> None:
    trace, log, data = small_disk / "trace", tmp_path / "log", os.urandom(1 << 20)
    flashfs("mount", chip, mountpoint, "--record", trace, "--log", log)
    stats = mountpoint / "stats.json"
    end = time.monotonic() + TIMEOUT_S
    with disk_of(mountpoint) as fd:
        written = 0
        while json.loads(stats.read_text())["record"]["failed"] is None and time.monotonic() < end:
            fresh = os.urandom(1 << 20)  # 256 hashes that nothing can pack
            assert os.pwrite(fd, fresh, written % 32 << 20) == len(fresh)
            written += 1
        for number in range(3):
            assert os.pwrite(fd, data[number:] + bytes(number), number << 20) == len(data)
        assert os.pread(fd, 100, 1 << 20) == data[1:101]
        figures = json.loads(stats.read_text())["record"]
    assert figures["failed"] == "No space left on device"
    assert figures["dropped"] >= 3
    flashfs("umount", mountpoint)
    kept = summary(trace)
    assert kept["requests"] == figures["requests"]
    assert trace.stat().st_size == figures["bytes"]
    said = log.read_text().splitlines()
    assert sum("recording stopped, the mount goes on: No space left on device" in line for line in said) == 1
    assert any(f"{trace}: " in line and "requests are not in the trace" in line for line in said)


def test_up_records_a_file_system(chip: Path, need_loop: None, tmp_path: Path) -> None:
    trace, target = tmp_path / "trace", tmp_path / "fs"
    target.mkdir()
    try:
        assert f"recording every request in {trace}" in flashfs("up", chip, target, "--record", trace).stdout
        said = flashfs("up", chip, target, "--record", tmp_path / "other", code=2).stderr
        assert "is up already" in said
        data = os.urandom(64 * PAGE)
        (target / "file").write_bytes(data)
    finally:
        subprocess.run([sys.executable, "-m", "flashfs.cli", "down", target], capture_output=True)
    requests = found(trace)
    assert {"read", "write", "flush"} <= {name for name, *_ in requests}
    assert all(len(words) == length // PAGE for name, _, length, words in requests if name == "write")
    written = {word for _, _, _, words in requests for word in words}
    assert {xxh3_64(data[start : start + PAGE]) for start in range(0, len(data), PAGE)} <= written
