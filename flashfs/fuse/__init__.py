"""Serves one Device as a directory under Linux: what a server promises, and the registry of servers by name.

Two kinds of server have the same interface: one needs the interpreter for each request (pyfuse3 on trio), one does not.
Nothing outside this package knows which of them runs.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flashfs.errors import UsageError

if TYPE_CHECKING:
    import trio  # commands that serve nothing need not wait for its import

    from flashfs.device import Device
    from flashfs.fuse.tree import About
    from flashfs.fuse.write_log import Tape
    from flashfs.replay.trace_writer import Recording

__all__ = ["SERVERS", "Server", "make_server"]


class Server(Protocol):
    """Serves one device at one mountpoint, once. It never closes the device: the caller that opened it does."""

    name: str

    @property
    def transport(self) -> str:
        """How requests come, once it has started: ``io_uring``, or ``read``, which is read(2) of /dev/fuse."""

    async def run(self, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Mount, call ``task_status.started()`` once `disk` answers, and serve until unmounted or cancelled.

        On return, however it comes about, nothing is mounted at the mountpoint any more and no request is under way.
        Raises FlashfsError with the reason if the mount cannot be made.
        """

    def request_stop(self) -> None:
        """Make ``run`` return soon: the requests under way are answered, then the mountpoint is let go of."""


# One line adds a server. Imported when chosen, because a machine may lack the library that one of them binds.
SERVERS: dict[str, str] = {
    "native": "flashfs.fuse.native_server:NativeServer",
    "pyfuse3": "flashfs.fuse.pyfuse3_server:Pyfuse3Server",
}


def make_server(
    name: str, device: Device, mountpoint: Path, *, allow_other: bool = False, realtime: bool = False,
    recorder: Recording | Tape | None = None, about: About | None = None,
) -> Server:  # fmt: skip
    """The server called ``name`` of ``device`` at ``mountpoint``, not yet mounted. "auto": the native one, unless the
    FTL is written in Python: the native server's threads would have to take the GIL for each request then.

    ``realtime``: each reply waits for its virtual end. ``recorder`` gets each request for `disk` before the device
    does; the caller closes it. ``about``: what the daemon knows of the mount.
    """
    if name == "auto":
        name = "pyfuse3" if device.interpreted else "native"
    if name not in SERVERS:
        raise UsageError(f"no server called {name}: there is auto, {', '.join(SERVERS)}")
    module, _, factory = SERVERS[name].partition(":")
    made = getattr(import_module(module), factory)
    server: Server = made(
        device, mountpoint, allow_other=allow_other, realtime=realtime, recorder=recorder, about=about
    )
    return server
