"""What tests of mounts do: run a command, kill a daemon, take a mount away."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from flashfs import cli
from flashfs.fuse import mounts
from flashfs.poll import readable

ROOM = 16 << 20  # bytes of a device in memory
TIMEOUT_S = 60


def unmounted(path: Path) -> None:
    """Unmount, and repeat while it is busy: it is while a process reads one of its files, as ``flashfs status`` of a
    parallel test does with every mount."""
    end = time.monotonic() + TIMEOUT_S
    while (done := subprocess.run(["fusermount3", "-u", str(path)], capture_output=True, text=True)).returncode:
        assert time.monotonic() < end, done.stderr
        time.sleep(0.03)


class Served:
    """A process that serves a device in memory at ``path``."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process = process
        self.path = path
        self.disk = path / "disk"

    def unmount(self) -> tuple[str, str]:
        """Unmount from outside and return what the process printed: (stdout, stderr)."""
        unmounted(self.path)
        return self.process.communicate(timeout=TIMEOUT_S)


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
    """Remove by force whatever is mounted at ``path`` or uses its `disk`."""
    for device in mounts.loops_of(path / "disk"):
        for upper in mounts.mounts_of(device):
            subprocess.run(["umount", "-l", str(upper)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", str(device)], check=False, capture_output=True)
    if mounts.at(path) is None:
        return
    with suppress(OSError, ValueError, ProcessLookupError):
        kill(path)
    subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False, capture_output=True)
