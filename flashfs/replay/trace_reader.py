"""Reads traces that ``flashfs mount --record`` wrote. docs/trace-format.md describes the format.

    trace = read("mount.trace")
    for batch in trace:  # one for each chunk of the file: some thousand requests, as columns
        ...
    print(trace.ending)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

import numpy as np
import zstandard
from numpy.typing import NDArray

from flashfs.errors import FlashfsError
from flashfs.replay._record import OPERATIONS
from nandimg import checksum

MAGIC = b"FLASHTRC"
VERSION = 2  #: that is written
#: {version that can be read: how many operations it knows}; a later version knows those of all earlier ones
KNOWN = {1: OPERATIONS.index("copy") + 1, 2: len(OPERATIONS)}
GRAIN_BYTES = 4096  # of a hash

FILE_HEADER = struct.Struct("<8sIIQIIQ16s64sI")  # magic .. ftl, then 4 zero bytes; the checksum follows
FILE_HEADER_BYTES = FILE_HEADER.size + 4
CHUNK_HEADER = struct.Struct("<4sIIIIIQQI")  # the checksum follows
CHUNK_HEADER_BYTES = CHUNK_HEADER.size + 4
CHUNK_MAGIC = b"CHNK"
PLAIN, ZSTD, END = 0, 1, 2  # what a chunk's contents are
CHUNK_BYTES_MAX = 1 << 26  # of a chunk, unpacked: a reader may refuse a larger one

RECORD_BYTES = 21
HASHED = 0x80
WRITE, COPY = OPERATIONS.index("write"), OPERATIONS.index("copy")
REMAP, MOVE = OPERATIONS.index("remap"), OPERATIONS.index("move")  # like a copy, each has one word: its source
TAIL_BYTES = 1 << 16  # read at a time to see whether the rest of a file is zeros


class TraceError(FlashfsError):
    """The file is not a trace that this flashfs can read, or it is damaged; the message says where."""


@dataclass(frozen=True)
class Header:
    """The header of a trace. ``wall_ns`` is its time 0 in ns since 1970; sizes are in bytes."""

    version: int
    size: int
    page_bytes: int
    grain_bytes: int
    wall_ns: int
    uuid: UUID
    ftl: str

    def packed(self) -> bytes:
        head = FILE_HEADER.pack(
            MAGIC, self.version, FILE_HEADER_BYTES, self.size, self.page_bytes, self.grain_bytes, self.wall_ns,
            self.uuid.bytes, self.ftl.encode(), 0,
        )  # fmt: skip
        return head + struct.pack("<I", checksum(head))


class ChunkHeader(NamedTuple):
    """``before`` counts the requests before this chunk's first, both recorded and dropped ones."""

    magic: bytes
    records: int
    words: int
    unpacked_bytes: int
    stored_bytes: int
    stored_crc: int
    first_ns: int
    before: int
    kind: int

    def packed(self) -> bytes:
        head = CHUNK_HEADER.pack(*self)
        return head + struct.pack("<I", checksum(head))


@dataclass(frozen=True)
class Batch:
    """Requests in the order in which they came, a row each in the columns; ``hash_first`` has one entry more.

    ``op`` indexes OPERATIONS; ``offset`` and ``length`` are bytes. The hashes of request i are
    ``hashes[hash_first[i] : hash_first[i + 1]]``: one for each aligned 4 KiB that a write touches, of the bytes that it
    writes there (all 4 KiB, except at unaligned ends); none for a write that was recorded without hashes. A copy, a
    remap or a move has one word there, the byte offset of its source.
    """

    time_ns: NDArray[np.uint64]
    op: NDArray[np.uint8]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    hash_first: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.op)


class Trace:
    """A recorded trace. Each iteration reads the file from its beginning and yields a Batch per chunk; one is in memory
    at a time.

    After an iteration, ``ending`` is None if the recording was closed in order, else one line that says where it ends;
    ``records`` requests were read, ``dropped`` were noted and are not in the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.header = _read_header(path, file)
        self.ending: str | None = "not read to its end"
        self.records = 0
        self.dropped = 0
        self.end_ns = 0

    def __iter__(self) -> Iterator[Batch]:
        self.ending, self.records, self.dropped, self.end_ns = "not read to its end", 0, 0, 0
        with self.path.open("rb") as file:
            file.seek(FILE_HEADER_BYTES)
            for number in range(1 << 62):
                chunk = self._next(file, number)
                if chunk is None:
                    return
                head, stored = chunk
                self._account(head, number)
                if head.kind == END:
                    self.ending, self.end_ns = None, head.first_ns
                    if file.read(1):
                        raise self._damaged(number, "there is more after the end")
                    return
                batch = self._batch(head, _unpacked(head, stored), number)
                self.records += len(batch)
                self.end_ns = int(batch.time_ns[-1])
                yield batch

    def _next(self, file: BinaryIO, number: int) -> tuple[ChunkHeader, bytes] | None:
        """The next chunk as it is stored, checksums verified; None if the file ends early. TraceError if damaged."""
        at = file.tell()
        raw = file.read(CHUNK_HEADER_BYTES)
        if len(raw) < CHUNK_HEADER_BYTES:
            return self._break_off(at)
        head = ChunkHeader(*CHUNK_HEADER.unpack_from(raw))
        if head.magic != CHUNK_MAGIC or checksum(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            if not any(raw) and _only_zeros(file):
                return self._break_off(at)  # after a crash: the file was extended, its data not written
            raise self._damaged(number, f"no chunk header at byte {at}")
        stored = file.read(head.stored_bytes)
        if len(stored) < head.stored_bytes:
            return self._break_off(at)
        if checksum(stored) != head.stored_crc:
            if not any(stored) and _only_zeros(file):
                return self._break_off(at)
            raise self._damaged(number, f"its contents at byte {at + CHUNK_HEADER_BYTES} fail their checksum")
        return head, stored

    def _account(self, head: ChunkHeader, number: int) -> None:
        known = self.records + self.dropped
        if head.before < known:
            raise self._damaged(number, f"it begins after {head.before} requests, and {known} came before")
        self.dropped += head.before - known

    def _batch(self, head: ChunkHeader, raw: bytes | None, number: int) -> Batch:
        n = head.records
        if n == 0 or raw is None or len(raw) != n * RECORD_BYTES + head.words * 8:
            raise self._damaged(number, "its contents are not of the length that its header says")
        gaps = _from_planes(raw, 0, n, "<u4")
        code = np.frombuffer(raw, np.uint8, n, 4 * n)
        offset, length = _from_planes(raw, 5 * n, n, "<u8"), _from_planes(raw, 13 * n, n, "<u8")
        op = code & np.uint8(0x7F)
        hashed = code >= HASHED
        if op.max() >= KNOWN[self.header.version]:
            what = f"it has an operation {op.max()}, which version {self.header.version} does not know"
            raise self._damaged(number, what)
        size = np.uint64(self.header.size)
        if (length > size).any() or (offset > size - length).any() or (hashed & (op != WRITE)).any():
            raise self._damaged(number, "it has a request that this device cannot have had")
        grain = np.uint64(GRAIN_BYTES)
        touched = np.where(length > 0, (offset + length - np.uint64(1)) // grain - offset // grain + np.uint64(1), 0)
        hash_first = np.zeros(n + 1, np.int64)
        np.cumsum(np.where(hashed, touched, op >= COPY), out=hash_first[1:])
        if hash_first[-1] != head.words:
            raise self._damaged(number, f"it has {head.words} hashes for {hash_first[-1]} pieces of 4 KiB")
        words = np.frombuffer(raw, "<u8", head.words, n * RECORD_BYTES)
        source = words[hash_first[:-1][op >= REMAP]]
        if (source > size - length[op >= REMAP]).any():
            raise self._damaged(number, "it has a remap that this device cannot have had")
        return Batch(
            np.uint64(head.first_ns) + np.cumsum(gaps, dtype=np.uint64), op, offset, length, hash_first,
            words,
        )  # fmt: skip

    def _break_off(self, at: int) -> tuple[ChunkHeader, bytes] | None:
        """Note that the file ends early, at byte ``at``; the None that ``_next`` returns then."""
        self.ending = f"ends after {self.records:,} requests, at byte {at}: the mount was not unmounted"
        return None

    def _damaged(self, number: int, what: str) -> TraceError:
        return TraceError(f"{self.path}: damaged: chunk {number}: {what}")


def read(path: str | Path) -> Trace:
    """The trace at ``path``, its header read and checked. OSError if it cannot be opened, TraceError if it is none."""
    return Trace(Path(path))


def summary(path: str | Path) -> dict[str, Any]:
    """The contents of a trace in figures, for people and for --json: reads all of it."""
    trace = read(path)
    requests, moved = np.zeros(len(OPERATIONS), np.int64), np.zeros(len(OPERATIONS), np.int64)
    hashes = 0
    for batch in trace:
        for op in np.unique(batch.op):
            mine = batch.op == op
            requests[op] += np.count_nonzero(mine)
            moved[op] += int(batch.length[mine].sum())
        hashes += len(batch.hashes) - int(np.count_nonzero(batch.op >= COPY))
    header = trace.header
    return {
        "trace": str(path),
        "version": header.version,
        "ftl": header.ftl,
        "uuid": str(header.uuid),
        "size": header.size,
        "page_bytes": header.page_bytes,
        "started_ns": header.wall_ns,
        "seconds": round(trace.end_ns / 1e9, 3),
        "requests": trace.records,
        "dropped": trace.dropped,
        "hashes": hashes,
        "ending": trace.ending,
        "by_operation": [
            {"operation": name, "requests": int(requests[op]), "bytes": int(moved[op])}
            for op, name in enumerate(OPERATIONS)
            if requests[op]
        ],
    }


def _read_header(path: Path, file: BinaryIO) -> Header:
    raw = file.read(FILE_HEADER_BYTES)
    if raw[:8] != MAGIC:
        raise TraceError(f"{path}: no recorded trace: it does not begin with {MAGIC.decode()}")
    if len(raw) < FILE_HEADER_BYTES:
        raise TraceError(f"{path}: cut off within its header: {len(raw)} of {FILE_HEADER_BYTES} bytes are there")
    _, version, header_bytes, size, page_bytes, grain, wall_ns, uuid, ftl, _ = FILE_HEADER.unpack_from(raw)
    if version not in KNOWN:
        raise TraceError(f"{path}: a trace of version {version}: this flashfs reads versions 1 to {VERSION}")
    if checksum(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise TraceError(f"{path}: damaged: its header fails its checksum")
    if header_bytes != FILE_HEADER_BYTES or grain != GRAIN_BYTES or size >= 1 << 63:
        what = f"a header of {header_bytes} bytes, hashes of {grain}, a device of {size}"
        raise TraceError(f"{path}: {what}: that is not version {version}")
    try:
        name = ftl.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise TraceError(f"{path}: damaged: the FTL's name is no UTF-8") from None
    return Header(version, size, page_bytes, grain, wall_ns, UUID(bytes=uuid), name)


def _unpacked(head: ChunkHeader, stored: bytes) -> bytes | None:
    """The contents of a chunk, or None if they do not unpack to what its header says."""
    if head.unpacked_bytes > CHUNK_BYTES_MAX:
        return None
    if head.kind == PLAIN:
        return stored if len(stored) == head.unpacked_bytes else None
    if head.kind != ZSTD:
        return None
    try:
        unpacked = zstandard.ZstdDecompressor().decompress(stored, max_output_size=head.unpacked_bytes)
    except zstandard.ZstdError:
        return None
    return unpacked if len(unpacked) == head.unpacked_bytes else None


def _from_planes(raw: bytes, at: int, n: int, kind: str) -> NDArray[Any]:
    """A column of ``n`` numbers that is stored as all lowest bytes, then all second bytes, and so on."""
    width = np.dtype(kind).itemsize
    return np.frombuffer(raw, np.uint8, n * width, at).reshape(width, n).T.copy().view(kind).reshape(n)


def _only_zeros(file: BinaryIO) -> bool:
    """Whether only zeros follow."""
    while some := file.read(TAIL_BYTES):
        if any(some):
            return False
    return True
