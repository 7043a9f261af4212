"""``python -m flashfs.replay.worker FD``: a process that replays points for its parent, over the socket FD."""

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
    """Replay points until the parent closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=end_with, args=(descriptor,), daemon=True).start()
    pipe = Connection(descriptor)
    player, SEARCHED[:], classes = pipe.recv()
    while True:
        setup = pipe.recv()
        teller = Teller(pipe)
        pipe.send(attempt(player, setup, teller.hear, classes))


def end_with(descriptor: int) -> None:
    """End this process when the parent closes the socket: the result of the current point is not wanted any more."""
    watched = select.poll()
    watched.register(descriptor, select.POLLRDHUP)
    watched.poll()
    os._exit(0)


class Teller:
    """Sends the progress of a point, at most every TOLD_S."""

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
        os._exit(0)  # the parent has closed the socket; end_with() has not noticed yet
