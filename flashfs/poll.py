"""Waiting for descriptors of any number: select(2) takes none from 1024 on."""

from __future__ import annotations

import select


def readable(*descriptors: int, timeout_s: float) -> list[int]:
    """The ``descriptors`` that are readable or whose other side is gone (for a pidfd: the process has ended).

    Waits for the first of them, for ``timeout_s`` seconds at most; [] on a timeout."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]
