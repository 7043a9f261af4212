"""Questions to the daemon of a mount that end whether it answers or not. A process that reads a file of a mount waits
in the kernel until the daemon answers; a daemon that was stopped (SIGSTOP) never does."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from flashfs.errors import FlashfsError
from nandimg.image import holder

ANSWER_S = 20.0  #: a daemon on a busy machine whose disk is slow has answered by then
LOOK_S = 0.5  #: between two looks at whether a daemon that is waited for was stopped
#: the kernel's errors for a daemon that has ended. Over io_uring it may be the second; and the third, for a request
#: that was on its way when the daemon ended.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)

T = TypeVar("T")


class SilentError(FlashfsError):
    """The daemon is there and does not answer."""


class DeadError(FlashfsError):
    """The daemon has ended, and its mount is still there."""


class Question(Generic[T]):
    """A call in a thread of its own. A thread that waits for a daemon cannot be ended; the process ends without it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._answers: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._put, args=(call,), daemon=True)
        self._thread.start()

    def _put(self, call: Callable[[], T]) -> None:
        try:
            self._answers.append(call())
        except BaseException as error:
            self._errors.append(error)

    def ended(self, timeout_s: float | None = None) -> bool:
        """Wait for it; False if it still runs after ``timeout_s``."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def answer(self) -> T:
        """What the call returned or raised, once it has ended."""
        if self._errors:
            raise self._errors[0]
        return self._answers[0]


def ask(
    mountpoint: Path, image: str, question: Callable[[], T], timeout_s: float | None = ANSWER_S, pid: int | None = None
) -> T:
    """What ``question`` returns or raises. SilentError if the daemon that serves ``image`` at ``mountpoint`` is stopped
    (within LOOK_S), or did not answer within ``timeout_s`` (None: no limit). DeadError if it is gone. ``pid``: the
    process, where it is known; several may serve one image read-only."""
    _require_going(mountpoint, image, pid)
    asked = Question(question)
    end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while not asked.ended(max(0.0, min(LOOK_S, end_s - time.monotonic()))):
        _require_going(mountpoint, image, pid)
        if time.monotonic() >= end_s:
            asked_of = pid or daemon_of(image)
            its = "its daemon" if asked_of is None else f"its daemon, process {asked_of},"
            raise SilentError(f"{mountpoint} has not answered for {timeout_s:g} s: {its} is busy or stuck")
    try:
        return asked.answer()
    except OSError as error:
        if error.errno in GONE:
            raise DeadError(f"{mountpoint}: its daemon is gone, killed or its power cut") from None
        raise


def _require_going(mountpoint: Path, image: str, pid: int | None) -> None:
    """SilentError if the daemon was stopped."""
    halted = stopped(image) if pid is None else pid if is_stopped(pid) else None
    if halted is not None:
        raise SilentError(
            f"{mountpoint} does not answer: its daemon, process {halted}, was stopped; "
            f"`kill -CONT {halted}` lets it go on"
        )


def daemon_of(image: str) -> int | None:
    """The process that has ``image`` locked to serve it; None if the kernel does not say."""
    try:
        return holder(Path(image).stat())
    except OSError:
        return None


def as_seen_here(pid: int, image: str) -> int:
    """The pid that this process has to use for the daemon of ``image`` which calls itself ``pid``: another one, if the
    daemon is in a pid namespace below this one."""
    seen = daemon_of(image)
    if seen is None or seen == pid:
        return pid
    try:
        status = Path("/proc", str(seen), "status").read_text()
    except OSError:
        return pid
    names = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return seen if names and names[-1] == str(pid) else pid


def stopped(image: str) -> int | None:
    """The process that has ``image`` open to serve it, if it was stopped. None also if the kernel does not say."""
    pid = daemon_of(image)
    return pid if pid is not None and is_stopped(pid) else None


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP); False if it is gone."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "Tt"
