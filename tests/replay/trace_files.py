"""Trace files for tests: our own, with the same requests in every format, and other people's where there are any."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, Batch, Source

DATA = Path(__file__).parent / "data"
MS = 1_000_000

#: (milliseconds, operation, offset, length) of the requests in each file of DATA
REQUESTS = [
    (0, WRITE, 0, 4096), (1, WRITE, 4096, 16384), (2, READ, 8192, 4096), (2, WRITE, 1 << 20, 65536),
    (5, READ, 0, 8192), (8, WRITE, 0, 4096), (10, WRITE, 409600, 12288), (12, READ, 1 << 20, 32768),
    (13, WRITE, 4096, 4096), (17, WRITE, 8192, 4096), (21, READ, 409600, 4096), (34, WRITE, 2 << 20, 24576),
]  # fmt: skip
THEN_TRIM = (35, TRIM, 4096, 20480)  #: in formats that have trims
THEN_FLUSH = (36, FLUSH, 0, 0)  #: in formats that have flushes

#: file: (format, what it has after REQUESTS)
FILES = {
    "msr.csv": ("msr", []),
    "spc.csv": ("spc", []),
    "fiu.txt": ("fiu", []),
    "blkparse.txt": ("blkparse", [THEN_TRIM, THEN_FLUSH]),
    "ftrace.txt": ("ftrace", [THEN_TRIM, THEN_FLUSH]),
    "biosnoop.txt": ("biosnoop", [THEN_TRIM, THEN_FLUSH]),
    "fio2.log": ("fio2", [THEN_TRIM, THEN_FLUSH]),
    "fio3.log": ("fio3", [THEN_TRIM, THEN_FLUSH]),
    "disksim.ascii": ("disksim", []),
    "pages.ascii": ("ascii-pages", []),
    "mqsim.trace": ("mqsim", []),
    "mqsim_bytes.trace": ("mqsim-bytes", []),
    "biotracer.txt": ("biotracer", []),
    "wiscsee.txt": ("wiscsee", [THEN_TRIM]),
    "v1.vscsi": ("vscsi1", [THEN_FLUSH]),
    "v2.vscsi": ("vscsi2", [THEN_FLUSH]),
}

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda content: zstandard.ZstdCompressor(write_checksum=True).compress(content),
}


def shared() -> Path | None:
    """Where real traces are, which are not ours to pass on: $FLASHFS_TRACES, or a folder `shared/traces` beside us."""
    given = os.environ.get("FLASHFS_TRACES")
    folder = Path(given) if given else Path(__file__).parents[3] / "shared" / "traces"
    return folder if (folder / "README.md").is_file() else None


def whole(source: Source, size: int = 65_536) -> Batch:
    """All requests of one pass, as one batch."""
    batches = list(source.batches(size))
    assert all(len(batch) == size for batch in batches[:-1])
    return Batch.join(batches)


def rows(batch: Batch) -> list[tuple[int, int, int, int]]:
    """(nanoseconds, operation, offset, length) of each request."""
    columns = (batch.time_ns, batch.op, batch.offset, batch.length)
    assert [column.dtype for column in columns] == [np.int64, np.uint8, np.uint64, np.uint64]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def in_ns(requests: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    return [(ms * MS, op, offset, length) for ms, op, offset, length in requests]
