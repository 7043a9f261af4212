"""What each server promises, on a device that is only memory."""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import re
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mounting import ROOM, Served, refused

from flashfs.fuse import asking

pytestmark = pytest.mark.mount
Serve = Callable[..., Served]


def read(path: Path, length: int) -> bytes:
    """One read, without Python's buffer."""
    with path.open("rb", buffering=0) as file:
        return file.read(length)


def names(path: Path) -> list[str]:
    """What a directory holds."""
    return sorted(entry.name for entry in path.iterdir())


def test_directory(serve: Serve) -> None:
    served = serve()
    assert names(served.path) == ["config.json", "control", "disk", "map.json", "smart.json", "stats.json"]
    disk = served.disk.stat()
    assert (stat.S_IMODE(disk.st_mode), disk.st_size, disk.st_blocks) == (0o600, ROOM, ROOM // 512)
    assert stat.S_IMODE((served.path / "stats.json").stat().st_mode) == 0o400
    assert os.statvfs(served.path).f_blocks == ROOM // 4096
    assert refused((served.path / "other").stat) == errno.ENOENT


def test_names_are_what_they_are(serve: Serve) -> None:
    """Nothing can be made, removed, renamed or resized, for the reason that a person can read in the errno."""
    served = serve()
    new, disk = served.path / "new", served.disk
    for call in (
        new.touch, new.mkdir, disk.unlink, (served.path / "stats.json").unlink,
        lambda: disk.rename(new), lambda: disk.rename(served.path / "stats.json"),
        lambda: new.symlink_to("disk"), lambda: new.hardlink_to(disk), lambda: os.mkfifo(new), lambda: os.mknod(new),
        lambda: os.truncate(disk, ROOM + 1), lambda: disk.chmod(0o666), lambda: os.chown(disk, 1, 1),
    ):  # fmt: skip
        assert refused(call) == errno.EPERM
    assert refused((served.path / "other").unlink) == errno.ENOENT
    assert refused(disk.rmdir) == errno.ENOTDIR
    os.truncate(disk, ROOM)  # it has that size
    os.close(os.open(disk, os.O_RDWR | os.O_CREAT))  # it is there
    assert names(served.path) == ["config.json", "control", "disk", "map.json", "smart.json", "stats.json"]


def test_texts_are_made_at_each_open(serve: Serve) -> None:
    served = serve()
    stats = served.path / "stats.json"
    with stats.open() as early:
        read(served.disk, 10)
        late = json.loads(stats.read_text())
        assert json.load(early)["calls"]["read"] == 0
    assert late["calls"]["read"] == 1
    assert json.loads((served.path / "config.json").read_text())["pid"] == served.process.pid
    assert refused(lambda: stats.open("w")) == errno.EACCES
    assert stats.stat().st_size > 10  # so that tools which ask first read something


def traffic(served: Served) -> dict[str, Any]:
    """What the server says that it was asked for."""
    found: dict[str, Any] = json.loads((served.path / "stats.json").read_text())["server"]
    return found


def test_traffic_is_counted_as_the_host_counts(serve: Serve) -> None:
    """Requests for the text files do not count as traffic."""
    served = serve()
    first = traffic(served)
    assert first["requests"] == {"read": 0, "write": 0, "trim": 0, "flush": 0}
    assert first["bytes"] == {"read": 0, "write": 0, "trim": 0}
    fd = os.open(served.disk, os.O_RDWR)
    for index in range(5):
        os.pwrite(fd, bytes(5000), index * 100_000)
    for _ in range(3):
        os.pread(fd, 4096, 0)
    os.pread(fd, 100, ROOM - 10)
    os.fsync(fd)
    os.close(fd)
    last = traffic(served)
    assert last["requests"] == {"read": 4, "write": 5, "trim": 0, "flush": 1}
    assert last["bytes"] == {"read": 3 * 4096 + 10, "write": 25_000, "trim": 0}
    assert (first["in_flight"], last["in_flight"]) == (0, 0)
    assert 0 <= first["uptime_s"] < last["uptime_s"] < 3600


def test_requests_that_fail_are_requests_and_move_nothing(serve: Serve) -> None:
    served = serve("write=EIO")
    fd = os.open(served.disk, os.O_RDWR)
    assert refused(lambda: os.pwrite(fd, bytes(8192), 0)) == errno.EIO
    assert refused(lambda: os.fsync(fd)) == errno.EIO
    os.close(fd)
    found = traffic(served)
    assert found["requests"] == {"read": 0, "write": 1, "trim": 0, "flush": 1}
    assert (found["bytes"]["write"], found["in_flight"]) == (0, 0)


def test_trims_are_counted(serve: Serve) -> None:
    """Where a server passes them on."""
    served = serve()
    done = subprocess.run(["fallocate", "-p", "-o", "8192", "-l", "65536", str(served.disk)], capture_output=True)
    found = traffic(served)
    trims = (found["requests"]["trim"], found["bytes"]["trim"])
    assert trims == ((1, 65536) if done.returncode == 0 else (0, 0))


def test_requests_under_way_are_counted(serve: Serve) -> None:
    """A flush that takes its time, and the writes that wait for it."""
    served = serve("slow_flush=0.5")
    fd = os.open(served.disk, os.O_RDWR)
    threads = [threading.Thread(target=os.fsync, args=(fd,))]
    threads += [threading.Thread(target=os.pwrite, args=(fd, b"x", index)) for index in range(3)]
    threads[0].start()
    while not traffic(served)["requests"]["flush"]:  # it has its turn
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    found = traffic(served)
    for thread in threads:
        thread.join()
    assert found["requests"]["flush"] == 1
    last = traffic(served)
    assert (last["in_flight"], last["requests"]["write"], last["bytes"]["write"]) == (0, 3, 3)
    os.close(fd)


def test_any_alignment(serve: Serve) -> None:
    served, rng, model = serve(), random.Random(1), bytearray(ROOM)
    fd = os.open(served.disk, os.O_RDWR)
    try:
        for _ in range(300):
            length = rng.choice([1, 511, 4096, 4097, 100_000, 3 << 20])
            offset = rng.randrange(ROOM - length)
            data = rng.randbytes(length)
            assert os.pwrite(fd, data, offset) == length
            model[offset : offset + length] = data
            offset = rng.randrange(ROOM - length)
            assert os.pread(fd, length, offset) == model[offset : offset + length]
    finally:
        os.close(fd)


def test_ends(serve: Serve) -> None:
    fd = os.open(serve().disk, os.O_RDWR)
    try:
        assert os.pread(fd, 100, ROOM - 10) == bytes(10)
        assert os.pread(fd, 100, ROOM + 10) == b""
        assert os.pwrite(fd, b"x" * 100, ROOM - 10) == 10
        assert refused(lambda: os.pwrite(fd, b"x", ROOM)) == errno.ENOSPC
    finally:
        os.close(fd)


def test_its_size_is_its_size(serve: Serve) -> None:
    served = serve()
    assert refused(lambda: os.truncate(served.disk, 2 * ROOM)) == errno.EPERM
    assert refused(lambda: os.truncate(served.path / "stats.json", 0)) == errno.EPERM
    assert refused(lambda: (served.path / "stats.json").open("wb")) in (errno.EACCES, errno.EPERM)
    os.truncate(served.disk, ROOM)
    os.utime(served.disk)
    assert refused(lambda: served.disk.chmod(0o777)) == errno.EPERM
    assert served.disk.stat().st_size == ROOM


@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_each_sync_is_a_flush(serve: Serve, sync: Callable[[int], None]) -> None:
    served = serve()
    fd = os.open(served.disk, os.O_RDWR)
    os.pwrite(fd, b"x", 0)
    sync(fd)
    os.close(fd)
    assert "'flush': 1" in served.unmount()[0]


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "EROFS"])
def test_errors_keep_their_number(serve: Serve, fault: str) -> None:
    served = serve(f"write={fault}")
    fd = os.open(served.disk, os.O_RDWR)
    try:
        assert refused(lambda: os.pwrite(fd, b"x", 0)) == getattr(errno, fault)
        assert refused(lambda: os.fsync(fd)) in (getattr(errno, fault), errno.EIO)  # EIO: it has given up
        assert os.pread(fd, 1, 0) == b"\0"
    finally:
        os.close(fd)


def test_a_bug_is_one_line_and_eio(serve: Serve) -> None:
    served = serve("read=bug")
    fd = os.open(served.disk, os.O_RDWR)
    assert refused(lambda: os.pread(fd, 1, 5 * 4096)) == errno.EIO
    os.close(fd)
    said = served.unmount()[1]
    assert re.search(r"read at byte 20480: FtlError: .*lookup\(lpa=5\).*an error of two lines at ", said)


def test_a_bug_beside_disk_is_one_line_and_eio(serve: Serve) -> None:
    served = serve("stats=bug")
    assert refused((served.path / "stats.json").read_text) == errno.EIO
    assert read(served.disk, 1) == b"\0"
    said = served.unmount()[1]
    assert "open at byte 0: ValueError: an error of two lines\n" in said
    assert "Traceback" not in said


def test_texts_answer_while_a_flush_is_under_way(serve: Serve) -> None:
    """And so do writes queued after it, all of them, in the end."""
    served = serve("slow_flush=0.7")
    fd = os.open(served.disk, os.O_RDWR)

    def write(index: int) -> None:
        os.pwrite(fd, bytes([index]), index)

    threads = [threading.Thread(target=os.fsync, args=(fd,))]
    threads += [threading.Thread(target=write, args=(index,)) for index in range(1, 13)]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    started = time.monotonic()
    assert served.disk.stat().st_size == ROOM
    names(served.path)
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 60
    assert os.pread(fd, 13, 0) == bytes(range(13))
    os.close(fd)


def test_unmount_from_outside_ends_the_server(serve: Serve) -> None:
    served = serve()
    read(served.disk, 1)
    out, err = served.unmount()
    assert served.process.returncode == 0
    assert "'read': 1" in out
    assert err == ""


def test_an_unmount_before_the_answer_to_a_close_is_no_error(serve: Serve) -> None:
    """close(2) does not wait for its answer, and so a umount can come between the two."""
    served = serve("slow_release=0.3")
    read(served.disk, 1)
    _, err = served.unmount()
    assert served.process.returncode == 0
    assert err == ""


@pytest.mark.parametrize("busy", [False, True])
def test_a_request_to_stop_unmounts(serve: Serve, busy: bool) -> None:
    served = serve()
    fd = os.open(served.disk, os.O_RDWR) if busy else -1
    served.process.terminate()
    _, err = served.process.communicate(timeout=30)
    assert (served.process.returncode, err) == (0, "")
    assert names(served.path) == []
    if busy:
        assert refused(lambda: os.pread(fd, 1, 0)) in (*asking.GONE, errno.EIO)
        with suppress(OSError):  # it says so again
            os.close(fd)


def test_requests_of_a_loop_device(serve: Serve, need_loop: None) -> None:
    """Direct I/O with 4 KiB sectors, and a flush that arrives."""
    served = serve()
    command = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096", str(served.disk)]
    device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert Path("/sys/block", Path(device).name, "loop/dio").read_text() == "1\n"
    data = random.Random(2).randbytes(4 << 20)
    with Path(device).open("r+b", buffering=0) as block:
        assert block.write(data) == len(data)
        os.fsync(block.fileno())
    assert read(served.disk, len(data)) == data
    subprocess.run(["losetup", "-d", device], check=True)
    end = time.monotonic() + 60
    while Path("/sys/block", Path(device).name, "loop/backing_file").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert int(re.findall(r"'flush': (\d+)", served.unmount()[0])[0]) >= 1


def test_mmap_reads(serve: Serve) -> None:
    """`disk` can be mapped privately, as some tools look at an image."""
    served = serve()
    with served.disk.open("r+b", buffering=0) as disk:
        disk.write(b"hello")
        with mmap.mmap(disk.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as view:
            assert view[:5] == b"hello"
