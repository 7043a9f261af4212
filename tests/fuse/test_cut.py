"""Truncation of `disk`: what is cut off is trimmed, and the size stays. Programs that copy to a file truncate it."""

from __future__ import annotations

import errno
import mmap
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import ROOM, Served, refused
from stand import Stand, extents

from flashfs.fuse import SERVERS

pytestmark = pytest.mark.mount
MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture(params=list(SERVERS))
def one(stand: Callable[..., Stand], request: pytest.FixtureRequest) -> Stand:
    made = stand(16, "pagemap", request.param)
    assert made.disk.stat().st_size == SIZE
    with made.disk.open("r+b") as disk:
        disk.write(b"old!" * (SIZE // 4))
    return made


def check(one: Stand, *parts: tuple[bytes, int]) -> None:
    """The disk holds these bytes, each at its place, and zeros elsewhere; also after a flush and a crash."""
    wanted = bytearray(SIZE)
    for data, at in parts:
        wanted[at : at + len(data)] = data
    assert one.disk.stat().st_size == SIZE
    assert one.disk.read_bytes() == wanted
    one.flush()
    one.kill()
    one.mount()
    assert one.disk.read_bytes() == wanted
    one.unmount()


@pytest.mark.parametrize("holes", [False, True])
def test_cp_of_a_plain_image(one: Stand, tmp_path: Path, holes: bool) -> None:
    data = random.Random(3).randbytes(2 * MIB)
    plain = tmp_path / "plain.img"
    with plain.open("wb") as file:
        file.write(data)
        if holes:  # cp seeks over these, and cuts at the end
            file.truncate(SIZE // 2)
    subprocess.run(["cp", str(plain), str(one.disk)], check=True)
    if one.server == "native":
        mapped = extents(one.disk, os.SEEK_DATA)
        assert mapped[0] == (0, 2 * MIB)
        assert len(mapped) == 1 or not holes
    check(one, (data, 0))


def test_dd_without_notrunc(one: Stand, tmp_path: Path) -> None:
    data = random.Random(4).randbytes(MIB)
    (tmp_path / "data").write_bytes(data)
    dd = ["dd", f"if={tmp_path / 'data'}", f"of={one.disk}", "bs=64k", "status=none"]
    subprocess.run([*dd, "seek=32"], check=True)  # cuts at 2 MiB, not before
    assert one.disk.read_bytes()[: 2 * MIB] == b"old!" * (MIB // 2)
    subprocess.run(dd, check=True)
    check(one, (data, 0))


def test_truncate_to_a_ragged_size(one: Stand) -> None:
    before = one.stats()["server"]
    subprocess.run(["truncate", "-s", str(MIB + 100), str(one.disk)], check=True)
    after = one.stats()["server"]
    assert after["requests"]["trim"] == before["requests"]["trim"] + 1
    assert after["bytes"]["trim"] == before["bytes"]["trim"] + SIZE - MIB - 100
    fd = os.open(one.disk, os.O_RDWR | os.O_SYNC)
    try:
        os.ftruncate(fd, SIZE)
        os.ftruncate(fd, MIB)
        assert os.fstat(fd).st_size == SIZE
        assert os.lseek(fd, 0, os.SEEK_END) == SIZE
        assert refused(lambda: os.ftruncate(fd, SIZE + 1)) == errno.EPERM
    finally:
        os.close(fd)
    assert one.stats()["server"]["requests"]["flush"] == after["requests"]["flush"] + 1
    check(one, (b"old!" * (MIB // 4), 0))


def test_what_the_kernel_had_of_it_is_gone(one: Stand) -> None:
    fd = os.open(one.disk, os.O_RDWR)
    try:
        with mmap.mmap(fd, SIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as view:
            assert view[2 * MIB : 2 * MIB + 4] == b"old!"
            os.ftruncate(fd, MIB)
            assert view[2 * MIB : 2 * MIB + 4] == bytes(4)
    finally:
        os.close(fd)
    check(one, (b"old!" * (MIB // 4), 0))


@pytest.mark.parametrize("server", list(SERVERS))
def test_in_real_time(stand: Callable[..., Stand], server: str) -> None:
    one = stand(16, "pagemap", server, realtime=True)
    with one.disk.open("wb") as disk:
        disk.write(b"new!" * 1024)
    check(one, (b"new!" * 1024, 0))


def test_not_under_a_loop_device(one: Stand, need_loop: None) -> None:
    one.attach()
    assert refused(lambda: os.truncate(one.disk, 0)) == errno.EBUSY
    assert refused(lambda: one.disk.open("wb")) == errno.EBUSY
    os.truncate(one.disk, SIZE)
    one.detach()
    check(one, (b"old!" * (SIZE // 4), 0))


def test_an_error_is_the_callers(serve: Callable[..., Served]) -> None:
    served = serve("sync=EIO")
    fd = os.open(served.disk, os.O_RDWR | os.O_SYNC)
    try:
        os.ftruncate(fd, ROOM)
        assert refused(lambda: os.ftruncate(fd, 0)) == errno.EIO
    finally:
        os.close(fd)
