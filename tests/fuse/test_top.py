"""`flashfs top` of real mounts: under load, on a terminal, and when the mount goes away."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounting import TIMEOUT_S, flashfs, kill, unmounted
from schemes import rotated

from flashfs.fuse import SERVERS, mounts
from flashfs.poll import readable

pytestmark = pytest.mark.mount
TOP = [sys.executable, "-m", "flashfs.cli", "top"]


@pytest.fixture
def load(mountpoint: Path) -> Iterator[Callable[[], None]]:
    """``load()`` starts a thread that writes, reads and flushes until the test is over; it fails the test if it did."""
    stop, failures = threading.Event(), []

    def work() -> None:
        rnd, fd = random.Random(1), os.open(mountpoint / "disk", os.O_RDWR)
        pages = os.fstat(fd).st_size // 4096
        try:
            while not stop.is_set():
                os.pwrite(fd, rnd.randbytes(8192), rnd.randrange(pages - 1) * 4096)
                os.pread(fd, 4096, rnd.randrange(pages) * 4096)
                os.fsync(fd)
                time.sleep(0.001)
        except OSError as error:
            failures.append(str(error))
        finally:
            os.close(fd)

    thread = threading.Thread(target=work)
    yield thread.start
    stop.set()
    if thread.ident is not None:
        thread.join(TIMEOUT_S)
    assert failures == []


@pytest.mark.parametrize("server", list(SERVERS))
@pytest.mark.parametrize("ftl", rotated(3, 2))
def test_once_json_under_load(
    chip: Path, mountpoint: Path, load: Callable[[], None], ftl: str, server: str
) -> None:
    flashfs("mount", chip, mountpoint, "--ftl", ftl, "--server", server)
    load()
    for interval_s in (0.5, 1, 2, 4, 8, 16):  # until enough was done in it, however busy the machine is
        found = json.loads(flashfs("top", mountpoint, "--once", "--json", "--interval", interval_s).stdout)
        host = found["host"]
        if all(host[kind]["iops"] * found["interval_s"] >= 20 for kind in ("read", "write", "flush")):
            break
    assert (found["ftl"], found["server"], found["image"]) == (ftl, server, str(chip))
    assert found["interval_s"] > 0.9 * interval_s
    assert host["write"]["iops"] > 0
    assert host["write"]["bytes_per_s"] == pytest.approx(8192 * host["write"]["iops"], rel=0.01)
    assert host["read"]["bytes_each"] == 4096
    assert host["flush"]["iops"] > 0
    assert host["trim"] == {"iops": 0, "requests": 0, "bytes_per_s": 0, "bytes": 0, "bytes_each": None}
    assert 0.5 < found["waf"]["interval"] < 20  # a buffer may hold some of it back
    assert found["programs_by_cause"]["host"] > 1
    assert found["dram"]["total"]["allocated"] >= found["dram"]["total"]["packed"] > 0
    assert sum(found["pool"].values()) == 320
    assert found["free_blocks"] == found["pool"]["free"]
    assert found["queue"] in range(4)


def test_pictures_without_a_terminal(chip: Path, mountpoint: Path, load: Callable[[], None]) -> None:
    flashfs("mount", chip, mountpoint)
    load()
    for arguments in (["--once"], []):
        said = flashfs("top", mountpoint, *arguments).stdout
        assert "320 blocks of 64 pages" in said
        assert said.count("cleaning and wear") == 1
        assert "\x1b" not in said


@pytest.mark.parametrize("as_json", [True, False])
def test_one_for_each_interval_until_the_mount_is_gone(chip: Path, mountpoint: Path, as_json: bool) -> None:
    flashfs("mount", chip, mountpoint)
    arguments = [str(mountpoint), "--interval", "0.1", *(["--json"] if as_json else [])]
    process = subprocess.Popen([*TOP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3 if as_json else 60)]
        if as_json:
            assert all(json.loads(line)["host"]["read"]["iops"] == 0 for line in lines)
        else:
            assert sum("320 blocks" in line for line in lines) >= 2
        unmounted(mountpoint)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (1, f"flashfs: {mountpoint}: nothing is mounted there any more\n")
    finally:
        process.kill()
        process.wait()


def test_a_dead_daemon_is_one_line(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    kill(mountpoint)
    said = flashfs("top", mountpoint, "--once", code=1).stderr
    assert said.startswith(f"flashfs: {mountpoint}: its daemon is gone, killed or its power cut: ")
    assert said.count("\n") == 1


def test_refusals(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    assert "is no flashfs mount: nothing is mounted there" in flashfs("top", mountpoint, code=2).stderr
    assert "is no flashfs mount" in flashfs("top", tmp_path / "none", code=2).stderr
    assert "is no flashfs mount: proc of proc is mounted there" in flashfs("top", "/proc", code=2).stderr
    flashfs("mount", chip, mountpoint)
    for interval in ("0", "-1", "nan", "inf", "1e9", "much"):
        assert "--interval" in flashfs("top", mountpoint, "--interval", interval, code=2).stderr


def test_a_file_system_of_up(chip: Path, need_loop: None, tmp_path: Path) -> None:
    target = tmp_path / "fs"
    flashfs("up", chip, target)
    try:
        (target / "file").write_bytes(bytes(1 << 20))
        os.sync()
        found = json.loads(flashfs("top", target, "--once", "--json").stdout)
        assert found["host"]["write"]["bytes"] > 1 << 20
        assert found["image"] == str(chip)
    finally:
        flashfs("down", target)


class Terminal:
    """`flashfs top` on a terminal of its own; ``seen`` is all that it has printed."""

    def __init__(self, *arguments: object, rows: int = 40, columns: int = 120) -> None:
        self.keys, other = pty.openpty()
        self.resize(rows, columns)
        self.other = other
        self.before = termios.tcgetattr(other)
        command = [*TOP, *map(str, arguments)]
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
        self.seen = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a signal may cut a write in a character

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, text: str, timeout_s: float = 120.0) -> None:
        """Read on until ``text`` was printed."""
        end = time.monotonic() + timeout_s
        while text not in self.seen:
            ready = readable(self.keys, timeout_s=max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.seen[-2000:]!r}"
            self.seen += self.decoder.decode(os.read(self.keys, 65536))

    def ends(self, timeout_s: float = 120.0) -> int:
        """The exit code; the terminal is as it was."""
        end = time.monotonic() + timeout_s
        while True:
            assert time.monotonic() < end, f"it goes on: {self.seen[-2000:]!r}"
            ready = readable(self.keys, timeout_s=0.1)
            if ready:
                self.seen += self.decoder.decode(os.read(self.keys, 65536))
            elif self.process.poll() is not None:
                break
        assert termios.tcgetattr(self.other) == self.before
        assert self.seen.count("\x1b[?1049h") == self.seen.count("\x1b[?1049l") == 1  # the other screen, and back
        assert self.seen.count("\x1b[?25l") == self.seen.count("\x1b[?25h")  # the cursor
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keys)
        os.close(self.other)


@pytest.fixture
def terminal(chip: Path, mountpoint: Path) -> Iterator[Callable[..., Terminal]]:
    """``terminal(rows=, columns=)``: a mount, watched on a terminal."""
    made: list[Terminal] = []
    flashfs("mount", chip, mountpoint)

    def start(*arguments: object, **size: int) -> Terminal:
        made.append(Terminal(mountpoint, *arguments, **size))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x04"], ids=["q", "Q", "Ctrl-D"])
def test_a_key_leaves(terminal: Callable[..., Terminal], key: bytes) -> None:
    one = terminal("--interval", "600")  # so that nothing but the key ends the wait
    one.until("320 blocks")
    os.write(one.keys, b"x" + key)
    assert one.ends() == 0
    assert "Traceback" not in one.seen


def test_ctrl_c_leaves(terminal: Callable[..., Terminal]) -> None:
    """The terminal makes a signal of it; that is no error."""
    one = terminal("--interval", "600")
    one.until("320 blocks")
    one.process.send_signal(signal.SIGINT)
    assert one.ends() == 0
    assert "Traceback" not in one.seen
    assert "interrupted" not in one.seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_in_order(terminal: Callable[..., Terminal], number: signal.Signals) -> None:
    one = terminal("--interval", "0.1")
    one.until("now")
    one.process.send_signal(number)
    assert one.ends() == 128 + number
    assert "Traceback" not in one.seen


def test_the_mount_goes_away_while_it_is_watched(terminal: Callable[..., Terminal], mountpoint: Path) -> None:
    one = terminal("--interval", "0.1")
    one.until("320 blocks")
    unmounted(mountpoint)
    assert one.ends() == 1
    after = one.seen.partition("\x1b[?1049l")[2]
    assert "nothing is mounted there any more" in after
    assert after.count("flashfs: ") == 1
    assert mounts.at(mountpoint) is None


def test_another_size_is_drawn_at_once(terminal: Callable[..., Terminal]) -> None:
    one = terminal("--interval", "600", rows=40, columns=120)
    one.until("320 blocks")
    one.seen = one.seen.replace("320 blocks", "")
    one.resize(10, 40)
    one.process.send_signal(signal.SIGWINCH)  # as the kernel does for who has the terminal for its own
    one.until("320 blocks")
    os.write(one.keys, b"q")
    assert one.ends() == 0


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (6, 30)])
def test_a_small_terminal(terminal: Callable[..., Terminal], rows: int, columns: int) -> None:
    one = terminal("--interval", "0.1", rows=rows, columns=columns)
    one.until("\x1b[?1049h")
    time.sleep(0.5)
    os.write(one.keys, b"q")
    assert one.ends() == 0
    assert "Traceback" not in one.seen
