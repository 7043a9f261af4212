"""A process that serves a device in memory: ``serve.py SERVER MOUNTPOINT SIZE [WORD ...]``; the words are
memory_device.py's faults, ``realtime``, and ``slow_release=SECONDS`` for the server in Python.

Prints "ready" once `disk` answers, and at the end what reached the device."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import memory_device
import trio
from pyfuse3 import FileHandleT

from flashfs.fuse import Server, make_server, pyfuse3_server


async def serve(server: Server) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def until_unmounted(*, task_status: trio.TaskStatus[None]) -> None:
                await server.run(task_status=task_status)
                nursery.cancel_scope.cancel()

            await nursery.start(until_unmounted)
            print("ready", flush=True)
            async for _ in signals:
                server.request_stop()


def release_slowly(seconds: float) -> None:
    """The kernel waits for no answer to a close; a mount can be gone before there is one."""

    async def release(handlers: pyfuse3_server.Handlers, fh: FileHandleT) -> None:
        time.sleep(seconds)

    pyfuse3_server.Handlers.release = release  # type: ignore[assignment,method-assign]


def main() -> None:
    name, mountpoint, size, *faults = sys.argv[1:]
    for fault in [fault for fault in faults if fault.startswith("slow_release=")]:
        faults.remove(fault)
        release_slowly(float(fault.partition("=")[2]))
    device = memory_device.make(int(size), faults)
    trio.run(serve, make_server(name, device, Path(mountpoint), realtime="realtime" in faults))
    print(device.calls(), flush=True)


main()
