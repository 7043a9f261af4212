"""A mount's life, by the command line as people use it."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mounting import TIMEOUT_S, flashfs, kill, pid_of, take_away, unmounted
from ram_device import RamDevice

from flashfs.errors import FlashfsError
from flashfs.fuse import SERVERS, asking, daemon, mounts, users

pytestmark = pytest.mark.mount


def write(path: Path, data: bytes, offset: int = 0) -> None:
    """Write and flush."""
    fd = os.open(path, os.O_RDWR)
    try:
        assert os.pwrite(fd, data, offset) == len(data)
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path, length: int, offset: int = 0) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, length, offset)
    finally:
        os.close(fd)


def running(pid: int) -> bool:
    """True while the process is there. A zombie is not: this machine's first process may reap none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_mount_write_umount_mount(chip: Path, mountpoint: Path) -> None:
    data = random.Random(3).randbytes(1 << 20)
    said = flashfs("mount", chip, mountpoint).stdout
    assert str(mountpoint / "disk") in said
    pid = pid_of(mountpoint)
    write(mountpoint / "disk", data, 12345)
    assert "checkpointed" in flashfs("umount", mountpoint).stdout
    assert not running(pid)  # so the checkpoint is durable
    assert mounts.at(mountpoint) is None
    again = json.loads(flashfs("mount", chip, mountpoint, "--json").stdout)
    assert again["clean"]
    assert read(mountpoint / "disk", len(data), 12345) == data
    flashfs("umount", mountpoint)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_unmount_cleanly(chip: Path, mountpoint: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "flashfs.cli", "mount", str(chip), str(mountpoint), "--foreground"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert str(mountpoint) in process.stdout.readline()
        write(mountpoint / "disk", b"before the signal")
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, "Traceback" in err) == (0, False)
        assert "checkpoint written" in err
    finally:
        process.kill()
        process.wait()
    assert json.loads(flashfs("mount", chip, mountpoint, "--json").stdout)["clean"]
    assert read(mountpoint / "disk", 17) == b"before the signal"
    flashfs("umount", mountpoint)


def test_unmount_by_others_is_as_clean(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    write(mountpoint / "disk", b"whole")
    pid = pid_of(mountpoint)
    unmounted(mountpoint)
    end = time.monotonic() + TIMEOUT_S
    while running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert json.loads(flashfs("mount", chip, mountpoint, "--json").stdout)["clean"]
    flashfs("umount", mountpoint)


def test_after_a_kill_the_next_mount_clears_up_and_recovers(chip: Path, mountpoint: Path) -> None:
    data = random.Random(4).randbytes(300_000)
    flashfs("mount", chip, mountpoint)
    write(mountpoint / "disk", data)
    kill(mountpoint)
    with pytest.raises(OSError) as caught:
        os.statvfs(mountpoint)
    assert caught.value.errno in asking.GONE
    said = flashfs("mount", chip, mountpoint, "-v").stdout
    assert "its daemon was gone" in said
    assert "spare reads" in said  # the table of steps
    assert read(mountpoint / "disk", len(data)) == data
    kill(mountpoint)
    assert "next mount recovers" in flashfs("umount", mountpoint, code=1).stderr
    assert mounts.at(mountpoint) is None


def test_refusals_leave_nothing(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "foreign").write_bytes(bytes(100_000))
    other = tmp_path / "other"
    other.mkdir()
    flashfs("mount", tmp_path / "none", mountpoint, code=1)
    flashfs("mount", tmp_path / "foreign", mountpoint, code=1)
    flashfs("mount", chip, tmp_path / "file", code=2)
    flashfs("mount", chip, tmp_path / "nowhere" / "mnt", code=2)
    flashfs("mount", chip, tmp_path, code=2)
    flashfs("mount", chip, mountpoint, "--ftl", "nonesuch", code=2)
    flashfs("mount", chip, mountpoint, "--server", "nonesuch", code=2)
    flashfs("mount", chip, mountpoint, "--sync", "sometimes", code=2)
    flashfs("mount", chip, mountpoint, "--dram", "much", code=2)
    flashfs("mount", chip, mountpoint, "--log", tmp_path / "no" / "log", code=2)
    assert "this is the image itself" in flashfs("mount", chip, mountpoint, "--log", chip, code=2).stderr
    flashfs("umount", mountpoint, code=2)
    assert mounts.at(mountpoint) is None
    flashfs("mount", chip, mountpoint)
    assert "already mounted" in flashfs("mount", chip, mountpoint, code=1).stderr
    assert str(chip) in flashfs("mount", chip, other, code=1).stderr  # one opener at a time
    write(mountpoint / "disk", b"unharmed")
    flashfs("umount", mountpoint)
    assert "bound to pagemap" in flashfs("mount", chip, mountpoint, "--ftl", "slimftl", code=1).stderr
    flashfs("mount", chip, mountpoint)
    assert read(mountpoint / "disk", 8) == b"unharmed"
    flashfs("umount", mountpoint)


def test_busy_is_one_line_and_nothing_happens(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    with (mountpoint / "disk").open("rb"):
        said = flashfs("umount", mountpoint, code=1).stderr
        assert "busy" in said
        assert f"held by process {os.getpid()} (" in said
    with subprocess.Popen(["sleep", "60"], cwd=mountpoint) as stands:
        assert f"held by process {stands.pid} (sleep)" in flashfs("umount", mountpoint, code=1).stderr
        stands.kill()
    write(mountpoint / "disk", b"still here")
    flashfs("umount", mountpoint)


def test_a_process_that_reads_a_file_of_the_mount_is_waited_for(chip: Path, mountpoint: Path) -> None:
    """`flashfs status` reads one of each mount."""
    flashfs("mount", chip, mountpoint)
    command = ["sh", "-c", 'exec 3<"$0/stats.json"; echo; sleep 0.5', mountpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reads:
        assert reads.stdout is not None
        reads.stdout.read(1)
        assert "is checkpointed" in flashfs("umount", mountpoint).stdout
    assert reads.returncode == 0


def test_a_look_that_ends_is_waited_for(chip: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks /proc for a process's open files keeps each one's mount busy for a moment, and is not to be seen."""
    flashfs("mount", chip, mountpoint)
    monkeypatch.setattr(users, "openers", lambda *_: [])
    monkeypatch.setattr(mounts, "MOMENT_S", 60.0)
    handle = os.open(mountpoint / "disk", os.O_RDONLY)
    threading.Timer(0.3, os.close, [handle]).start()
    assert daemon.unmount(mountpoint).warnings == []
    assert mounts.at(mountpoint) is None


def test_a_look_that_does_not_end(chip: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flashfs("mount", chip, mountpoint)
    with monkeypatch.context() as patch:
        patch.setattr(users, "openers", lambda *_: [])
        patch.setattr(mounts, "MOMENT_S", 0.1)
        with (mountpoint / "disk").open("rb"), pytest.raises(FlashfsError, match="busy"):
            daemon.unmount(mountpoint)
    flashfs("umount", mountpoint)


@pytest.mark.parametrize("server", list(SERVERS))
@pytest.mark.parametrize("name", [b"no \xff utf-8", "\u00e4".encode()])
def test_names_of_any_bytes(mountpoint: Path, tmp_path: Path, server: str, name: bytes) -> None:
    """Of the image, the mountpoint and the log."""
    folder = tmp_path / os.fsdecode(name)
    place, chip, log = folder / "mnt", folder / "chip", folder / "log"
    folder.mkdir()
    flashfs("create", chip, "--size", "16M")
    try:
        flashfs("mount", chip, place, "--server", server, "--log", log)
        found = json.loads(flashfs("status", "--json").stdout)["mounts"]
        assert (str(chip), str(place)) in [(one["image"], one["directory"]) for one in found]
        assert "in use by process" in flashfs("mount", chip, mountpoint, code=1).stderr
        with (place / "disk").open("rb"):
            assert "busy" in flashfs("umount", place, code=1).stderr
        flashfs("umount", place)
        assert "checkpoint written" in log.read_text()
    finally:
        take_away(place)


def test_the_log(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    flashfs("mount", chip, mountpoint, "--log", tmp_path / "log")
    flashfs("umount", mountpoint)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [str(mountpoint) in line for line in lines] == [True, True]


def test_many_at_once(chip: Path, mountpoint: Path) -> None:
    """Threads on disjoint parts, texts read meanwhile: each sees what it wrote."""
    flashfs("mount", chip, mountpoint)
    failures: list[str] = []

    def work(index: int) -> None:
        rng, base = random.Random(index), index << 20
        fd = os.open(mountpoint / "disk", os.O_RDWR)
        for turn in range(30):
            data = rng.randbytes(rng.choice([100, 4096, 70_000]))
            offset = base + rng.randrange((1 << 20) - len(data))
            os.pwrite(fd, data, offset)
            if turn % 7 == 0:
                os.fsync(fd)
            if os.pread(fd, len(data), offset) != data:
                failures.append(f"thread {index} turn {turn}")
        os.close(fd)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        json.loads((mountpoint / "stats.json").read_text())
        time.sleep(0.02)
    assert failures == []
    flashfs("umount", mountpoint)
    assert json.loads(flashfs("fsck", chip, "--json").stdout) == {"ok": True, "problems": []}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("fault", ["flush", "close"])
def test_umount_says_when_no_checkpoint_was_written(
    chip: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    device = RamDevice(1 << 20)
    device.fail[fault] = OSError(errno.ENOSPC, "No space left on device")
    recovery = SimpleNamespace(clean=True, steps=[], alarms=[], summary=lambda: "fresh")
    monkeypatch.setattr(device, "recovery", recovery, raising=False)
    opener = SimpleNamespace(open=lambda *_, **__: device)
    monkeypatch.setitem(sys.modules, "flashfs.device", SimpleNamespace(Device=opener))  # type: ignore[arg-type]
    mounted = daemon.mount(daemon.Request(chip, mountpoint, server="pyfuse3"))
    assert (mounted.summary, mounted.size) == ("fresh", 1 << 20)
    done = daemon.unmount(mountpoint)
    assert not running(mounted.pid)
    (warning,) = done.warnings
    assert "No space left on device" in warning


@pytest.mark.mount
def test_umount_of_a_daemon_that_is_dying(chip: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was alive when asked, and gone before its pid was read."""
    flashfs("mount", chip, mountpoint)
    asked = [False]

    def first_alive(path: Path, timeout_s: float = 0.0) -> list[str]:
        if not asked[0]:
            asked[0] = True
            os.kill(pid_of(path), signal.SIGKILL)
            return []
        return cleared(path, timeout_s)

    cleared = mounts.clear_corpse
    monkeypatch.setattr(mounts, "clear_corpse", first_alive)
    done = daemon.unmount(mountpoint)
    assert done.warnings == ["nothing was checkpointed: the next mount recovers what was flushed"]
    assert mounts.at(mountpoint) is None
