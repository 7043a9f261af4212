"""An empty file system: one file `disk` in memory under pyfuse3, the baseline for mounted FTLs.

Its handlers do what flashfs's do, with a copy of memory where those call the device. It takes requests from the kernel
as flashfs does, so that the difference between the two is the cost of the device; or, with `--plain`, as pyfuse3 itself
does.

    ram_pyfuse3.py MOUNTPOINT MEBIBYTES [--plain]      serves until it is unmounted; prints `ready`
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pyfuse3
import trio

from flashfs.fuse import mounts
from flashfs.fuse.pyfuse3_poll import Turns, open_sessions

ROOT, DISK = pyfuse3.ROOT_INODE, 2
TASKS_MAX = 8
REQUESTS_UNDER_WAY_MAX = 64


class Ram(pyfuse3.Operations):
    """`disk`, and nothing else."""

    supports_dot_lookup = True
    enable_writeback_cache = False

    def __init__(self, size: int) -> None:
        super().__init__()
        self.ready = trio.Event()
        self._size = size
        self._memory = memoryview(mmap.mmap(-1, size))
        self._buffer = memoryview(bytearray(1 << 20))

    def init(self) -> None:
        self.ready.set()

    async def read(self, fh: int, off: int, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._buffer[:size] = self._memory[off : off + size]
        return self._buffer[:size]

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        self._memory[off : off + len(buf)] = buf
        return len(buf)

    async def fsync(self, fh: int, datasync: bool) -> None:
        return

    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(DISK), direct_io=True, keep_cache=False)

    async def flush(self, fh: int) -> None:
        return

    async def release(self, fh: int) -> None:
        return

    async def lookup(self, parent_inode: int, name: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        if name != b"disk":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(DISK, ctx)

    async def getattr(self, inode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        out = pyfuse3.EntryAttributes()
        out.st_ino = pyfuse3.InodeT(inode)
        out.st_mode = pyfuse3.ModeT(stat.S_IFDIR | 0o700 if inode == ROOT else stat.S_IFREG | 0o600)
        out.st_nlink = 2 if inode == ROOT else 1
        out.st_size = 0 if inode == ROOT else self._size
        out.st_blksize = 4096
        out.attr_timeout = out.entry_timeout = 86400.0
        return out

    async def setattr(self, inode: int, attr: Any, fields: Any, fh: Any, ctx: Any) -> pyfuse3.EntryAttributes:
        return await self.getattr(inode, ctx)

    async def opendir(self, inode: int, ctx: Any) -> int:
        return ROOT

    async def readdir(self, fh: int, start_id: int, token: Any) -> None:
        if start_id == 0:
            attributes = await self.getattr(DISK, None)
            pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b"disk"), attributes, 1)


async def serve(mountpoint: Path, size: int, plain: bool) -> None:
    handlers = Ram(size)
    others = open_sessions()
    pyfuse3.init(handlers, str(mountpoint), {*pyfuse3.default_options, *mounts.options("ram", allow_other=False)})
    try:
        (descriptor,) = open_sessions() - others
        with contextlib.nullcontext() if plain else Turns(descriptor).installed():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pyfuse3.main, 1, TASKS_MAX)
                await handlers.ready.wait()
                mounts.allow_requests(mountpoint, REQUESTS_UNDER_WAY_MAX)
                print("ready", flush=True)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(57, 1, 0, 0, 0)  # PR_SET_IO_FLUSHER, as flashfs's daemon does
    os.umask(0o077)
    trio.run(serve, Path(sys.argv[1]), int(sys.argv[2]) << 20, "--plain" in sys.argv)
