"""Which images are served to NBD clients on this machine: asked of the system, nothing is remembered. What nbdkit does
not tell of them is had from outside: by a signal, or of the image while nbdkit stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nandimg
from flashfs import inspect
from flashfs.errors import FlashfsError
from flashfs.fuse import users
from flashfs.nbd.request import Request
from flashfs.waiting import readable
from nandimg.errors import ImageError

PROC = Path("/proc")
WORD = "request="  #: begins what nbdkit is given for the plugin
STOPPED_S = 10.0  #: in which a process that was told so has stopped
GONE_S = 30.0  #: in which one that was killed is gone


@dataclass(frozen=True)
class Serving:
    """An nbdkit of `flashfs nbd`: process ``pid`` has ``image``, and clients find it at ``uri``."""

    image: str
    ftl: str | None
    pid: int
    uri: str
    read_only: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside, nbdkit stands still, and flashfs.inspect opens the image all the same: it finds what a power cut at
        this moment would leave. Clients wait. Whatever becomes of this process, nbdkit goes on after it."""
        if self.read_only:  # nothing changes, and who only looks may open it
            yield
            return
        guard = subprocess.Popen(
            ["sh", "-c", "read -r line; kill -CONT $0", str(self.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            os.kill(self.pid, signal.SIGSTOP)
            _await_stop(self.pid)
            with inspect.held():
                yield
        finally:
            guard.communicate()

    def cut(self) -> None:
        """The power goes, now; returns when the image is free. FlashfsError if it is not in time."""
        descriptor = os.pidfd_open(self.pid)
        try:
            os.kill(self.pid, signal.SIGKILL)
            if not readable(descriptor, timeout_s=GONE_S):
                raise FlashfsError(f"{self.image}: process {self.pid} was killed, and is there after {GONE_S:.0f} s")
        finally:
            os.close(descriptor)


def servers(proc: Path = PROC) -> list[Serving]:
    """Those that this process can see, by process numbers."""
    return [serving for _, serving in _requests(proc)]


def of(path: Path) -> Serving | None:
    """The server of the image at ``path``, or the one whose socket that is; None if there is none."""
    for request, serving in _requests(PROC):
        with suppress(OSError):
            if path.samefile(request.image) or (request.socket is not None and path.samefile(request.socket)):
                return serving
    return None


def in_use(image: Path, pid: int | None) -> str:
    """One line about an image that the process ``pid`` has: what that is, and what ends it."""
    for one in servers():
        if one.pid == pid:
            return f"{image}: in use by process {pid}, served at {one.uri}: `kill {pid}` ends that"
    return users.in_use(image, pid)


def _requests(proc: Path) -> Iterator[tuple[Request, Serving]]:
    for pid in sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal()):
        with suppress(OSError, ValueError, KeyError, TypeError):  # it went away meanwhile, or is no server of ours
            words = os.fsdecode((proc / str(pid) / "cmdline").read_bytes()).split("\0")
            if Path(words[0]).name != "nbdkit":
                continue
            (text,) = (word.removeprefix(WORD) for word in words if word.startswith(WORD))
            request = Request.read(text)
            ftl = request.ftl or _bound(request.image)
            yield request, Serving(str(request.image), ftl, pid, request.uri, request.read_only)


def _bound(image: Path) -> str | None:
    try:
        return nandimg.inspect(image).ftl or None
    except (OSError, ImageError):
        return None


def _await_stop(pid: int) -> None:
    """Returns when each thread has stopped: one that waits for the disk does it after that."""
    end_s = time.monotonic() + STOPPED_S
    while time.monotonic() < end_s:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in (PROC / str(pid) / "task").glob("*/stat")]
        if set(states) <= {"T", "t"}:
            return
        time.sleep(0.001)
    raise FlashfsError(f"process {pid} was told to stand still, and does not in {STOPPED_S:.0f} s")
