"""A process that serves a RamDevice: ``serve.py SERVER MOUNTPOINT SIZE [OPERATION=ERRNO ...]``, e.g. ``write=ENOSPC``.

Prints "ready" once `disk` answers. ``slow_flush=SECONDS`` makes each flush take that long.
"""

from __future__ import annotations

import errno
import signal
import sys
import time
from functools import partial
from pathlib import Path

import trio
from ram_device import RamDevice

from flashfs.fuse import Server, make_server


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


def main() -> None:
    name, mountpoint, size, *faults = sys.argv[1:]
    device = RamDevice(int(size))
    for fault in faults:
        operation, _, value = fault.partition("=")
        if operation == "slow_flush":
            delay_s = float(value)
            device.flush = partial(time.sleep, delay_s)  # type: ignore[method-assign]
        elif value == "bug":
            device.fail[operation] = ValueError("an error\nof two lines")
        else:
            code = getattr(errno, value)
            device.fail[operation] = OSError(code, "injected")
    trio.run(serve, make_server(name, device, Path(mountpoint)))  # type: ignore[arg-type]
    print(device.calls, flush=True)


main()
