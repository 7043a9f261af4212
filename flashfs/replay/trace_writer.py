"""Writes a trace during a mount: a thread that takes full chunks from a Recorder, packs and writes them.

The mount never waits for this thread. An error in writing the trace (a full disk, a failing one) only ends the
recording: one line in the log says so, and requests that are not in the file are counted.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import zstandard

from flashfs.errors import UsageError
from flashfs.replay._record import Recorder
from flashfs.replay.trace_reader import CHUNK_MAGIC, END, GRAIN_BYTES, PLAIN, VERSION, ZSTD, ChunkHeader, Header
from nandimg import checksum

if TYPE_CHECKING:
    from flashfs.device import Device

log = logging.getLogger(__name__)

PERIOD_S = 0.5  # a SIGKILL loses this much of a trace, plus the time to pack and write a chunk
LEVEL = 1
MEMORY_BYTES = 64 << 20


class Recording(Recorder):
    """A Recorder with a file. Servers call ``record`` (or, without the GIL, ``note``); its opener must close it.

    ``file`` is a descriptor open for writing, which this object takes over; ``path`` is its name.
    """

    def __init__(self, file: int, path: Path, header: Header, memory_bytes: int = MEMORY_BYTES) -> None:
        super().__init__(header.size, memory_bytes)
        self.path = path
        self.failed: str | None = None
        self._file = file
        self._written = 0
        self._bytes = 0
        self._ending = self._closed = False
        self._packer = zstandard.ZstdCompressor(level=LEVEL)
        self._put(header.packed())
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int:
        """The pthread identifier of the thread that packs and writes: for measurements."""
        return self._thread.ident or 0

    @property
    def dropped(self) -> int:
        """Requests that are not in the trace and will not be."""
        return self.noted - self._written if self.failed else self.lost

    def figures(self) -> dict[str, Any]:
        """Figures for stats.json. A recorded request is in the file about PERIOD_S later."""
        dropped = self.dropped
        recorded = self.noted - dropped
        return {"requests": recorded, "dropped": dropped, "bytes": self._bytes, "failed": self.failed}

    def close(self) -> None:
        """Write the rest and the end of the trace. Errors of the file are not raised: see ``failed``."""
        if self._closed:
            return
        self._closed = True
        self.end()
        self._ending = True
        os.eventfd_write(self.bell_descriptor, 1)
        self._thread.join()
        os.close(self._file)
        if self.dropped:
            log.warning("%s: %d requests are not in the trace", self.path, self.dropped)

    # ---- the thread ----

    def _work(self) -> None:
        bell = select.poll()
        bell.register(self.bell_descriptor, select.POLLIN)
        try:
            due = time.monotonic() + PERIOD_S
            while not self._ending:
                if bell.poll(max(0.0, due - time.monotonic()) * 1000):
                    os.eventfd_read(self.bell_descriptor)
                late = time.monotonic() >= due
                self._write_all(unfinished=late)
                if late:
                    due = time.monotonic() + PERIOD_S
            self._write_all(unfinished=True)
            self._put(ChunkHeader(CHUNK_MAGIC, 0, 0, 0, 0, 0, self.elapsed_ns, self.noted, END).packed())
        except Exception as error:  # any error here ends the recording, not the mount
            self._fail(error)

    def _write_all(self, unfinished: bool) -> None:
        while self._write(self.take(unfinished=False)):
            pass
        if unfinished:
            self._write(self.take(unfinished=True))

    def _write(self, chunk: tuple[int, int, int, int, bytes] | None) -> bool:
        """Pack and write a chunk. False if there was none."""
        if chunk is None:
            return False
        records, words, first_ns, before, columns = chunk
        packed = self._packer.compress(columns)
        kind, stored = (ZSTD, packed) if len(packed) < len(columns) else (PLAIN, columns)
        sizes = (records, words, len(columns), len(stored))
        head = ChunkHeader(CHUNK_MAGIC, *sizes, checksum(stored), first_ns, before, kind)
        self._put(head.packed() + stored)
        self._written += records
        return True

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self._bytes += len(data)

    def _fail(self, error: Exception) -> None:
        """Give up. The file keeps its whole chunks; a partial one at the end is cut off."""
        why = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        self.stop()
        self.failed = " ".join(why.split())
        with suppress(OSError):  # a reader accepts a partial chunk too
            os.ftruncate(self._file, self._bytes)
        log.warning("%s: recording stopped, the mount goes on: %s", self.path, self.failed)


def check(path: Path) -> None:
    """UsageError unless ``open_recording`` could make a trace there."""
    if not path.parent.is_dir():
        raise UsageError(f"--record {path}: there is no directory {path.parent}")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"--record {path}: use a regular file, under a name that is free")
    if found.st_size:
        raise UsageError(f"--record {path}: exists already; use another name, or remove it")


def open_recording(path: Path, device: Device) -> Recording:
    """Make the trace at ``path``, readable by its owner only, and begin to record. An existing file must be empty."""
    check(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)  # of an existing file too: a trace shows what a user writes, and when
        config = device.config()
        header = Header(
            VERSION, device.size, device.page_bytes, GRAIN_BYTES, time.time_ns(), UUID(config["uuid"]), device.ftl
        )
        return Recording(file, path, header)
    except BaseException:
        os.close(file)
        raise
