"""Shared mappings of `disk`: what a program changes through one is the device's after msync(2), and what others change,
it sees."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from stand import MIB, PAGE, Stand, punch

from flashfs.fuse import SERVERS, commands
from flashfs.fuse._native import KNOWS_RINGS

pytestmark = pytest.mark.rings
SIZE = 16 * MIB


@pytest.fixture
def one(stand: Callable[..., Stand]) -> Stand:
    if not KNOWS_RINGS:
        pytest.skip("needs libfuse 3.17 or newer (make setup URING=1)")
    return stand(16, "remapssd")


@contextmanager
def opened(one: Stand) -> Iterator[int]:
    fd = os.open(one.disk, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


def mapped(fd: int) -> mmap.mmap:
    return mmap.mmap(fd, SIZE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def test_what_was_synced_survives_a_kill(one: Stand) -> None:
    with opened(one) as fd, mapped(fd) as view:
        view[PAGE + 5 : PAGE + 9] = b"kept"
        view[3 * MIB : 4 * MIB] = b"many" * (MIB // 4)
        flushes = one.stats()["server"]["requests"]["flush"]
        view.flush()
        assert one.stats()["server"]["requests"]["flush"] > flushes
    one.kill()
    one.mount()
    with opened(one) as fd:
        assert os.pread(fd, 16, PAGE) == b"\0\0\0\0\0kept" + bytes(7)
        assert os.pread(fd, MIB, 3 * MIB) == b"many" * (MIB // 4)
    one.unmount()
    one.mount()


def test_each_sees_the_others_changes(one: Stand) -> None:
    """Without msync(2), both ways."""
    with opened(one) as fd, opened(one) as other, mapped(fd) as view:
        assert view[:4] == bytes(4)
        os.pwrite(other, b"by write", 0)
        assert view[:8] == b"by write"
        view[2:4] = b"--"
        assert os.pread(other, 8, 0) == b"by--rite"
        os.pwrite(other, b"again", 3 * PAGE - 2)  # into two pages that the mapping has
        assert view[3 * PAGE - 2 : 3 * PAGE + 3] == b"again"


@pytest.mark.parametrize("how", ["punch", "cut", "copy", "copy ioctl", "remap", "move", "remap of more"])
def test_commands_take_the_pages_of_a_mapping_away(one: Stand, how: str) -> None:
    target, source = 4 * PAGE, 8 * PAGE
    with opened(one) as fd, mapped(fd) as view:
        os.pwrite(fd, b"old " * (PAGE // 2), target)
        os.pwrite(fd, b"from" * (PAGE // 2), source)
        assert (view[target : target + 4], view[source : source + 4]) == (b"old ", b"from")
        done = b"from"
        match how:
            case "punch":
                punch(fd, target, 2 * PAGE)
                done = bytes(4)
            case "cut":
                os.ftruncate(fd, target)
                done = bytes(4)
            case "copy":
                assert os.copy_file_range(fd, fd, 2 * PAGE, source, target) == 2 * PAGE
            case "copy ioctl":
                commands.copy(fd, source, target, 2 * PAGE)
            case "remap" | "move":
                commands.remap(fd, source, target, 2 * PAGE, move=how == "move")
            case _:
                commands.remap(fd, target, MIB, SIZE - MIB)
                assert view[MIB : MIB + 4] == b"old "
                done = b"old "
        assert view[target : target + 4] == view[target + PAGE : target + PAGE + 4] == done
        assert view[source : source + 4] == (bytes(4) if how in ("move", "cut") else b"from")


def test_a_page_that_was_changed_before_a_remap(one: Stand) -> None:
    """Pages are written back while the mapping loses them, without a deadlock."""
    with opened(one) as fd, mapped(fd) as view:
        view[:MIB] = b"from" * (MIB // 4)
        view.flush()
        for at in range(8):
            view[MIB : 2 * MIB] = b"lost" * (MIB // 4)
            commands.remap(fd, 0, MIB, PAGE * (at + 1))
        view.flush()
        assert view[:4] == b"from"


@pytest.mark.parametrize("how", [{"server": "pyfuse3"}, {"realtime": True}], ids=str)
def test_not_there(stand: Callable[..., Stand], how: dict[str, object]) -> None:
    assert set(SERVERS) == {"native", "pyfuse3"}
    one = stand(16, "pagemap", **how)
    with opened(one) as fd, pytest.raises(OSError) as caught:
        mapped(fd)
    assert caught.value.errno == errno.ENODEV
