"""A database with a write-ahead log, like SQLite in WAL mode, on its own disk: commits append page images to the log,
and regularly a checkpoint brings the newest image of each page to its place in the database.

Frame headers are in separate pages, so that page images are whole pages of the disk and a checkpoint can remap them
(Remap-SSD, FAST'21, section 4.3). All requests up to and including a checkpoint are made together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import FLUSH, GRAIN, READ, REMAP, WRITE, Int64s
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Parameter, count, flag, size, word
from flashfs.replay.workloads._lsm import dist
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import Columns, Program, joined, rows
from flashfs.replay.workloads._random import Shuffle, Stream, zipf


class Wal(Program):
    name = "wal"
    sources = True
    about = "a database with a write-ahead log: commits, and checkpoints that remap or copy; as SQLite's"
    parameters = (
        Parameter("frames", count, 4, "pages of 4 KiB that a commit writes"),
        Parameter("run", count, None, "how many of them are neighbours: the pages of a value; default: all"),
        Parameter("checkpoint", count, 1000, "frames in the log after which it is brought to the database"),
        Parameter("headers", count, 170, "frame headers that a page holds; they lie apart from the frames"),
        Parameter("remap", flag, True, "1: a checkpoint remaps the pages; 0: it reads and writes them"),
        Parameter("sync", word("commit", "checkpoint"), "commit", "when to flush: at each commit, or at checkpoints"),
        Parameter("order", word("random", "seq"), "random", "of what is changed: by dist, or one after the other"),
        Parameter("dist", dist, 0.0, "which values: uniform, or zipf:0.99, scattered"),
        Parameter("loaded", flag, False, "1: the database's pages are written first"),
        Parameter("iosize", size, 1 << 20, "bytes of a request that does that"),
    )

    def __init__(self, span: Span) -> None:
        values = span.values
        self._frames: int = values["frames"]
        self._run: int = values["run"] or self._frames
        if self._frames % self._run:
            raise UsageError(f"wal: run={self._run} and frames={self._frames}: use a divisor of the frames")
        self._commits = -(-values["checkpoint"] // self._frames)
        self._in_log = self._commits * self._frames
        heads = -(-self._in_log // values["headers"])
        pages = span.bytes // GRAIN
        self._log, self._database = heads, heads + self._in_log  # first pages; those of the headers come before
        self._values = (pages - self._database) // self._run
        if self._values < 1:
            raise UsageError(
                f"wal: a log of {self._in_log} frames and {heads} pages of headers in {pages} pages of 4 KiB: use "
                "fewer frames per checkpoint"
            )
        seed = values["seed"]
        self._which, self._within = Stream(seed, _random.PLACE), Stream(seed, _random.WITHIN)
        self._zipf = zipf(self._values, values["dist"]) if values["dist"] else None
        self._shuffle = Shuffle(self._values, seed)
        self._put = 0  # with order=seq: the next value
        super().__init__(span)

    def requests(self) -> Iterator[Columns]:
        if self.span.values["loaded"]:
            yield self._load()
        commits = self._commit_rows()
        while True:
            yield joined([commits, self._checkpoint(self._drawn())])

    def _load(self) -> Columns:
        most = max(1, self.span.values["iosize"] // GRAIN)
        pages = self._values * self._run
        first = np.arange(0, pages, most, dtype=np.int64)
        return rows(WRITE, (self._database + first) * GRAIN, np.minimum(most, pages - first) * GRAIN)

    def _commit_rows(self) -> Columns:
        """The requests of the commits between two checkpoints: always the same, as only the frames' contents differ."""
        heads = self.span.values["headers"]
        first = np.arange(self._commits, dtype=np.int64) * self._frames
        frames = rows(WRITE, (self._log + first) * GRAIN, np.full(self._commits, self._frames * GRAIN))
        head = first // heads
        if self.span.values["sync"] == "commit":
            last = (first + self._frames - 1) // heads
            headers = rows(WRITE, head * GRAIN, (last - head + 1) * GRAIN)
            none = np.zeros(self._commits, np.int64)
            return woven([frames, headers, rows(FLUSH, none, none)])
        full = (first + self._frames) // heads - head  # pages of headers that this commit fills
        headers = rows(WRITE, head * GRAIN, full * GRAIN)
        every = woven([frames, headers])
        some = every[2] > 0
        every = every[0][some], every[1][some], every[2][some], every[3][some]
        left = self._in_log // heads
        if self._in_log % heads == 0:
            return every
        rest = rows(WRITE, np.array([left * GRAIN]), np.array([GRAIN]))
        return joined([every, rest])

    def _drawn(self) -> Int64s:
        """For each frame, the page of the database of which it is an image."""
        n = self._in_log // self._run
        if self.span.values["order"] == "seq":
            chosen = (self._put + np.arange(n, dtype=np.int64)) % self._values
            self._put = (self._put + n) % self._values
        elif self._zipf is None:
            chosen = self._which.below(self._values, n)
        else:
            chosen = self._shuffle(self._zipf.draw(self._which, self._within, n))
        each: Int64s = (chosen[:, None] * self._run + np.arange(self._run)).ravel()
        return each

    def _checkpoint(self, pages: Int64s) -> Columns:
        """Bring the newest image of each page to the database, in the order of its pages, with a flush before (of the
        log) and after (of the database)."""
        distinct, back = np.unique(pages[::-1], return_index=True)
        target = (self._database + distinct) * GRAIN
        source = (self._log + len(pages) - 1 - back) * GRAIN
        length = np.full(len(target), GRAIN, np.int64)
        none = np.zeros(1, np.int64)
        flush = rows(FLUSH, none, none)
        if self.span.values["remap"]:
            return joined([flush, rows(REMAP, target, length, source), flush])
        return joined([flush, woven([rows(READ, source, length), rows(WRITE, target, length, source)]), flush])


def woven(parts: list[Columns]) -> Columns:
    """The parts, which have equal lengths, interleaved: one request of each in turn."""
    op, offset, length, source = (np.stack(column, axis=1).ravel() for column in zip(*parts, strict=True))
    return op, offset, length, source
