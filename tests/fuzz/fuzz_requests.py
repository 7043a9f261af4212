"""Asks the FUSE handlers what no kernel would: any handle, offset, size, name and flag. The right answer, by a model
that is a byte array, or an errno; nothing else."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyfuse3
import trio
from fuzz_images import Finding

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from flashfs.fuse import pyfuse3_server
from flashfs.fuse.pyfuse3_server import DURABLE, Handlers, Traffic
from flashfs.fuse.tree import DISK, ROOT, Tree
from nandimg import PRESETS

DISKS = (DISK, DURABLE)  #: the handles that `disk` may be open by
SESSION = 200  #: requests to one device; one session is what is replayed
DEVICES = [("pagemap", "tiny-16"), ("slimftl", "tiny-16"), ("pagemap", "tiny-24d"), ("slimftl", "tiny-96"),
           ("leaftl", "tiny-24d")]  # fmt: skip
DEVICES += [(name, "tiny-24d") for name in SCHEMES if name not in dict(DEVICES)]
SANE = {
    errno.EPERM, errno.ENOENT, errno.EIO, errno.EBADF, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.EINVAL,
    errno.ENOSPC, errno.ENOSYS, errno.EROFS, errno.EFBIG, errno.ENOTSUP,
}  # fmt: skip
HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -4096]
NAMES = [
    b"disk", b"control", b"stats.json", b"smart.json", b"config.json", b"map.json", b".", b"..", b"", b"/", b"disk/",
    b"\0", b"\xff\xfe", b"disk\n", b"a" * 255, b"b" * 5000,
]  # fmt: skip
THERE = 6  #: names in the directory
#: what pyfuse3 may ask for and no SSD has; each refuses
OTHERS: dict[str, tuple[str, ...]] = {
    "unlink": ("inode", "name"), "rmdir": ("inode", "name"), "readlink": ("inode",),
    "mkdir": ("inode", "name", "number"), "mknod": ("inode", "name", "number", "number"),
    "symlink": ("inode", "name", "name"), "link": ("inode", "inode", "name"),
    "rename": ("inode", "name", "inode", "name", "number"), "create": ("inode", "name", "number", "number"),
    "setxattr": ("inode", "name", "name"), "getxattr": ("inode", "name"), "listxattr": ("inode",),
    "removexattr": ("inode", "name"), "access": ("inode", "number"),
}  # fmt: skip


class Session:
    """One device, its handlers, and what it must hold."""

    def __init__(self, seed: str) -> None:
        self.rnd = Random(seed)
        ftl, preset = self.rnd.choice(DEVICES)
        geometry = PRESETS[preset].geometry
        self.device = Device.memory(geometry, ftl)
        traffic = Traffic()
        tree = Tree(self.device, Path("/nowhere"), "none", shared=False, traffic=traffic)
        self.handlers = Handlers(self.device, tree, traffic)
        self.model = bytearray(self.device.size)
        self.handles: list[int] = [DISK]
        self.listed: list[tuple[bytes, int]] = []
        self.outcomes: Counter[str] = Counter()
        self.asked: list[str] = []

    # --- what to ask with

    def offset(self) -> int:
        size, rnd = self.device.size, self.rnd
        kind = rnd.random()
        if kind < 0.7:
            return rnd.randrange(size)
        return size + rnd.randrange(-3, 4) if kind < 0.85 else rnd.choice(HUGE)

    def length(self) -> int:
        page = self.device.page_bytes
        return self.rnd.choice((0, 1, 7, page - 1, page, page + 1, 3 * page, 5000, 70_000, self.rnd.randrange(9000)))

    def handle(self) -> int:
        kind = self.rnd.random()
        return DISK if kind < 0.85 else self.rnd.choice((*self.handles, 0, 1, DURABLE, 99, 2**63, 2**64 - 1))

    def value(self, kind: str) -> Any:
        if kind == "inode":
            return self.rnd.choice((0, ROOT, DISK, 3, 4, 5, 6, 7, 8, 2**32, 2**64 - 1))
        if kind == "name":
            return self.rnd.choice(NAMES) if self.rnd.random() < 0.8 else self.rnd.randbytes(self.rnd.randrange(40))
        return self.rnd.choice((0, 1, 2, 3, 0o777, 2**31, 2**32 - 1, self.rnd.getrandbits(32)))

    # --- asking

    async def ask(self, what: str, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """The answer; None if it was refused with a sane errno."""
        shown = [f"{len(one)} bytes" if isinstance(one, bytes) and len(one) > 40 else repr(one) for one in arguments]
        self.asked.append(f"{what}({', '.join(shown)})")
        try:
            answer = await call(*arguments)
        except pyfuse3.FUSEError as error:
            if error.errno_ not in SANE:
                raise Finding(f"{self.asked[-1]}: errno {error.errno_}") from error
            self.outcomes[f"{what}: {errno.errorcode[error.errno_]}"] += 1
            return None
        except BaseException as error:
            raise Finding(f"{self.asked[-1]}: {type(error).__name__}: {error}") from error
        self.outcomes[f"{what}: answered"] += 1
        return answer

    async def read(self) -> None:
        fh, offset, size = self.handle(), self.offset(), self.length()
        answer = await self.ask("read", self.handlers.read, fh, offset, size)
        if fh in DISKS and offset >= 0:
            expected = bytes(self.model[offset : offset + size])
            if answer is None or bytes(answer) != expected:
                raise Finding(f"{self.asked[-1]}: not what was written")
        elif answer is not None and fh not in self.handles:
            raise Finding(f"{self.asked[-1]}: answered by a handle that nobody opened")

    async def write(self) -> None:
        fh, offset, data = self.handle(), self.offset(), self.rnd.randbytes(self.length())
        put = await self.ask("write", self.handlers.write, fh, offset, data)
        room = max(0, min(len(data), len(self.model) - offset))
        if fh not in DISKS or offset < 0:
            if put:
                raise Finding(f"{self.asked[-1]}: took {put} bytes")
        elif put is None:
            if room or not data:
                raise Finding(f"{self.asked[-1]}: refused")
        elif put != room:
            raise Finding(f"{self.asked[-1]}: took {put} bytes, there is room for {room}")
        else:
            self.model[offset : offset + put] = data[:put]

    async def remap(self) -> None:
        """The device call of an ioctl or a copy_file_range within `disk`, without the handlers."""
        source, target, length, move = self.offset(), self.offset(), self.length(), self.rnd.random() < 0.3
        self.asked.append(f"remap({target}, {source}, {length}, move={move})")
        fits = all(0 <= at <= len(self.model) - length for at in (source, target))
        try:
            self.device.remap(target, source, length, move=move)
        except UsageError as error:
            if fits:
                raise Finding(f"{self.asked[-1]}: {error}") from error
            self.outcomes["remap: refused"] += 1
            return
        except BaseException as error:
            raise Finding(f"{self.asked[-1]}: {type(error).__name__}: {error}") from error
        if not fits:
            raise Finding(f"{self.asked[-1]}: answered")
        self.outcomes["remap: answered"] += 1
        held = bytes(self.model[source : source + length])
        if move and source != target:
            self.model[source : source + length] = bytes(length)
        self.model[target : target + length] = held

    async def open(self) -> None:
        inode, appending = self.value("inode"), os.O_RDWR | os.O_APPEND
        flags = self.rnd.choice((0, 1, 2, os.O_SYNC, os.O_TRUNC, appending, 2**31 - 1))
        answer = await self.ask("open", self.handlers.open, inode, flags, None)
        if answer is not None and inode == DISK and flags & os.O_TRUNC:
            self.cut(0)
        if answer is not None and answer.fh not in DISKS:
            self.handles.append(answer.fh)
            text = await self.handlers.read(answer.fh, 0, 1 << 20)
            json.loads(text)

    def cut(self, size: int) -> None:
        """The disk was truncated: it is as long as before, and empty from there on."""
        self.model[size:] = bytes(len(self.model) - size)

    async def release(self) -> None:
        fh = self.rnd.choice((*self.handles, 77))
        await self.ask("release", self.handlers.release, fh)
        if fh not in DISKS and fh in self.handles:
            self.handles.remove(fh)

    async def setattr(self) -> None:
        attr = pyfuse3.EntryAttributes()
        size = self.rnd.choice((0, self.rnd.randrange(self.device.size), self.device.size, self.device.size + 1, 2**62))
        attr.st_size = size
        fields = SimpleNamespace(**{
            f"update_{name}": self.rnd.random() < 0.2
            for name in ("mode", "uid", "gid", "size", "atime", "mtime", "ctime")
        })  # fmt: skip
        inode = self.value("inode")
        answer = await self.ask("setattr", self.handlers.setattr, inode, attr, fields, None, None)
        if answer is not None and inode == DISK and answer.st_size != len(self.model):
            raise Finding("setattr: disk has another size now")
        if answer is not None and inode == DISK and fields.update_size:
            self.cut(size)

    async def readdir(self) -> None:
        self.listed = []
        start = self.rnd.choice((0, 0, 1, 2, 3, 4, 5, 6, 7, 10**6, -1, 2**63 - 1))
        await self.ask("readdir", self.handlers.readdir, ROOT, start, None)
        if len(self.listed) != max(0, THERE - max(0, start)):
            raise Finding(f"{self.asked[-1]}: {len(self.listed)} names")

    def reply(self, token: Any, name: bytes, attr: Any, next_id: int) -> bool:
        """Stands in for the kernel's buffer."""
        self.listed.append((name, next_id))
        return True

    async def step(self) -> None:
        kind = self.rnd.random()
        if kind < 0.35:
            await self.read()
        elif kind < 0.7:
            await self.write()
        elif kind < 0.76:
            await self.ask("fsync", self.handlers.fsync, self.handle(), self.rnd.random() < 0.5)
        elif kind < 0.80:
            await self.open()
        elif kind < 0.83:
            await self.release()
        elif kind < 0.86:
            await self.setattr()
        elif kind < 0.89:
            await self.readdir()
        elif kind < 0.91:
            await self.ask("lookup", self.handlers.lookup, self.value("inode"), self.value("name"), None)
        elif kind < 0.93:
            await self.ask("getattr", self.handlers.getattr, self.value("inode"), None)
        elif kind < 0.94:
            await self.ask("opendir", self.handlers.opendir, self.value("inode"), None)
        elif kind < 0.95:
            await self.ask("statfs", self.handlers.statfs, None)
        elif kind < 0.98:
            await self.remap()
        else:
            what = self.rnd.choice(list(OTHERS))
            arguments = [self.value(one) for one in OTHERS[what]]
            if await self.ask(what, getattr(self.handlers, what), *arguments, None) is not None:
                raise Finding(f"{self.asked[-1]}: an SSD has no such thing")

    async def run(self) -> None:
        for _ in range(SESSION):
            await self.step()
        answer = await self.ask("read", self.handlers.read, DISK, 0, self.device.size)
        if answer is None or bytes(answer) != self.model:
            raise Finding("at the end: disk does not hold what was written")
        found = self.device.problems()
        if found:
            raise Finding(f"at the end: {found[0]}")


def session(seed: str) -> Counter[str]:
    """One session; Finding says which request got what answer."""
    logging.getLogger("flashfs.fuse.pyfuse3_server").setLevel(logging.CRITICAL)
    one = Session(seed)
    try:
        with mock.patch.object(pyfuse3_server.pyfuse3, "readdir_reply", one.reply):
            trio.run(one.run)
    finally:
        one.device.close(clean=False)
    return one.outcomes
