"""The server that needs nothing but Python: pyfuse3 on trio, one request at a time in the interpreter.

The handlers of `disk` take about a microsecond more than the device, by three decisions: none of them awaits
unless a flush is under way; `disk` is opened for direct I/O, so that no attribute is asked for again after each write
and every request of the host is a request of the device; and requests are taken from the kernel as
``flashfs.fuse.pyfuse3_poll`` says, which is where most of the time went.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyfuse3
import trio
from pyfuse3 import FileHandleT, FileInfo, FileNameT, FlagT, FUSEError, InodeT, ReaddirToken, RequestContext

from flashfs.fuse import mounts
from flashfs.fuse.errno_of import errno_of
from flashfs.fuse.pyfuse3_poll import Turns, open_sessions
from flashfs.fuse.tree import DISK, ROOT, About, Attr, Tree
from flashfs.replay._record import OPERATIONS

if TYPE_CHECKING:
    from flashfs.device import Device
    from flashfs.fuse.write_log import Tape
    from flashfs.replay.trace_writer import Recording

# Each task of pyfuse3 keeps a buffer of 1 MiB. One works while nothing blocks; the others answer for the texts while a
# flush is under way and the writes after it wait.
TASKS_MAX = 8
REQUESTS_UNDER_WAY_MAX = 64
REQUEST_BYTES = 1 << 20  # the kernel's largest, unless it is configured for more
# as traces count them
OP_READ, OP_WRITE, OP_TRIM, OP_FLUSH = (OPERATIONS.index(name) for name in ("read", "write", "trim", "flush"))
DURABLE = DISK + 1  # the handle of `disk` where it was opened with O_SYNC or O_DSYNC; texts have the next ones
FOREVER_S = 86400.0  # names never change


def _is_news(record: logging.LogRecord) -> bool:
    """Whether what pyfuse3 logs is worth a line. A reply "failed with No such file or directory" where the kernel no
    longer waits for it: the mount was taken away while a request was at work, and libfuse is silent about that too."""
    return not (record.msg.endswith("fuse_reply_* failed with %s") and record.args == (os.strerror(errno.ENOENT),))


logging.getLogger("pyfuse3").addFilter(_is_news)


class Traffic:
    """What the host has asked of `disk`, as ``flashfs.fuse.tree`` wants it: requests, also those that failed, and the
    bytes of those that were done. Plain integers, because each request pays for them."""

    __slots__ = ("in_flight", "read_bytes", "reads", "syncs", "trim_bytes", "trims", "write_bytes", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = self.trims = self.syncs = self.in_flight = 0
        self.read_bytes = self.write_bytes = self.trim_bytes = 0

    def __call__(self) -> dict[str, Any]:
        return {
            "requests": {"read": self.reads, "write": self.writes, "trim": self.trims, "flush": self.syncs},
            "bytes": {"read": self.read_bytes, "write": self.write_bytes, "trim": self.trim_bytes},
            "in_flight": self.in_flight,
        }


class Handlers(pyfuse3.Operations):
    """What the kernel asks, answered by one device. ``disk``'s file handle is its inode number, or ``DURABLE``."""

    supports_dot_lookup = True
    enable_writeback_cache = False  # a write that was acknowledged has reached the device

    def __init__(self, device: Device, tree: Tree, traffic: Traffic, recorder: Recording | Tape | None = None) -> None:
        super().__init__()
        self._traffic = traffic
        self._record: Callable[..., Any] | None = recorder.record if recorder else None
        self.ready = trio.Event()
        self._device = device
        self._read_into: Callable[[int, Any], Any] = device.read_into
        # Every read uses this buffer: pyfuse3 sends it before anything else can run. A fresh buffer for each read would
        # be cleared, and one of 1 MiB mapped and unmapped, which takes longer than the read.
        self._buffer: Any = memoryview(bytearray(REQUEST_BYTES))
        self._size = device.size
        self._tree = tree
        # Only a flush holds it across an await. Everything else runs from start to end in trio's one thread, so it is
        # enough to see that the lock is free: taking it would cost a turn of the loop for each request.
        self._lock = trio.Lock()
        self.turns: Turns | None = None  # known once mounted
        self._texts: dict[int, bytes] = {}
        self._commanding: dict[int, InodeT] = {}  # of them, those of `control` and `mark`
        self._text_handle = DURABLE

    def init(self) -> None:
        self.ready.set()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lock the device, also across an await; requests are still read meanwhile."""
        with self.turns.away() if self.turns else nullcontext():
            async with self._lock:
                yield

    # ---- the block file ----

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        if fh != DISK and fh != DURABLE:
            if fh not in self._texts:
                raise FUSEError(errno.EBADF)
            return self._texts[fh][max(0, off) : max(0, off) + size]
        if off + size > self._size:
            size = self._size - off
            if size <= 0:
                return b""
        if self._record is not None:
            self._record(OP_READ, off, size)
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        traffic = self._traffic
        traffic.in_flight += 1
        try:
            if self._lock.locked():
                async with self._alone():
                    data = self._read_into(off, self._buffer[:size])
            else:
                data = self._read_into(off, self._buffer[:size])
            traffic.read_bytes += size
            return data
        except Exception as error:
            raise self._failed("read", off, error) from None
        finally:
            traffic.in_flight -= 1
            traffic.reads += 1  # with its bytes: a look in between finds both or neither

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        """A flush follows if the file was opened for that. pyfuse3 does not say what a single write asks for."""
        if fh != DISK and fh != DURABLE:
            return await self._obey(fh, buf)
        if off + len(buf) > self._size:
            if not buf:
                return 0
            buf = buf[: max(0, self._size - off)]
            if not buf:
                raise FUSEError(errno.ENOSPC)
        if self._record is not None:
            self._record(OP_WRITE, off, len(buf), buf)
        traffic = self._traffic
        traffic.in_flight += 1
        try:
            if self._lock.locked():
                async with self._alone():
                    written = self._device.write(off, buf)
            else:
                written = self._device.write(off, buf)
            traffic.write_bytes += written
        except Exception as error:
            raise self._failed("write", off, error) from None
        finally:
            traffic.in_flight -= 1
            traffic.writes += 1
            self._tree.note_change()  # one that failed may have written some pages
        if fh == DURABLE:
            await self._flush()
        return written

    async def _obey(self, fh: FileHandleT, buf: bytes) -> int:
        """A command to `control`; its answer is what is read by this handle from now on."""
        if fh not in self._commanding:
            raise FUSEError(errno.EBADF)
        try:
            async with self._alone():
                tell = partial(self._texts.__setitem__, fh)
                self._texts[fh], done = self._tree.obey(self._commanding[fh], bytes(buf), tell)
        except Exception as error:
            raise FUSEError(errno_of("command", 0, error)) from None
        if not done:
            raise FUSEError(errno.EINVAL)
        return len(buf)

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        """A flush, whatever ``datasync`` says: a loop device sends one kind, a database the other."""
        if fh in (DISK, DURABLE):
            await self._flush()

    async def _flush(self) -> None:
        if self._record is not None:
            self._record(OP_FLUSH, 0, 0)
        self._traffic.syncs += 1
        self._traffic.in_flight += 1
        try:
            async with self._alone():
                await trio.to_thread.run_sync(self._device.flush)
        except Exception as error:
            raise self._failed("flush", 0, error) from None
        finally:
            self._traffic.in_flight -= 1

    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        await self.fsync(FileHandleT(DISK), datasync)

    def _failed(self, operation: str, offset: int, error: Exception) -> FUSEError:
        """What a request of `disk` raises for ``error``."""
        return FUSEError(self._tree.errno_of(operation, offset, error))

    # ---- files and names ----

    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if inode == DISK:
            durable = flags & os.O_DSYNC  # O_SYNC includes it
            if flags & os.O_TRUNC:
                await self._cut(0)
            return FileInfo(fh=FileHandleT(DURABLE if durable else DISK), direct_io=True, keep_cache=False)
        if not self._tree.is_text(inode):
            raise FUSEError(errno.EISDIR if inode == ROOT else errno.ENOENT)
        commands = self._tree.takes_commands(inode)
        if (writes or flags & os.O_TRUNC) and not commands:
            raise FUSEError(errno.EACCES)
        self._text_handle += 1
        handle = self._text_handle
        try:
            async with self._alone():
                self._texts[handle] = self._tree.text(inode)
        except Exception as error:
            raise FUSEError(errno_of("open", 0, error)) from None
        if commands:
            self._commanding[handle] = inode
        # Direct I/O also because a cached text would be cut at the size that some earlier one had.
        return FileInfo(fh=FileHandleT(handle), direct_io=True, keep_cache=False)

    async def flush(self, fh: FileHandleT) -> None:
        """close(2) promises nothing on a block device either."""

    async def release(self, fh: FileHandleT) -> None:
        self._texts.pop(fh, None)
        self._commanding.pop(fh, None)

    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> pyfuse3.EntryAttributes:
        inode = self._tree.inode(name) if parent_inode == ROOT else None
        if inode is None:
            raise FUSEError(errno.ENOENT)
        return await self.getattr(InodeT(inode), ctx)

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> pyfuse3.EntryAttributes:
        attr = self._tree.attr(inode)
        if attr is None:
            raise FUSEError(errno.ENOENT)
        return entry(attr, FOREVER_S if inode == ROOT else 0.0)  # sizes of texts and the times of `disk` change

    async def setattr(
        self,
        inode: InodeT,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> pyfuse3.EntryAttributes:
        """An SSD has one size and one owner; truncation trims what is cut off. Only `disk` takes times. A shell that
        redirects into `control` truncates it first, which has no effect."""
        if fields.update_mode or fields.update_uid or fields.update_gid:
            raise FUSEError(errno.EPERM)
        if self._tree.takes_commands(inode) and fields.update_size:
            return await self.getattr(inode, ctx)
        if inode != DISK or (fields.update_size and not 0 <= attr.st_size <= self._size):
            raise FUSEError(errno.EPERM)
        if fields.update_size and attr.st_size < self._size:
            await self._cut(attr.st_size)
            if fh == DURABLE:
                await self._flush()
        if fields.update_atime or fields.update_mtime:
            self._tree.set_times(
                attr.st_atime_ns if fields.update_atime else None, attr.st_mtime_ns if fields.update_mtime else None
            )
        return await self.getattr(inode, ctx)

    async def _cut(self, size: int) -> None:
        """Truncation: what lies beyond ``size`` is trimmed, and the size does not change."""
        if self._tree.is_used():
            raise FUSEError(errno.EBUSY)
        length = self._size - size
        if self._record is not None:
            self._record(OP_TRIM, size, length)
        traffic = self._traffic
        traffic.trims += 1
        traffic.in_flight += 1
        try:
            async with self._alone():
                self._device.trim(size, length)
            traffic.trim_bytes += length
            if self.turns:  # the kernel drops its cached pages of the rest only if the size changes
                with self.turns.away():
                    await trio.to_thread.run_sync(pyfuse3.invalidate_inode, InodeT(DISK))
        except Exception as error:
            raise self._failed("trim", size, error) from None
        finally:
            traffic.in_flight -= 1
            self._tree.note_change()

    async def _refused(self, *_: Any) -> NoReturn:
        """Refuses to make, remove or rename: the names are fixed."""
        raise FUSEError(errno.EPERM)

    create = mkdir = mknod = symlink = link = rename = unlink = rmdir = _refused  # type: ignore[assignment]

    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        if inode != ROOT:
            raise FUSEError(errno.ENOTDIR)
        return FileHandleT(ROOT)

    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        for index, (name, inode) in enumerate(self._tree.entries(), 1):
            if index <= start_id:
                continue
            attributes = await self.getattr(InodeT(inode), None)  # type: ignore[arg-type]
            if not pyfuse3.readdir_reply(token, FileNameT(name), attributes, index):
                break

    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = self._device.page_bytes
        data.f_blocks = self._size // self._device.page_bytes
        data.f_files = len(list(self._tree.entries()))
        data.f_namemax = 255
        return data


class RealtimeHandlers(Handlers):
    """The same, with each reply delayed until its virtual end. Other requests are read and done meanwhile."""

    def __init__(self, device: Device, tree: Tree, traffic: Traffic, recorder: Recording | Tape | None = None) -> None:
        super().__init__(device, tree, traffic, recorder)
        self._zero_ns = time.monotonic_ns() - device.quiet_at()

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        if fh != DISK and fh != DURABLE:
            return await super().read(fh, off, size)
        async with self._felt():
            return bytes(await super().read(fh, off, size))  # its own: the buffer is the next request's

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        async with self._felt():
            return await super().write(fh, off, buf)

    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        async with self._felt():
            await super().fsync(fh, datasync)

    @asynccontextmanager
    async def _felt(self) -> AsyncIterator[None]:
        """Give the device the arrival time of the request, and wait until the end time that it reports."""
        with self.turns.away() if self.turns else nullcontext():
            self._device.now_ns = time.monotonic_ns() - self._zero_ns
            yield
            late_ns = self._device.end_ns + self._zero_ns - time.monotonic_ns()
            if late_ns > 0:
                self._traffic.in_flight += 1  # done, and not answered yet
                try:
                    await trio.sleep(late_ns / 1e9)
                finally:
                    self._traffic.in_flight -= 1


def entry(attr: Attr, timeout_s: float) -> pyfuse3.EntryAttributes:
    """``attr`` as pyfuse3 wants it; the kernel may believe it for ``timeout_s``."""
    out = pyfuse3.EntryAttributes()
    out.st_ino = InodeT(attr.inode)
    out.st_mode = pyfuse3.ModeT(attr.mode)
    out.st_nlink = attr.links
    out.st_uid, out.st_gid = attr.uid, attr.gid
    out.st_size, out.st_blksize, out.st_blocks = attr.size, attr.block_bytes, attr.blocks
    out.st_atime_ns, out.st_mtime_ns, out.st_ctime_ns = attr.atime_ns, attr.mtime_ns, attr.ctime_ns
    out.attr_timeout, out.entry_timeout = timeout_s, FOREVER_S
    return out


class Pyfuse3Server:
    """pyfuse3 keeps one session in its module's globals, so that a process can run one of these at a time."""

    name = "pyfuse3"
    transport = "read"

    def __init__(
        self, device: Device, mountpoint: Path, *, allow_other: bool = False, realtime: bool = False,
        recorder: Recording | Tape | None = None, about: About | None = None,
    ) -> None:  # fmt: skip
        self._device = device
        self._about = about
        self._realtime = realtime
        self._recorder = recorder
        self._mountpoint = mountpoint
        self._allow_other = allow_other
        self._turns: Turns | None = None  # while it serves
        self._stopping = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        traffic = Traffic()
        tree = Tree(
            self._device, self._mountpoint, self.name, shared=self._allow_other, traffic=traffic,
            recorder=self._recorder, about=self._about,
        )  # fmt: skip
        handlers = (RealtimeHandlers if self._realtime else Handlers)(self._device, tree, traffic, self._recorder)
        others = open_sessions()
        mount(handlers, self._mountpoint, mounts.options(self._device.path or "memory", allow_other=self._allow_other))
        tree.mounted()
        try:
            (descriptor,) = open_sessions() - others
            self._turns = handlers.turns = Turns(descriptor)
            with self._turns.installed():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pyfuse3.main, 1, REQUESTS_UNDER_WAY_MAX if self._realtime else TASKS_MAX)
                    nursery.start_soon(self._announce, handlers, task_status)
        finally:
            self._turns = None
            pyfuse3.close(unmount=True)
            tree.left()

    async def _announce(self, handlers: Handlers, task_status: trio.TaskStatus[None]) -> None:
        await handlers.ready.wait()
        mounts.allow_requests(self._mountpoint, REQUESTS_UNDER_WAY_MAX)
        task_status.started()
        if self._stopping:
            self.request_stop()

    def request_stop(self) -> None:
        self._stopping = True  # a signal may come before there is a session to end
        if self._turns is not None:
            self._turns.close()
            pyfuse3.terminate()


def mount(handlers: Handlers, mountpoint: Path, options: Sequence[str]) -> None:
    with mounts.telling(mountpoint):
        pyfuse3.init(handlers, str(mountpoint), {*pyfuse3.default_options, *map(Option, options)})


class Option(str):
    """A mount option with a file's name in it: pyfuse3 would encode it as ASCII."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return os.fsencode(str(self))
