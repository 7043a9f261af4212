"""Requests over io_uring: taken where libfuse and the kernel have it, and nothing but their speed is another."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from stand import MIB, PAGE, Stand

from flashfs.fuse import _native, commands
from flashfs.fuse._native import KNOWS_RINGS
from flashfs.poll import readable

pytestmark = pytest.mark.rings
PARAMETER = Path("/sys/module/fuse/parameters/enable_uring")
SIZE = 16 * MIB


@contextmanager
def offered(wanted: bool) -> Iterator[None]:
    """Whether the kernel offers it, to all who mount meanwhile: one test at a time."""
    with PARAMETER.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = PARAMETER.read_text()
        PARAMETER.write_text("Y" if wanted else "N")
        try:
            yield
        finally:
            PARAMETER.write_text(before)


@pytest.fixture
def rings(need_fuse: None) -> Iterator[None]:
    """Skips by name where there is none, or we may not say so."""
    if not KNOWS_RINGS:
        pytest.skip("needs a libfuse that has io_uring (make setup URING=1)")
    if not os.access(PARAMETER, os.W_OK) or os.geteuid() != 0:
        pytest.skip(f"needs root and {PARAMETER}, of Linux 6.14")
    with offered(True):
        yield


@pytest.fixture
def one(rings: None, stand: Callable[..., Stand]) -> Stand:
    made = stand(16, "slimftl")
    assert transport(made) == "io_uring"
    return made


def transport(one: Stand) -> str:
    return str(json.loads((one.home / "config.json").read_text())["transport"])


def test_it_is_taken_where_it_is_offered_and_said(
    rings: None, stand: Callable[..., Stand], tmp_path: Path
) -> None:
    one = stand(16, "pagemap")
    assert transport(one) == "io_uring"
    one.unmount()
    command = [sys.executable, "-m", "flashfs.cli", "mount", "-v", str(one.image), str(one.home)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "server native, requests come over io_uring" in said
    assert one.disk.stat().st_size == SIZE


def test_not_where_it_is_not_offered(need_fuse: None, stand: Callable[..., Stand]) -> None:
    if not PARAMETER.exists() or not os.access(PARAMETER, os.W_OK):
        pytest.skip(f"needs root and {PARAMETER}, of Linux 6.14")
    with offered(False):
        assert transport(stand(16, "pagemap")) == "read"


@pytest.mark.parametrize(("server", "how"), [("pyfuse3", {}), ("native", {"realtime": True})])
def test_not_where_it_would_not_do(
    rings: None, stand: Callable[..., Stand], server: str, how: dict[str, bool]
) -> None:
    assert transport(stand(16, "pagemap", server, **how)) == "read"


def test_every_request(one: Stand) -> None:
    """All that `disk` takes, large and small, whole pages and parts of them; the same after a kill and a recovery."""
    rnd, data = random.Random(1), bytearray(SIZE)
    fd = os.open(one.disk, os.O_RDWR)
    try:
        for size in (1, 511, PAGE, 3 * PAGE + 7, 64 << 10, MIB, 3 * MIB):
            at = rnd.randrange(SIZE - size)
            data[at : at + size] = rnd.randbytes(size)
            os.pwrite(fd, data[at : at + size], at)
        assert os.copy_file_range(fd, fd, MIB, 2 * MIB, 9 * MIB) == MIB
        data[9 * MIB : 10 * MIB] = data[2 * MIB : 3 * MIB]
        commands.copy(fd, 3 * MIB, 12 * MIB, MIB)
        data[12 * MIB : 13 * MIB] = data[3 * MIB : 4 * MIB]
        subprocess.run(["fallocate", "--punch-hole", "-o", str(5 * MIB), "-l", str(MIB), str(one.disk)], check=True)
        data[5 * MIB : 6 * MIB] = bytes(MIB)
        os.fsync(fd)
        assert os.lseek(fd, 5 * MIB, os.SEEK_DATA) >= 6 * MIB
    finally:
        os.close(fd)
    assert one.disk.read_bytes() == data
    for size in (1, 511, PAGE, 3 * PAGE + 7, 64 << 10, MIB):
        at = rnd.randrange(SIZE - size)
        with one.disk.open("rb", buffering=0) as file:
            file.seek(at)
            assert file.read(size) == data[at : at + size]
    assert {"disk", "stats.json", "control"} <= {path.name for path in one.home.iterdir()}
    assert one.stats()["server"]["in_flight"] == 0
    one.kill()
    one.mount()
    assert one.disk.read_bytes() == data


def test_truncations_beside_other_requests(one: Stand) -> None:
    """Their last step waits for reads that only their own thread could answer: another one does it, and must not touch
    the ring. Many of them, while both rings are in use."""
    stop = threading.Event()
    threads = [threading.Thread(target=busy, args=(one, stop, seed, MIB)) for seed in range(2)]
    for thread in threads:
        thread.start()
    with one.disk.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(b"x" * (SIZE - 2 * MIB))
    for size in range(SIZE - PAGE, 3 * MIB - 1, -PAGE):
        os.truncate(one.disk, size)
    stop.set()
    for thread in threads:
        thread.join(30)
    with one.disk.open("rb") as file:
        file.seek(2 * MIB)
        assert file.read() == b"x" * MIB + bytes(SIZE - 3 * MIB)
    assert one.disk.stat().st_size == SIZE


def busy(one: Stand, stop: threading.Event, seed: int, room: int = SIZE - MIB) -> None:
    """Whatever the mount answers while it goes away: an error, or what was asked for."""
    rnd = random.Random(seed)
    try:
        fd = os.open(one.disk, os.O_RDWR)
    except OSError:
        return
    try:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[seed % os.cpu_count()]})
        while not stop.is_set():
            at = rnd.randrange(room)
            os.pwrite(fd, rnd.randbytes(rnd.choice((100, PAGE, 200_000))), at)
            os.pread(fd, rnd.choice((100, PAGE, MIB)), at)
            if rnd.random() < 0.1:
                os.fsync(fd)
            if rnd.random() < 0.1:
                (one.home / "stats.json").read_bytes()
    except OSError:
        pass
    finally:
        with suppress(OSError):
            os.close(fd)


@pytest.mark.parametrize("turn", range(3))
def test_it_ends_under_load_with_a_checkpoint(one: Stand, turn: int) -> None:
    """Threads of libfuse's answer until the mount is gone. None of them may be ended in the middle of a request."""
    stop = threading.Event()
    threads = [threading.Thread(target=busy, args=(one, stop, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3 + 0.2 * turn)
    descriptor = os.pidfd_open(one.pid)
    try:
        os.kill(one.pid, signal.SIGTERM)
        assert readable(descriptor, timeout_s=30)
    finally:
        os.close(descriptor)
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert one.mount().clean


def test_many_at_once_read_what_was_written(one: Stand) -> None:
    """A thread on each processor, and more: each has pages of its own."""
    wrong: list[int] = []

    def work(number: int) -> None:
        rnd, first = random.Random(number), number * 2 * MIB
        held = bytearray(2 * MIB)
        fd = os.open(one.disk, os.O_RDWR)
        try:
            for _ in range(300):
                size = rnd.choice((1, 512, PAGE, 20_000, 130_000))
                at = rnd.randrange(2 * MIB - size)
                held[at : at + size] = rnd.randbytes(size)
                os.pwrite(fd, held[at : at + size], first + at)
                size = rnd.choice((1, 512, PAGE, 20_000, 130_000))
                at = rnd.randrange(2 * MIB - size)
                if os.pread(fd, size, first + at) != held[at : at + size]:
                    wrong.append(number)
        finally:
            os.close(fd)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_fio_verifies_a_loop_device_over_it(one: Stand, need_loop: None) -> None:
    device = one.attach()
    subprocess.run(
        ["fio", "--name=v", f"--filename={device}", "--rw=randwrite", "--bsrange=4k-64k", "--direct=1",
         "--ioengine=libaio", "--iodepth=16", f"--size={SIZE}", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1",
         "--verify_state_save=0"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    one.unmount()


def test_kills_under_a_file_system(rings: None, need_loop: None) -> None:
    """The rounds of `flashfs crash --kill`, whose mounts come over io_uring here."""
    command = [sys.executable, "-m", "flashfs.cli", "crash", "kill", "--fs", "ext4", "--rounds", "3", "--json",
               "--ftl", "pagemap"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_module_says_what_it_was_built_with() -> None:
    assert isinstance(_native.KNOWS_RINGS, bool)
