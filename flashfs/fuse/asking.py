"""Questions to the daemon of a mount, which end whether it answers or not. Who reads a file of a mount waits in the
kernel for as long as the daemon likes; one that was stopped (SIGSTOP) likes for ever."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from flashfs.errors import FlashfsError
from nandimg.image import holder

ANSWER_S = 60.0  #: a daemon on a busy machine whose disk is slow has answered by then
GONE = (errno.ENOTCONN, errno.ECONNABORTED)  #: what the kernel says for a daemon that is no more

T = TypeVar("T")


class SilentError(FlashfsError):
    """The daemon is there and does not answer."""


class DeadError(FlashfsError):
    """The daemon is no more, and its mount is still there."""


def ask(mountpoint: Path, image: str, question: Callable[[], T], timeout_s: float = ANSWER_S) -> T:
    """What ``question`` returns or raises. SilentError if the daemon that serves ``image`` at ``mountpoint`` is stopped
    (at once), or did not answer within ``timeout_s``. DeadError if it is gone."""
    pid = stopped(image)
    if pid is not None:
        raise SilentError(
            f"{mountpoint} does not answer: its daemon, process {pid}, was stopped; `kill -CONT {pid}` lets it go on"
        )
    answers: list[T] = []
    errors: list[BaseException] = []

    def put() -> None:
        try:
            answers.append(question())
        except BaseException as error:
            errors.append(error)

    # a thread that waits for a daemon cannot be ended; the process ends without it
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if answers:
        return answers[0]
    if not errors:
        raise SilentError(f"{mountpoint} has not answered for {timeout_s:g} s: is its daemon still at work?")
    if isinstance(errors[0], OSError) and errors[0].errno in GONE:
        raise DeadError(
            f"{mountpoint}: its daemon is gone, killed or its power cut: `flashfs mount {image} {mountpoint}` recovers "
            f"what was flushed, `flashfs umount {mountpoint}` clears it away"
        )
    raise errors[0]


def stopped(image: str) -> int | None:
    """The process that has ``image`` open to serve it, if it was stopped. None also where the kernel does not tell."""
    try:
        pid = holder(Path(image).stat())
        if pid is None:
            return None
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None
    return pid if state in "Tt" else None
