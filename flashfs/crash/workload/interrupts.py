"""Signals that end a run: everything that it mounted is unmounted first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Came:
    """State of the signals. They belong to the whole process, so there is one of it."""

    number = 0  #: the first one
    held = 0  #: how many `held` we are in


@contextmanager
def handled() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt, and further ones do nothing, so that they
    cannot interrupt the cleanup. At the end, SIGTERM and SIGHUP are turned into SystemExit with a shell's exit code for
    them. A signal that was ignored stays ignored; in other threads than the main one this does nothing."""
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
    """Whether a signal came that ends the run."""
    return bool(_Came.number)


@contextmanager
def held() -> Iterator[None]:
    """Inside, no signal interrupts; one that came is acted on at the end. Keep the body short."""
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
