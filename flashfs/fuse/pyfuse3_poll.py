"""Takes pyfuse3's requests from the kernel without a turn of trio's loop for each of them.

pyfuse3 waits for its file descriptor through trio before every request, and hands it from task to task: on two cores
that is 30 to 50 us per request, several times what the kernel, the handlers and a device in memory take together (4 KiB
at depth 16: 12 k to 20 k IOPS that way, 50 k to 110 k this way). Here one task stays at the descriptor and asks the
kernel directly; trio gets its turn when nothing is waiting, and after so many requests. Another task takes over only
when the one at the descriptor is about to await something.

It replaces one function of pyfuse3 that is not public, for as long as a session runs. A pyfuse3 that lacks it waits in
its own way, only slower. Rejected: one task and nothing else, since then a flush in a thread stops the texts; and a
thread of our own for the descriptor, since each request would then cross threads.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyfuse3
import trio

REQUESTS_PER_TURN = 64  # then trio looks after signals and threads, however busy the kernel is
LINGER_MS = 1  # a program that waits for each answer before it asks again comes back well within this


class Turns(trio.abc.Instrument):
    """Which task is at the descriptor. The tasks are pyfuse3's; it starts another each time one has had a turn."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._at_descriptor: trio.lowlevel.Task | None = None
        self._others = trio.lowlevel.ParkingLot()
        self._away = 0  # handlers that await: trio must run what they wait for
        self._served = 0
        self._closed = False

    async def readable(self) -> bool:
        """True once this task may read a request; False when there will be no more. What pyfuse3 awaits."""
        me = trio.lowlevel.current_task()
        while not self._closed:
            if self._at_descriptor is None:
                self._at_descriptor = me
            elif self._at_descriptor is not me:
                await self._others.park()
                continue
            self._served += 1
            if self._served % REQUESTS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            events = self._poll.poll(0 if self._away else LINGER_MS)
            if not events:
                await self._idle()
            elif events[0][1] & select.POLLIN:
                return True
            else:  # unmounted: pyfuse3 learns it from the read that follows
                self.close()
                return True
        return False

    async def _idle(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._descriptor)
        except trio.ClosedResourceError:
            self.close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Around what a handler awaits: meanwhile another task reads requests."""
        self._away += 1
        if self._at_descriptor is trio.lowlevel.current_task():
            self._at_descriptor = None
            self._others.unpark()
        try:
            yield
        finally:
            self._away -= 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """A task that ends at the descriptor leaves it to another: pyfuse3 ends one whose read found nothing but the
        unmount, a moment after the poll had still seen a request, and the others would wait for their turn for ever."""
        if task is self._at_descriptor:
            self._at_descriptor = None
            self._others.unpark()

    def close(self) -> None:
        """No more requests: let every waiting task end."""
        self._closed = True
        self._others.unpark_all()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace pyfuse3's own waiting while inside."""
        original = getattr(pyfuse3, "_wait_fuse_readable", None)
        if original is None:
            yield
            return
        pyfuse3._wait_fuse_readable = self.readable  # type: ignore[attr-defined]
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
            pyfuse3._wait_fuse_readable = original  # type: ignore[attr-defined]


def open_sessions() -> set[int]:
    """The descriptors of this process that are open on /dev/fuse. pyfuse3 does not show its own."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link) == "/dev/fuse":  # noqa: PTH115 - Path.readlink() cannot fail quietly any better
                found.add(int(link.name))
        except OSError:
            continue  # the directory's own descriptor
    return found
