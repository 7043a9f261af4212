"""Waiting for descriptors, however high their numbers: select(2) knows none from 1024 on."""

from __future__ import annotations

import select


def readable(*descriptors: int, timeout_s: float) -> list[int]:
    """Those of ``descriptors`` that can be read, or whose other side is gone; of a pidfd: the process has ended.

    Waits for the first of them, for ``timeout_s`` seconds at most; [] when none came."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]
