"""Workloads that are programs: the requests of a file system or a database, with their operations and lengths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import GRAIN, Int64s, UInt8s
from flashfs.replay.workloads._grammar import SHARED
from flashfs.replay.workloads._patterns import Kind, Span
from flashfs.replay.workloads._random import Doubles, Stream, ln

OPS = 100_000  #: default number of requests
REFILL = 4096  #: numbers drawn together

#: operations, offsets, lengths and sources; the last three in bytes; a flush has no length
Columns = tuple[UInt8s, Int64s, Int64s, Int64s]
NO_SOURCE = -1  #: the source of a request that is neither a remap nor a write of data read elsewhere
Run = tuple[int, int]  #: (the first page, how many)


class Program(Kind):
    """One pass over a program: ``requests`` yields pieces of any length forever; ``take`` cuts them."""

    shared = SHARED
    sources: ClassVar[bool] = False  #: whether it remaps, or writes data that it has read elsewhere
    moves = False  #: whether its remaps are moves, which empty their source

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self._pieces = self.requests()
        self._held: list[Columns] = []

    @abstractmethod
    def requests(self) -> Iterator[Columns]: ...

    @classmethod
    def default_ops(cls, span: Span) -> int:
        return OPS

    @classmethod
    def defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Values of keys that follow from other keys, unless they were given."""
        return {}

    @classmethod
    def depth(cls, values: dict[str, Any]) -> int:
        """The default depth of the closed loop."""
        return 1

    @property
    def pages(self) -> int:
        """Pages of 4 KiB in the span."""
        return self.span.bytes // GRAIN

    def take(self, n: int) -> Columns:
        """The next ``n`` requests."""
        have = sum(len(op) for op, *_ in self._held)
        while have < n:
            self._held.append(next(self._pieces))
            have += len(self._held[-1][0])
        op, offset, length, source = joined(self._held)
        self._held = [(op[n:], offset[n:], length[n:], source[n:])]
        return op[:n].copy(), offset[:n].copy(), length[:n].copy(), source[:n].copy()


def rows(op: int, offset: Int64s, length: Int64s, source: Int64s | None = None) -> Columns:
    """Requests of one operation as Columns; there may be none."""
    kinds = np.full(len(offset), op, np.uint8)
    return kinds, offset, length, np.full(len(offset), NO_SOURCE, np.int64) if source is None else source


def joined(parts: list[Columns]) -> Columns:
    """The parts in a row."""
    op, offset, length, source = (np.concatenate(column) for column in zip(*parts, strict=True))
    return op, offset, length, source


class Space:
    """Free pages of a span, allocated first fit."""

    def __init__(self, pages: int, name: str) -> None:
        self._name = name
        self._first, self._size = np.zeros(256, np.int64), np.zeros(256, np.int64)
        self._n = 1
        self._size[0] = pages
        self.free = pages

    def take(self, pages: int) -> list[Run]:
        """Allocate ``pages``: from the first run that is long enough, else in pieces from the lowest free page on.
        UsageError if too few are free."""
        if pages > self.free:
            raise UsageError(f"{self._name}: {pages} pages of 4 KiB, {self.free} are free: use fewer or smaller files")
        self.free -= pages
        fits = self._size[: self._n] >= pages
        at = int(fits.argmax())
        if fits[at]:
            return [self._cut(at, pages)]
        out: list[Run] = []
        while pages:
            out.append(self._cut(0, min(pages, int(self._size[0]))))
            pages -= out[-1][1]
        return out

    def _cut(self, at: int, pages: int) -> Run:
        first = int(self._first[at])
        if self._size[at] == pages:
            self._first[at : self._n - 1] = self._first[at + 1 : self._n]
            self._size[at : self._n - 1] = self._size[at + 1 : self._n]
            self._n -= 1
        else:
            self._first[at] += pages
            self._size[at] -= pages
        return first, pages

    def give(self, runs: list[Run]) -> None:
        for first, pages in runs:
            self._give(first, pages)

    def _give(self, first: int, pages: int) -> None:
        self.free += pages
        at = int(np.searchsorted(self._first[: self._n], first))
        before = at > 0 and int(self._first[at - 1] + self._size[at - 1]) == first
        behind = at < self._n and int(self._first[at]) == first + pages
        if before and behind:
            _, grown = self._cut(at, int(self._size[at]))
            self._size[at - 1] += pages + grown
        elif before:
            self._size[at - 1] += pages
        elif behind:
            self._first[at] = first
            self._size[at] += pages
        else:
            self._insert(at, first, pages)

    def _insert(self, at: int, first: int, pages: int) -> None:
        if self._n == len(self._first):
            self._first, self._size = (np.concatenate((one, np.zeros_like(one))) for one in (self._first, self._size))
        for column, value in ((self._first, first), (self._size, pages)):
            column[at + 1 : self._n + 1] = column[at : self._n].copy()
            column[at] = value
        self._n += 1

    def runs(self) -> list[Run]:
        """The free runs, in order."""
        return list(zip(self._first[: self._n].tolist(), self._size[: self._n].tolist(), strict=True))


class Dice:
    """A stream's numbers one at a time; they are drawn REFILL at a time."""

    def __init__(self, seed: int, column: int) -> None:
        self._stream = Stream(seed, column)
        self._left: list[float] = []

    def unit(self) -> float:
        if not self._left:
            self._left = self._stream.unit(REFILL).tolist()
        return self._left.pop()

    def below(self, limit: int) -> int:
        return int(self.unit() * limit)


class Gammas:
    """Numbers with a Gamma distribution of mean 1, or all 1 for shape 0. The shape is a multiple of 1/2: a sum of
    exponentials, plus half the square of a normal (Marsaglia's polar method) for a half. This needs only logarithms and
    quotients."""

    def __init__(self, shape: float, seed: int, column: int) -> None:
        self._whole, self._half = divmod(round(2 * shape), 2)
        self._shape = shape
        self._stream = Stream(seed, column)
        self._left: list[float] = []

    def next(self) -> float:
        if not self._shape:
            return 1.0
        if not self._left:
            self._left = self._draw().tolist()
        return self._left.pop()

    def _draw(self) -> Doubles:
        out = np.zeros(REFILL)
        for _ in range(self._whole):
            out -= ln(1.0 - self._stream.unit(REFILL))
        if self._half:
            out += self._half_squares()
        return out / self._shape

    def _half_squares(self) -> Doubles:
        """Half the squares of normal numbers: u^2 (-ln s) / s with (u, v) in the unit circle and s = u^2 + v^2."""
        parts: list[Doubles] = []
        while sum(map(len, parts)) < REFILL:
            u, v = 2.0 * self._stream.unit(REFILL) - 1.0, 2.0 * self._stream.unit(REFILL) - 1.0
            s = u * u + v * v
            inside = (s > 0.0) & (s < 1.0)
            u, s = u[inside], s[inside]
            parts.append(u * u * -ln(s) / s)
        return np.concatenate(parts)[:REFILL]


def cut(runs: list[Run], first: int, pages: int) -> Iterator[Run]:
    """The runs that hold ``pages`` pages of a file from its page ``first`` on."""
    for at, size in runs:
        if first >= size:
            first -= size
            continue
        n = min(size - first, pages)
        if n <= 0:
            return
        yield at + first, n
        pages -= n
        first = 0


def requests_of(runs: list[Run], first: int, pages: int, most: int) -> Iterator[tuple[int, int]]:
    """(offset, length) in bytes of requests of at most ``most`` pages for ``pages`` pages of a file."""
    for at, size in cut(runs, first, pages):
        for low, high in pairwise([*range(0, size, most), size]):
            yield (at + low) * GRAIN, (high - low) * GRAIN
