"""``python -m flashfs.replay.worker FD``: a process that replays points for another, at the other end of socket FD."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from flashfs.ftl_search import SEARCHED
from flashfs.replay.workers import TOLD_S, attempt


def main(descriptor: int) -> None:
    """Point after point, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other's business
    threading.Thread(target=end_with, args=(descriptor,), daemon=True).start()
    pipe = Connection(descriptor)
    player, SEARCHED[:], classes = pipe.recv()
    while True:
        setup = pipe.recv()
        teller = Teller(pipe)
        pipe.send(attempt(player, setup, teller.hear, classes))


def end_with(descriptor: int) -> None:
    """End when the other end has closed: who asked for the point under way is not there to hear of it."""
    watched = select.poll()
    watched.register(descriptor, select.POLLRDHUP)
    watched.poll()
    os._exit(0)


class Teller:
    """Says how far a point is, not too often."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.next_s = 0.0

    def hear(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now >= self.next_s:
            self.next_s = now + TOLD_S
            self.pipe.send(("progress", done, total))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except (EOFError, OSError):
        os._exit(0)  # the other end has closed, as end_with() was about to find out
