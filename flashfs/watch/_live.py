"""Looks at a device again and again and shows the figures, until the user quits."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from flashfs.fuse.places import Place
from flashfs.poll import readable
from flashfs.watch._figures import figures
from flashfs.watch._look import Look, look
from flashfs.watch._picture import HISTORY, Picture

INTERVAL_S = 1.0  #: between looks, by default
NOTE = "q quits "
LEAVE = b"qQ\x04"  #: the keys that end it, Ctrl-D among them


def sleep(seconds: float) -> bool:
    """Wait; always False: go on."""
    time.sleep(seconds)
    return False


def shots(
    place: Place, interval_s: float, wait: Callable[[float], bool] = sleep, asked: Path | None = None
) -> Iterator[tuple[dict[str, Any], Look]]:
    """(figures, the look they end with) of one interval after another, until ``wait`` returns True. The first comes
    after one interval: before that there is no rate. Gone when the mount has ended. ``asked`` as of a Look."""
    before, due = look(place, asked, blocks=False), time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
        if wait(max(0.0, due - time.monotonic())):
            return
        now = look(place, asked)
        yield figures(before, now), now
        before = now


def live(place: Place, interval_s: float, console: Console, asked: Path | None = None) -> None:
    """Show the device on a whole terminal until q or Ctrl-C. Whatever ends it, the terminal is as it was before."""
    first = look(place, asked)  # first, so that an error is printed on the normal screen
    history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
    try:
        with _terminal() as wait, Live(console=console, screen=True, auto_refresh=False) as screen:
            shown = Picture(figures(None, first), first, note=NOTE)

            def patient(seconds: float) -> bool:
                """Show and wait; a terminal that is resized meanwhile gets its picture again, at once."""
                end = time.monotonic() + seconds
                while True:
                    screen.update(Whole(shown), refresh=True)
                    if wait(max(0.0, end - time.monotonic())):
                        return True
                    if time.monotonic() >= end:
                        return False

            for found, now in shots(place, interval_s, patient, asked):
                history.append(found)
                shown = Picture(found, now, history, NOTE)
    except KeyboardInterrupt:
        return


class Whole:
    """A picture with the terminal's whole height, which rich does not pass on to what is on a screen of its own."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._picture, options.update(height=console.height), new_lines=True):
            yield from line


@contextmanager
def _terminal() -> Iterator[Callable[[float], bool]]:
    """Keys come one by one and without echo inside. Yields a function that waits so many seconds: True as soon as a key
    of LEAVE is pressed, False when the time is over or a signal came (the terminal was resized). SIGTERM and SIGHUP end
    the process, after the terminal is restored."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = None if keys is None else termios.tcgetattr(keys)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    wakes = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)

    def wait(seconds: float) -> bool:
        ready = readable(*([reader] if keys is None else [reader, keys]), timeout_s=seconds)
        if reader in ready:
            os.read(reader, 4096)
        if keys is None or keys not in ready:
            return False
        typed = os.read(keys, 64)
        return not typed or any(key in LEAVE for key in typed)

    try:
        if keys is not None:
            tty.setcbreak(keys)
        yield wait
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakes)
        os.close(reader)
        os.close(writer)
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
