"""Many files: the requests of Filebench's personalities, under a file system that allocates space first fit.

A thread is a loop of operations on files; threads take turns, a request each. The data are the files' pages; the only
metadata are one page per directory, at the beginning of the span, which is written when a file in it is made or
deleted. There are no journals and no host cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import FLUSH, GRAIN, READ, TRIM, WRITE
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Parameter, Unreadable, count, flag, number, share, size, word
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import NO_SOURCE, Columns, Dice, Gammas, Program, Run, Space, requests_of

PIECE = 2048  #: requests that are handed on together
FULL = 0.7  #: of the span that files take at most
LARGEST = 16  #: times the mean: the largest file
TRIES = 8  #: to find a file that no thread is using
LOG_BYTES = 10 << 20
LOG_WRITE = 256 << 10  #: oltp: bytes of a write to the log
READS_A_LOG = 10  #: webserver: files read for each append to its log
SCALED = ("oltp", "compflow")  #: personalities whose files fill the span

Request = tuple[int, int, int]  #: operation, offset, length
Flow = Iterator[Request]


@dataclass(frozen=True)
class Personality:
    """Defaults of a personality; ``mean``, ``append`` and ``iosize`` are bytes."""

    files: int
    mean: int
    threads: int
    append: int
    iosize: int
    dirwidth: int


PERSONALITIES = {
    "fileserver": Personality(10_000, 128 << 10, 50, 16 << 10, 1 << 20, 20),
    "varmail": Personality(1_000, 16 << 10, 16, 16 << 10, 1 << 20, 1_000_000),
    "webserver": Personality(1_000, 16 << 10, 100, 16 << 10, 1 << 20, 20),
    "oltp": Personality(10, 0, 210, 0, 1 << 20, 1_000_000),
    "compflow": Personality(6, 0, 1, 0, 1 << 20, 1_000_000),
}
WRITERS = 10  #: oltp: of its threads


def _shape(text: str) -> float:
    value = number(text)
    if value * 2 != int(value * 2) or value > 64:
        raise Unreadable("0, 0.5, 1, 1.5 and so on")
    return value


class File:
    """A file and where it lies. ``users`` is the number of threads that are using it."""

    __slots__ = ("at", "number", "pages", "runs", "users")

    def __init__(self, number: int) -> None:
        self.number = number
        self.runs: list[Run] = []
        self.pages = 0
        self.users = 0
        self.at = -1  #: its place in the list of existing files


class Fileset(Program):
    name = "fileset"
    about = "files that are made, written, appended to, read and deleted: Filebench's personalities, without Filebench"
    parameters = (
        Parameter("personality", word(*PERSONALITIES), "fileserver", ", ".join(PERSONALITIES)),
        Parameter("files", count, None, "files; default: the personality's, or as many as fill 70 % of the span"),
        Parameter("mean", size, None,
                  "bytes of a file, on average; default: the personality's; oltp, compflow: what fits"),
        Parameter("gamma", _shape, 1.5, "shape of the sizes' Gamma distribution, in halves; 0: all alike"),
        Parameter("dirwidth", count, None, "files a directory; default: the personality's"),
        Parameter("threads", count, None, "default: the personality's; also the depth of the closed loop, unless qd="),
        Parameter("iosize", size, None, "bytes of a request at most; default: 1 MiB; oltp: a page"),
        Parameter("append", size, None, "bytes of an append; default: the personality's"),
        Parameter("prealloc", share, 0.8, "share of the files that are there at the beginning"),
        Parameter("make", flag, True, "1: those are written first; 0: the device has them"),
        Parameter("discard", flag, False, "1: a deleted file is trimmed"),
    )

    @classmethod
    def defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        known = PERSONALITIES[values["personality"]]
        names = ("threads", "append", "iosize", "dirwidth")
        return {name: getattr(known, name) if values[name] is None else values[name] for name in names}

    @classmethod
    def depth(cls, values: dict[str, Any]) -> int:
        return int(min(values["threads"], 65_536))

    def __init__(self, span: Span) -> None:
        values = span.values
        self._known = PERSONALITIES[values["personality"]]
        self._scaled = values["personality"] in SCALED
        self._append = max(1, -(-values["append"] // GRAIN))
        self._most = max(1, values["iosize"] // GRAIN)
        self._space = Space(span.bytes // GRAIN, self.name)
        self._count, self._mean = self._sizes(span)
        self._dirs = -(-self._count // values["dirwidth"])
        self._space.take(self._dirs)
        self._log = self._space.take(min(LOG_BYTES // GRAIN, max(1, self._space.free // 16)))[0]
        self._log_at = 0
        self._changed = 0  # oltp: bytes that are not in the log yet
        self._dice = Dice(values["seed"], _random.CHOICE)
        self._gammas = Gammas(0.0 if self._scaled else values["gamma"], values["seed"], _random.FILE_SIZE)
        self._files = [File(one) for one in range(self._count)]
        self._there: list[File] = []
        self._missing: list[File] = self._files[::-1]
        first = self._count if self._scaled else max(1, int(self._count * values["prealloc"]))
        for _ in range(first):
            self._appear(self._missing.pop(), self._space.take(self._size()))
        super().__init__(span)

    def _sizes(self, span: Span) -> tuple[int, float]:
        """(number of files, mean pages of a file). UsageError if they do not fit."""
        values, known = span.values, self._known
        pages = span.bytes // GRAIN
        room = pages * FULL
        if self._scaled:
            files = values["files"] or known.files
            mean = values["mean"] / GRAIN if values["mean"] else room / files
        else:
            mean = (values["mean"] or known.mean) / GRAIN
            files = values["files"] or max(1, min(known.files, int(room / (mean + 0.5))))
        if files * (mean + 0.5) > room + files or mean < 1:
            raise UsageError(
                f"fileset: {files:,} files of {int(mean * GRAIN):,} bytes in {span.bytes:,} bytes: use files that "
                f"take {FULL:.0%} of them at most, and a page or more each"
            )
        return files, mean

    # --- files

    def _size(self) -> int:
        """Pages of a new file."""
        return max(1, min(int(self._gammas.next() * self._mean + 0.999), int(LARGEST * self._mean)))

    def _appear(self, file: File, runs: list[Run]) -> None:
        """Add a file to the existing ones, so that other threads see it."""
        file.runs, file.pages = runs, _pages(runs)
        file.at = len(self._there)
        self._there.append(file)

    def _any(self) -> File:
        return self._there[self._dice.below(len(self._there))]

    def _idle(self) -> File | None:
        """A file that no thread is using; None if none is found in TRIES tries."""
        for _ in range(TRIES):
            if not (file := self._any()).users:
                return file
        return None

    # --- operations

    def _entry(self, op: int, file: File) -> Request:
        """A request on the page of a file's directory."""
        return op, file.number // self.span.values["dirwidth"] * GRAIN, GRAIN

    def _move(self, op: int, runs: list[Run]) -> Flow:
        for offset, length in requests_of(runs, 0, _pages(runs), self._most):
            yield op, offset, length

    def _create(self, pages: int) -> Flow:
        """Write a new file whole. If there is no room or no name for one, delete a file instead."""
        if not self._missing or self._space.free < pages:
            yield from self._delete()
            return
        file, runs = self._missing.pop(), self._space.take(pages)
        yield self._entry(WRITE, file)
        yield from self._move(WRITE, runs)
        self._appear(file, runs)

    def _grow(self) -> Flow:
        """Append to a file, whose size changes after the data are written. Without room, delete a file instead."""
        if self._space.free < self._append:
            yield from self._delete()
            return
        file, runs = self._any(), self._space.take(self._append)
        file.users += 1
        yield from self._move(WRITE, runs)
        file.users -= 1
        file.runs += runs
        file.pages += self._append

    def _read(self) -> Flow:
        file = self._any()
        file.users += 1
        yield from self._move(READ, list(file.runs))
        file.users -= 1

    def _delete(self) -> Flow:
        """Delete an idle file, if there is one; the last file stays, so that there is always something to read."""
        file = self._idle() if len(self._there) > 1 else None
        if file is None:
            return
        last = self._there.pop()
        if last is not file:
            self._there[file.at] = last
            last.at = file.at
        runs, file.runs, file.pages = file.runs, [], 0
        yield self._entry(WRITE, file)
        if self.span.values["discard"]:
            for first, pages in runs:
                yield TRIM, first * GRAIN, pages * GRAIN
        self._space.give(runs)  # after the trim: another thread may write there from now on
        self._missing.append(file)

    def _log_write(self, pages: int) -> Flow:
        """Append to the log, which wraps around in its place."""
        first, room = self._log
        pages = min(pages, room)
        if self._log_at + pages > room:
            self._log_at = 0
        yield WRITE, (first + self._log_at) * GRAIN, pages * GRAIN
        self._log_at += pages

    # --- threads

    def _fileserver(self) -> Flow:
        while True:
            yield from self._create(self._size())
            yield from self._grow()
            yield from self._read()
            yield from self._delete()
            yield self._entry(READ, self._any())

    def _varmail(self) -> Flow:
        flush = (FLUSH, 0, 0)
        while True:
            yield from self._delete()
            yield from self._create(self._append)
            yield flush
            yield from self._read()
            yield from self._grow()
            yield flush
            yield from self._read()

    def _webserver(self) -> Flow:
        while True:
            for _ in range(READS_A_LOG):
                yield from self._read()
            yield from self._log_write(self._append)

    def _row(self) -> int:
        """The offset of a random page of the tables."""
        file = self._any()
        (offset, _), = requests_of(file.runs, self._dice.below(file.pages), 1, 1)
        return offset

    def _oltp_read(self) -> Flow:
        while True:
            yield READ, self._row(), GRAIN

    def _oltp_write(self) -> Flow:
        """A row is part of a page, so the whole page is read and written. After each LOG_WRITE bytes of changes, one
        request writes to the log, then a flush follows."""
        while True:
            offset = self._row()
            yield READ, offset, GRAIN
            yield WRITE, offset, GRAIN
            self._changed += GRAIN
            if self._changed >= LOG_WRITE:
                self._changed = 0
                yield from self._log_write(LOG_WRITE // GRAIN)
                yield FLUSH, 0, 0

    def _compflow(self) -> Flow:
        """Phase i reads file i and writes file i + 1, a request each in turns; after the last file comes the first."""
        for at in cycle(range(self._count)):
            source, target = self._files[at], self._files[(at + 1) % self._count]
            reads, writes = self._move(READ, source.runs), self._move(WRITE, target.runs)
            for one in reads:
                yield one
                if (other := next(writes, None)) is not None:
                    yield other
            yield from writes

    def _threads(self) -> list[Flow]:
        threads = self.span.values["threads"]
        personality = self.span.values["personality"]
        if personality == "oltp":
            writers = max(1, min(WRITERS, threads // 2))
            return [self._oltp_write() if one < writers else self._oltp_read() for one in range(threads)]
        flows: dict[str, Callable[[], Flow]] = {
            "fileserver": self._fileserver, "varmail": self._varmail, "webserver": self._webserver,
            "compflow": self._compflow,
        }  # fmt: skip
        return [flows[personality]() for _ in range(threads)]

    def requests(self) -> Iterator[Columns]:
        held: list[Request] = []
        for one in self._all():
            held.append(one)
            if len(held) == PIECE:
                yield columns(held)
                held = []

    def _all(self) -> Flow:
        if self.span.values["make"]:
            for page in range(self._dirs):
                yield WRITE, page * GRAIN, GRAIN
            for file in list(self._there):
                yield from self._move(WRITE, file.runs)
        threads = self._threads()
        while True:
            for thread in threads:
                yield next(thread)


def _pages(runs: list[Run]) -> int:
    return sum(n for _, n in runs)


def columns(requests: list[Request]) -> Columns:
    op, offset, length = zip(*requests, strict=True)
    none = np.full(len(op), NO_SOURCE, np.int64)
    return np.array(op, np.uint8), np.array(offset, np.int64), np.array(length, np.int64), none
