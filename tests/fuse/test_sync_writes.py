"""A write that asks to be durable is durable before it is acknowledged, with no fsync after it."""

from __future__ import annotations

import errno
import json
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mounting import Served, flashfs, refused
from stand import KEEP, PUNCH, Stand, fallocate

from flashfs.fuse import SERVERS
from flashfs.replay._record import OPERATIONS
from flashfs.replay.trace_reader import read as read_trace
from nandimg import PRESETS, create

pytestmark = pytest.mark.mount
PAGE = 4096
SLOW_NS = 500_000_000
LONG = 3 << 20  # more than one request of the kernel
OPENED = {"O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC, "O_SYNC|O_DIRECT": os.O_SYNC | os.O_DIRECT}
ASKED = {"RWF_DSYNC": os.RWF_DSYNC, "RWF_SYNC": os.RWF_SYNC}


def after_a_kill(stand: Stand, length: int, offset: int = 0) -> bytes:
    """What a mount finds after the daemon was killed."""
    stand.kill()
    stand.mount()
    fd = os.open(stand.disk, os.O_RDONLY)
    try:
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def aligned(data: bytes) -> memoryview:
    """The same bytes where O_DIRECT wants them."""
    room = mmap.mmap(-1, len(data))
    room[:] = data
    return memoryview(room)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("how", OPENED)
def test_a_file_opened_to_write_durably(stand: Callable[..., Stand], server: str, how: str) -> None:
    one = stand(32, "pagemap", server)
    long, short = os.urandom(LONG), os.urandom(PAGE)
    fd = os.open(one.disk, os.O_RDWR | OPENED[how])
    assert os.pwritev(fd, [aligned(long)], PAGE) == LONG
    assert os.pwritev(fd, [aligned(short)], 0) == PAGE
    os.close(fd)
    assert after_a_kill(one, PAGE + LONG) == short + long


@pytest.mark.parametrize("how", ASKED)
def test_one_write_that_asks_for_it(stand: Callable[..., Stand], how: str) -> None:
    """Of a file that was opened without. pyfuse3 does not say which writes these are: docs/mount.md says so."""
    one = stand(32, "pagemap")
    fd = os.open(one.disk, os.O_RDWR)
    assert os.pwritev(fd, [b"asked for"], 100, ASKED[how]) == 9
    os.close(fd)
    assert after_a_kill(one, 9, 100) == b"asked for"


def test_writes_that_do_not_ask_cost_no_flush(serve: Callable[..., Served]) -> None:
    served = serve()
    fd = os.open(served.disk, os.O_RDWR)
    for index in range(8):
        os.pwrite(fd, b"x" * PAGE, index * PAGE)
    os.close(fd)
    stats = json.loads((served.path / "stats.json").read_text())
    assert (stats["calls"]["flush"], stats["server"]["requests"]["flush"]) == (0, 0)
    fd = os.open(served.disk, os.O_RDWR | os.O_DSYNC)
    for index in range(3):
        os.pwrite(fd, b"y" * PAGE, index * PAGE)
    os.pread(fd, PAGE, 0)
    os.close(fd)
    stats = json.loads((served.path / "stats.json").read_text())
    assert (stats["calls"]["flush"], stats["server"]["requests"]["flush"]) == (3, 3)


def test_trims_and_copies_of_a_file_opened_so(stand: Callable[..., Stand]) -> None:
    one = stand(32, "pagemap")
    fd = os.open(one.disk, os.O_RDWR | os.O_SYNC)
    os.pwrite(fd, b"a" * 4 * PAGE, 0)
    fallocate(fd, PUNCH | KEEP, 0, PAGE)
    assert os.copy_file_range(fd, fd, PAGE, PAGE, 8 * PAGE) == PAGE
    os.close(fd)
    assert after_a_kill(one, 9 * PAGE) == bytes(PAGE) + b"a" * 3 * PAGE + bytes(4 * PAGE) + b"a" * PAGE


def test_a_write_whose_flush_fails_has_failed(serve: Callable[..., Served]) -> None:
    """Programs go well, syncs do not: an ordinary write is acknowledged, a durable one is not."""
    served = serve("sync=EIO")
    fd = os.open(served.disk, os.O_RDWR)
    assert os.pwrite(fd, b"x" * PAGE, 0) == PAGE
    os.close(fd)
    fd = os.open(served.disk, os.O_RDWR | os.O_DSYNC)
    assert refused(lambda: os.pwrite(fd, b"x" * PAGE, 0)) == errno.EIO
    os.close(fd)


@pytest.mark.parametrize("server", SERVERS)
def test_its_virtual_time_has_the_flush_in_it(mountpoint: Path, tmp_path: Path, server: str) -> None:
    """A small write goes to the write buffer, and takes no time; a durable one waits for the program."""
    chip = tmp_path / "slow"
    create(chip, replace(PRESETS["small-64m"].geometry, program_ns=SLOW_NS))
    flashfs("mount", chip, mountpoint, "--realtime", "--server", server)
    took: dict[int, list[int]] = {0: [], os.O_DSYNC: []}
    for flag, times in took.items():
        fd = os.open(mountpoint / "disk", os.O_RDWR | flag)
        while not times or (flag == 0 and times[-1] >= SLOW_NS and len(times) < 50):  # others may have the processor
            began = time.monotonic_ns()
            os.pwrite(fd, b"x" * PAGE, 0)
            times.append(time.monotonic_ns() - began)
        os.close(fd)
    assert min(took[0]) < SLOW_NS <= took[os.O_DSYNC][0]


@pytest.mark.parametrize("server", SERVERS)
def test_the_trace_has_the_flush(chip: Path, mountpoint: Path, tmp_path: Path, server: str) -> None:
    trace = tmp_path / "trace"
    flashfs("mount", chip, mountpoint, "--record", trace, "--server", server)
    fd = os.open(mountpoint / "disk", os.O_RDWR | os.O_DSYNC)
    os.pwrite(fd, bytes(PAGE), 2 * PAGE)
    os.pread(fd, PAGE, 0)
    os.close(fd)
    flashfs("umount", mountpoint)
    found = [OPERATIONS[op] for batch in read_trace(trace) for op in batch.op]
    assert found == ["write", "flush", "read", "flush"]  # the last is umount's own
