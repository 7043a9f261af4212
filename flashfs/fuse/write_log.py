"""A tape: what changed a mounted device, request by request, with contents, and the marks that were set meanwhile.

A mount makes it (``daemon.Request.tape``), and shows a file `mark` then: each line that is written to it is a mark, and
is on the tape when the write returns. The program that made a tape reads it; the format may change: a record is a head
(three u64: offset, length, source; two u32: operation, bytes of data) and its data.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse._write_log import MARK, TapeWriter
from flashfs.replay._record import OPERATIONS

HEAD = struct.Struct("<QQQII")
MARK_BYTES = 4096  #: of one mark, at most


@dataclass(frozen=True, slots=True)
class Taped:
    """A record. ``at`` is the byte of the tape that it begins at; ``operation`` one of the trace's, or "mark"."""

    at: int
    operation: str
    offset: int
    length: int
    source: int
    data: memoryview


class Tape(TapeWriter):
    """A tape being written. Servers note each request in it; the caller that opened it closes it."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        super().__init__(size_bytes, self._file)

    def mark(self, data: bytes) -> None:
        """Put the data of one write to the file `mark` on the tape, one mark per line. OSError (EINVAL) for an empty
        line, or one of more than MARK_BYTES."""
        words = data.removesuffix(b"\n").split(b"\n")
        if any(not word.strip() or len(word) > MARK_BYTES for word in words):
            raise OSError(errno.EINVAL, f"a mark is a line of 1 to {MARK_BYTES} bytes")
        for word in words:
            self.note_mark(word)

    def figures(self) -> dict[str, Any]:
        """For stats.json, as a recording's."""
        failed = os.strerror(self.error_number) if self.error_number else None
        return {"requests": self.noted - self.lost, "dropped": self.lost, "bytes": self.written, "failed": failed}

    def close(self) -> None:
        os.close(self._file)


def check(path: Path) -> None:
    """UsageError unless a tape could be made there."""
    if path.exists() or not path.parent.is_dir():
        raise UsageError(f"tape {path}: use a name that is free, in a folder that is there")


def read(path: Path) -> Iterator[Taped]:
    """What is on a tape, from its beginning; FlashfsError if it is no tape. A last record that is not whole is left
    out."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file:  # its mapping lives as long as a record does
        tape = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    at = 0
    while at + HEAD.size <= len(tape):
        offset, length, source, operation, data_bytes = HEAD.unpack_from(tape, at)
        data_at = at + HEAD.size
        if operation != MARK and operation >= len(OPERATIONS):
            raise FlashfsError(f"{path}: byte {at}: operation {operation} is none of a tape's")
        if data_at + data_bytes > len(tape):
            return
        name = "mark" if operation == MARK else OPERATIONS[operation]
        yield Taped(at, name, offset, length, source, tape[data_at : data_at + data_bytes])
        at = data_at + data_bytes
