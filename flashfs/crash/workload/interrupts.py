"""Signals that end a run: what it has mounted is taken away before they do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Came:
    """Signals are the whole process's, so there is one of these."""

    number = 0  #: the first one
    held = 0  #: how many `held` we are in


@contextmanager
def handled() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt, and further ones do nothing, so that they
    cannot cut the cleaning up short. Outside, SIGTERM and SIGHUP have become SystemExit with a shell's exit code for
    them. One that was ignored before still is; a thread that is not the first one gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Came.number = _Came.held = 0
    before = {number: signal.getsignal(number) for number in NUMBERS}
    ours = [number for number in NUMBERS if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in ours:
            signal.signal(number, _interrupt)
        yield
    except KeyboardInterrupt:
        if _Came.number in (signal.SIGTERM, signal.SIGHUP):
            raise SystemExit(128 + _Came.number) from None
        raise
    finally:
        for number in ours:
            signal.signal(number, before[number])
        _Came.number = 0


def came() -> bool:
    """Whether a signal ends the run."""
    return bool(_Came.number)


@contextmanager
def held() -> Iterator[None]:
    """Inside, which must be short, no signal interrupts; one that came is acted on at the end."""
    _Came.held += 1
    try:
        yield
    finally:
        _Came.held -= 1
    if _Came.number and not _Came.held:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _Came.number:
        _Came.number = number
        if not _Came.held:
            raise KeyboardInterrupt
