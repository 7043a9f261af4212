"""The native server: libfuse's low-level interface in threads of its own, which answer `disk` without the interpreter.

flashfs.fuse._native has the session; this runs it under trio, which handles signals and the rest of the process. The
session's threads are the only ones that touch the device while they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from flashfs.fuse import mounts
from flashfs.fuse._native import Session
from flashfs.fuse.tree import About, Tree

if TYPE_CHECKING:
    from flashfs.device import Device
    from flashfs.fuse.write_log import Tape
    from flashfs.replay.trace_writer import Recording

WAKE_S = 0.01  # between two signals to a thread that was asked to end


class NativeServer:
    """A process can run any number of these."""

    name = "native"

    def __init__(
        self, device: Device, mountpoint: Path, *, allow_other: bool = False, realtime: bool = False,
        recorder: Recording | Tape | None = None, about: About | None = None,
    ) -> None:  # fmt: skip
        self._device = device
        self._about = about
        self._mountpoint = mountpoint
        self._allow_other = allow_other
        self._realtime = realtime
        self._recorder = recorder
        self._stop = trio.Event()
        self._session: Session | None = None

    @property
    def transport(self) -> str:
        return self._session.transport if self._session is not None else "read"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        tree = Tree(
            self._device, self._mountpoint, self.name, shared=self._allow_other, recorder=self._recorder,
            traffic=lambda: session.traffic(), transport=lambda: session.transport, about=self._about,
        )  # fmt: skip
        session = self._session = Session(self._device, tree, realtime=self._realtime, recorder=self._recorder)
        self._mount(session)
        tree.mounted()
        token = trio.lowlevel.current_trio_token()
        hello = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._announce, hello, task_status)
                nursery.start_soon(self._wake, session)
                try:
                    async with trio.open_nursery() as threads:  # must not be abandoned: they use the device
                        for _ in range(session.threads_wanted):
                            threads.start_soon(
                                trio.to_thread.run_sync, session.serve, lambda: token.run_sync_soon(hello.set)
                            )
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            session.unmount()
            tree.left()

    async def _announce(self, hello: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        await hello.wait()
        task_status.started()

    async def _wake(self, session: Session) -> None:
        """Ends the loop when asked to, or when this task is cancelled before it has ended."""
        try:
            await self._stop.wait()
        finally:
            with trio.CancelScope(shield=True):
                session.stop()
                while session.threads:
                    session.stop()
                    await trio.sleep(WAKE_S)

    def _mount(self, session: Session) -> None:
        source = self._device.path or "memory"
        with mounts.telling(self._mountpoint):
            session.mount(self._mountpoint, mounts.options(source, allow_other=self._allow_other))

    def request_stop(self) -> None:
        self._stop.set()
