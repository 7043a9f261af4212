"""What stat(2) says of when `disk` changed: programs that copy what changed go by that."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import refused
from stand import Stand

from flashfs.fuse import SERVERS, commands

pytestmark = pytest.mark.mount
MIB = 1 << 20
LONG_AGO_NS = 10**18


@pytest.fixture(params=list(SERVERS))
def one(stand: Callable[..., Stand], request: pytest.FixtureRequest) -> Stand:
    return stand(16, "pagemap", request.param)


def write(disk: Path, data: bytes = b"new") -> None:
    fd = os.open(disk, os.O_RDWR)
    os.pwrite(fd, data, MIB)
    os.close(fd)


@pytest.mark.parametrize("change", [write, lambda disk: os.truncate(disk, MIB), lambda disk: disk.open("wb").close()])
def test_each_change_moves_them(one: Stand, change: Callable[[Path], None]) -> None:
    os.utime(one.disk, ns=(LONG_AGO_NS, LONG_AGO_NS + 1))
    before = one.disk.stat()
    assert (before.st_atime_ns, before.st_mtime_ns) == (LONG_AGO_NS, LONG_AGO_NS + 1)
    one.disk.read_bytes()
    one.flush()
    assert one.disk.stat() == before
    now_ns = time.time_ns()
    change(one.disk)
    after = one.disk.stat()
    assert now_ns <= after.st_mtime_ns == after.st_ctime_ns <= time.time_ns()
    assert (after.st_atime_ns, after.st_size) == (LONG_AGO_NS, before.st_size)


def test_cp_copies_what_changed(one: Stand, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for data in (b"old", b"new"):
        write(one.disk, data)
        subprocess.run(["cp", "-u", str(one.disk), str(copy)], check=True)
        assert copy.read_bytes()[MIB : MIB + 3] == data


def test_only_disk_takes_times(one: Stand) -> None:
    for path in (one.home, one.home / "stats.json", one.home / "control"):
        assert refused(lambda path=path: os.utime(path)) == errno.EPERM  # type: ignore[misc]
    os.truncate(one.home / "control", 0)  # as a shell that redirects into it


@pytest.mark.parametrize("server", list(SERVERS))
def test_they_begin_at_the_last_change(stand: Callable[..., Stand], server: str) -> None:
    """That is when the image was written: a mount that changes nothing does not move it. What was not flushed before a
    crash may have gone back, and so a recovery is a change."""
    one = stand(16, "pagemap", server)
    write(one.disk)
    one.unmount()
    os.utime(one.image, ns=(LONG_AGO_NS, LONG_AGO_NS))
    for _ in range(2):
        one.mount()
        found = one.disk.stat()
        assert (found.st_mtime_ns, found.st_ctime_ns) == (LONG_AGO_NS, LONG_AGO_NS)
        one.unmount()
    one.mount()
    write(one.disk)
    one.flush()
    one.kill()
    now_ns = time.time_ns()
    one.mount()
    assert one.disk.stat().st_mtime_ns >= now_ns


def test_copies_and_remaps_move_them(stand: Callable[..., Stand]) -> None:
    one = stand(16, "pagemap", "native")
    write(one.disk)
    fd = os.open(one.disk, os.O_RDWR)
    try:
        for change in (
            lambda: os.copy_file_range(fd, fd, 4096, MIB, 2 * MIB),
            lambda: commands.copy(fd, MIB, 2 * MIB, 4096),
            lambda: commands.remap(fd, MIB, 3 * MIB, 4096),
            lambda: subprocess.run(["fallocate", "--punch-hole", "--length", "4096", str(one.disk)], check=True),
        ):
            os.utime(fd, ns=(LONG_AGO_NS, LONG_AGO_NS))
            now_ns = time.time_ns()
            change()
            assert now_ns <= os.fstat(fd).st_mtime_ns <= time.time_ns()
    finally:
        os.close(fd)
