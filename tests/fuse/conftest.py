"""Mounts for tests. Whatever a fixture makes it takes away again, by the ids that it made, however the test ended."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from stand import Stand

from flashfs import cli
from flashfs.fuse import SERVERS, mounts, up_registry
from flashfs.poll import readable
from nandimg import image

HERE = Path(__file__).parent
ROOM = 16 << 20  # bytes of a device in memory
TIMEOUT_S = 60


@pytest.fixture
def need_fuse() -> None:
    """Skips by name where nothing can be mounted."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse, which this machine does not let us open")
    if shutil.which("fusermount3") is None:
        pytest.skip("needs fusermount3 (package fuse3)")


@pytest.fixture
def need_loop(need_fuse: None) -> None:
    """Skips by name where no loop device can be attached."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to attach a loop device")
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/loop-control, which this machine does not have")
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True)
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")


class Served:
    """A process that serves a device in memory at ``path``."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process = process
        self.path = path
        self.disk = path / "disk"

    def unmount(self) -> tuple[str, str]:
        """Unmount from outside and return what the process printed: (stdout, stderr)."""
        subprocess.run(["fusermount3", "-u", str(self.path)], check=True)
        return self.process.communicate(timeout=TIMEOUT_S)


@pytest.fixture(params=list(SERVERS))
def serve(need_fuse: None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """``serve("write=ENOSPC", ...)``: a mount of a device in memory under each server that there is."""
    made: list[Served] = []

    def start(*faults: str) -> Served:
        path = tmp_path / f"ram{len(made)}"
        path.mkdir()
        command = [sys.executable, str(HERE / "serve.py"), request.param, str(path), str(ROOM), *faults]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        made.append(Served(process, path))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return made[-1]

    yield start
    for served in made:
        take_away(served.path)
        served.process.kill()
        served.process.communicate()


@pytest.fixture
def mountpoint(need_fuse: None, tmp_path: Path) -> Iterator[Path]:
    """An empty directory; at the end nothing is mounted there and its daemon is gone."""
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    take_away(path)


@pytest.fixture
def chip(tmp_path: Path) -> Iterator[Path]:
    """An image of 64 MiB; at the end, what `up` made of it is gone too."""
    path = tmp_path / "chip.nand"
    flashfs("create", path, "--preset", "small-64m")
    home = up_registry.RUN / str(image.inspect(path).uuid)
    yield path
    take_away(home)
    up_registry.remove(home)


@pytest.fixture
def stand(need_fuse: None, tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    """``stand(size_mib, ftl, server)``: an image that is mounted, by the native server unless another is named."""
    made: list[Stand] = []

    def start(size_mib: int, ftl: str, server: str = "native", **how: object) -> Stand:
        folder = tmp_path / f"stand{len(made)}"
        folder.mkdir()
        made.append(Stand(folder, size_mib, ftl, server))
        made[-1].mount(**how)
        return made[-1]

    yield start
    for one in made:
        one.clean_up()


def flashfs(*arguments: object, code: int = 0, **keywords: object) -> subprocess.CompletedProcess[str]:
    """Run the command; it must end with ``code``, and an error must be one line that is no traceback. In this process,
    which has imported everything, unless a keyword of subprocess.run or a log (pytest has its own) asks for another."""
    command = [sys.executable, "-m", "flashfs.cli", *map(str, arguments)]
    if keywords or "--log" in arguments:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **keywords)  # type: ignore[call-overload]
    else:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = cli.run(list(map(str, arguments)))
        done = subprocess.CompletedProcess(command, ended, out.getvalue(), err.getvalue())
    assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    if code:
        assert done.stderr.startswith("flashfs: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert "internal error" not in done.stderr, done.stderr
    return done  # type: ignore[no-any-return]


def refused(call: Callable[[], object]) -> int:
    """The errno that ``call`` fails with."""
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno is not None
    return caught.value.errno


def pid_of(path: Path) -> int:
    """The daemon that serves a mount."""
    return int(json.loads((path / "config.json").read_text())["pid"])


def kill(path: Path) -> None:
    """SIGKILL the daemon of a mount, and wait until it is gone."""
    pid = pid_of(path)
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    readable(descriptor, timeout_s=TIMEOUT_S)
    os.close(descriptor)


def take_away(path: Path) -> None:
    """Whatever is mounted at ``path`` or hangs on its `disk`: gone, without asking anybody nicely."""
    for device in mounts.loops_of(path / "disk"):
        for upper in mounts.mounts_of(device):
            subprocess.run(["umount", "-l", str(upper)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", str(device)], check=False, capture_output=True)
    if mounts.at(path) is None:
        return
    with suppress(OSError, ValueError, ProcessLookupError):
        kill(path)
    subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False, capture_output=True)
