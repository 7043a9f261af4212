"""SEEK_DATA and SEEK_HOLE, copy_file_range and the device's own commands, on `disk`; and what a server without them
answers."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator

import pytest
from mounting import refused
from schemes import FEW, thinned
from stand import PAGE, ZERO, Stand, extents, fallocate, punch, same

from flashfs import cli, inspect
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.fuse import commands, remapping

pytestmark = pytest.mark.mount
MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture(params=FEW)
def one(stand: Callable[..., Stand], request: pytest.FixtureRequest) -> Stand:
    return stand(SIZE // MIB, request.param)


@pytest.fixture
def fd(one: Stand) -> Iterator[int]:
    descriptor = os.open(one.disk, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def seek(fd: int, offset: int, whence: int) -> int:
    return os.lseek(fd, offset, whence)


def test_seek_on_an_empty_device(fd: int) -> None:
    assert seek(fd, 0, os.SEEK_HOLE) == 0
    assert seek(fd, SIZE - 1, os.SEEK_HOLE) == SIZE - 1
    for offset, whence in ((0, os.SEEK_DATA), (SIZE, os.SEEK_HOLE), (SIZE, os.SEEK_DATA), (SIZE + 1, os.SEEK_HOLE)):
        assert refused(lambda at=offset, how=whence: seek(fd, at, how)) == errno.ENXIO  # type: ignore[misc]


def test_seek_between_data_and_holes(one: Stand, fd: int) -> None:
    """Written pages are data, whether they wait in the write buffer or not, and if they hold zeros."""
    os.pwrite(fd, b"x", 3 * PAGE + 17)
    os.pwrite(fd, bytes(2 * PAGE), MIB)
    os.pwrite(fd, b"y" * PAGE, SIZE - PAGE)
    wanted = [(3 * PAGE, 4 * PAGE), (MIB, MIB + 2 * PAGE), (SIZE - PAGE, SIZE)]
    for _ in range(2):
        assert extents(one.disk, os.SEEK_DATA) == wanted
        assert seek(fd, 3 * PAGE + 5, os.SEEK_DATA) == 3 * PAGE + 5  # not back to the page's beginning
        assert seek(fd, 3 * PAGE + 5, os.SEEK_HOLE) == 4 * PAGE
        assert seek(fd, 5, os.SEEK_HOLE) == 5
        assert seek(fd, SIZE - 1, os.SEEK_HOLE) == SIZE  # the end is a hole
        os.fsync(fd)
    punch(fd, MIB + PAGE, PAGE)
    fallocate(fd, ZERO, SIZE - PAGE, PAGE)
    assert extents(one.disk, os.SEEK_DATA) == [(3 * PAGE, 4 * PAGE), (MIB, MIB + PAGE)]


def test_cp_keeps_holes(one: Stand, fd: int, tmp_path: os.PathLike[str]) -> None:
    """A copy of `disk` by a program that seeks takes no more room than the data."""
    from stand import run

    os.pwrite(fd, b"x" * PAGE, 5 * MIB)
    os.fsync(fd)
    copy = one.home.parent / "copy"
    run("cp", "--sparse=auto", "--reflink=never", one.disk, copy)
    assert copy.stat().st_size == SIZE
    same(copy.read_bytes(), one.disk.read_bytes())


@pytest.mark.parametrize(
    ("source", "target", "length"),
    thinned([(0, 8 * MIB, 8 * MIB), (PAGE, 9 * MIB, 3 * PAGE), (8 * MIB + 5, 100, 50_000),
             (MIB + 1, 8 * MIB + 1, 5 * PAGE), (12 * MIB, 0, 4 * MIB), (0, 8 * MIB, 1)], 2),
)  # fmt: skip
def test_copies(one: Stand, fd: int, source: int, target: int, length: int) -> None:
    """Aligned, ragged, large. (That copies outlive a kill: test_the_command_copy, and fsx.)"""
    data = bytearray(random.Random(source).randbytes(SIZE))
    os.pwrite(fd, data, 0)
    done = 0
    while done < length:
        done += os.copy_file_range(fd, fd, length - done, source + done, target + done)
    assert done == length
    data[target : target + length] = data[source : source + length]
    same(one.disk.read_bytes(), data)
    os.fsync(fd)


def test_copies_of_holes_are_holes(one: Stand, fd: int) -> None:
    os.pwrite(fd, b"x" * MIB, 0)
    os.pwrite(fd, b"y" * MIB, 8 * MIB)
    punch(fd, 8 * PAGE, 16 * PAGE)
    assert os.copy_file_range(fd, fd, MIB, 0, 8 * MIB) == MIB
    solid = [(0, 8 * PAGE), (24 * PAGE, MIB)]
    assert extents(one.disk, os.SEEK_DATA) == [*solid, *((8 * MIB + first, 8 * MIB + end) for first, end in solid)]
    os.pwrite(fd, b"z" * PAGE, 12 * MIB)
    assert os.copy_file_range(fd, fd, 3 * PAGE, 9 * PAGE, 12 * MIB - PAGE) == 3 * PAGE  # nothing but hole, over data
    assert os.lseek(fd, 9 * MIB, os.SEEK_HOLE) == 9 * MIB
    assert refused(lambda: os.lseek(fd, 9 * MIB, os.SEEK_DATA)) == errno.ENXIO
    os.fsync(fd)
    held = one.disk.read_bytes()
    same(held[8 * MIB : 9 * MIB], held[:MIB])


def test_copies_that_are_refused(one: Stand, fd: int) -> None:
    data = random.Random(1).randbytes(MIB)
    os.pwrite(fd, data, 0)
    for source, target, length in ((0, 100, 4096), (PAGE, 0, 2 * PAGE), (0, 0, PAGE), (5000, 4999, 2)):
        answer = refused(lambda s=source, t=target, n=length: os.copy_file_range(fd, fd, n, s, t))  # type: ignore[misc]
        assert answer == errno.EINVAL, (source, target, length)
    assert os.copy_file_range(fd, fd, PAGE, SIZE, 0) == 0  # from the end there is nothing to copy
    assert os.copy_file_range(fd, fd, 3 * PAGE, SIZE - PAGE, 8 * MIB) == PAGE  # to it, less
    same(one.disk.read_bytes()[:MIB], data)


def test_the_command_checkpoint(one: Stand) -> None:
    """A recovery then begins at it."""
    with one.disk.open("r+b", buffering=0) as disk:
        for at in range(8):
            os.pwrite(disk.fileno(), bytes([at]) * MIB, at * MIB)
        before = one.stats()["checkpoints"]
        commands.checkpoint(disk.fileno())
        assert one.stats()["checkpoints"] == before + 1
        commands.checkpoint(disk.fileno())  # a fence leaves to the scan what came since the one before it
    one.kill()
    (scan,) = [step for step in one.mount().steps if step["name"] == "scan"]
    assert scan["reads"] <= 8  # the blocks that stood open
    assert " 0 pages" in scan["note"] or scan["note"] == "not needed", scan["note"]  # by a scheme with a battery
    with one.disk.open("rb", buffering=0) as disk:
        assert [disk.read(MIB)[0] for _ in range(8)] == list(range(8))
    one.unmount()


def test_the_command_copy(one: Stand) -> None:
    data = bytearray(random.Random(2).randbytes(MIB) + bytes(SIZE - MIB))
    with one.disk.open("r+b", buffering=0) as disk:
        fd = disk.fileno()
        os.pwrite(fd, data[:MIB], 0)
        for source, target, length in ((0, 4 * MIB, MIB), (77, 9 * MIB + 5, 10_000), (4 * MIB, SIZE - MIB, MIB)):
            commands.copy(fd, source, target, length)
            data[target : target + length] = data[source : source + length]
        overlapping, outside = (0, PAGE, MIB), [(SIZE, 0, 1), (0, SIZE - 1, 2), (0, 1 << 63, 1), (0, 0, 1 << 63)]
        for source, target, length in (overlapping, *outside):
            answer = refused(lambda s=source, t=target, n=length: commands.copy(fd, s, t, n))  # type: ignore[misc]
            assert answer == errno.EINVAL, (source, target, length)
        assert refused(lambda: fcntl.ioctl(fd, 0xF5FF)) == errno.ENOTTY
        os.fsync(fd)
    one.kill()
    one.mount()
    same(one.disk.read_bytes(), data)
    one.unmount()
    assert inspect.problems(one.image, True) == []


def test_the_command_remap(one: Stand) -> None:
    """Whole pages, ragged ends, unequal alignment, ranges that overlap either way, a move: as in memory, and after a
    flush for good."""
    data = bytearray(random.Random(3).randbytes(2 * MIB) + bytes(SIZE - 2 * MIB))
    with one.disk.open("r+b", buffering=0) as disk:
        fd = disk.fileno()
        os.pwrite(fd, data[: 2 * MIB], 0)
        for source, target, length, move in (
            (0, 4 * MIB, MIB, False), (77, 9 * MIB + 5, 10_000, False), (PAGE + 7, 6 * MIB + 7, 5 * PAGE, False),
            (0, 3 * PAGE, MIB, False), (5 * PAGE, PAGE, MIB, True), (100, 5000, 70_000, True), (9000, 8, 70_000, True),
            (4 * MIB, SIZE - MIB, MIB, True), (0, 0, MIB, True),
        ):  # fmt: skip
            commands.remap(fd, source, target, length, move)
            moving = bytes(data[source : source + length])
            if move:
                data[source : source + length] = bytes(length)
            data[target : target + length] = moving
        same(one.disk.read_bytes(), data)
        for source, target, length in ((SIZE, 0, 1), (0, SIZE - 1, 2), (0, 1 << 63, 1), (0, 0, 1 << 63)):
            answer = refused(lambda s=source, t=target, n=length: commands.remap(fd, s, t, n))  # type: ignore[misc]
            assert answer == errno.EINVAL, (source, target, length)
        unknown = commands.REMAPPED.pack(0, PAGE, PAGE, 2)
        assert refused(lambda: fcntl.ioctl(fd, commands.REMAP, unknown)) == errno.EINVAL
        os.fsync(fd)
    one.kill()
    one.mount()
    same(one.disk.read_bytes(), data)
    one.unmount()
    assert inspect.problems(one.image, True) == []


def test_commands_of_a_file_that_is_open_for_reading(one: Stand) -> None:
    """The kernel passes them; a file that is open with O_SYNC has a flush after each."""
    with one.disk.open("r+b", buffering=0) as disk:
        disk.write(b"a" * PAGE)
    with one.disk.open("rb", buffering=0) as disk:
        fd = disk.fileno()
        for call in (commands.copy, commands.remap):
            assert refused(lambda: call(fd, 0, MIB, PAGE)) == errno.EBADF  # noqa: B023
        assert os.pread(fd, PAGE, MIB) == bytes(PAGE)
    fd = os.open(one.disk, os.O_RDWR | os.O_SYNC)
    for n, call in enumerate((commands.copy, commands.remap), 1):
        call(fd, 0, n * MIB, PAGE)
    os.close(fd)
    one.kill()
    one.mount()
    with one.disk.open("rb", buffering=0) as disk:
        assert [os.pread(disk.fileno(), PAGE, n * MIB) for n in range(3)] == [b"a" * PAGE] * 3


def test_remap_on_the_command_line(one: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    """On the mount, and on the image once it is free."""
    with one.disk.open("r+b", buffering=0) as disk:
        os.pwrite(disk.fileno(), b"a" * PAGE + b"b" * PAGE, 0)
    assert cli.run(["remap", str(one.home), "1M", "0", "8k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["target"], found["source"], found["length"], found["move"]) == (MIB, 0, 2 * PAGE, False)
    assert (found["pages"], found["remapped"] + found["copied"]) == (2, 2)
    assert cli.run(["remap", str(one.image), "1M", "0", "8k"]) == 1  # it is in use
    assert "in use" in capsys.readouterr().err
    one.unmount()
    assert cli.run(["remap", str(one.image), "2M", "1M", "4k", "--move"]) == 0
    assert "4 KiB moved from 1M to 2M" in capsys.readouterr().out
    with Device.open(one.image) as device:
        assert device.read(0, 2 * PAGE) == b"a" * PAGE + b"b" * PAGE
        assert device.read(MIB, 2 * PAGE) == bytes(PAGE) + b"b" * PAGE
        assert device.read(2 * MIB, PAGE) == b"a" * PAGE


def test_what_pyfuse3_answers(stand: Callable[..., Stand]) -> None:
    """It has no handler for any of these: as README.md says, each call fails by this number and nothing happens."""
    one = stand(SIZE // MIB, "pagemap", "pyfuse3")
    with one.disk.open("r+b", buffering=0) as disk:
        fd = disk.fileno()
        os.pwrite(fd, b"x" * MIB, 0)
        assert refused(lambda: punch(fd, 0, PAGE)) == errno.EOPNOTSUPP
        assert refused(lambda: fallocate(fd, ZERO, 0, PAGE)) == errno.EOPNOTSUPP
        assert refused(lambda: commands.checkpoint(fd)) == errno.ENOTTY
        assert refused(lambda: commands.copy(fd, 0, MIB, PAGE)) == errno.ENOTTY
        assert refused(lambda: commands.remap(fd, 0, MIB, PAGE)) == errno.ENOTTY
        with pytest.raises(FlashfsError, match="served by pyfuse3, which has no remap"):
            remapping.remap(one.home, MIB, 0, PAGE)
        assert os.copy_file_range(fd, fd, PAGE, 0, MIB) == PAGE  # the kernel does it by reading and writing
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0  # and holds everything for data
        assert os.lseek(fd, 0, os.SEEK_HOLE) == SIZE
        assert os.pread(fd, MIB + PAGE, 0) == b"x" * (MIB + PAGE)
    one.unmount()
