"""The interface of trace formats: how a sample is recognised, and how content becomes columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from flashfs.replay.request_source import FLUSH, REMAP, TRIM, Hashes, Int64s, Tally, UInt8s, UInt64s, starts
from flashfs.replay.traces._content import Content
from flashfs.replay.traces._evidence import Reading

SECTOR = 512
REQUEST_BYTES_MAX = 1 << 30  #: no block layer sends a longer read or write, so a larger length is noise
NOT_A_REQUEST, UNKNOWN_OP = 254, 255  #: in a column of operations, before such lines are removed

MANGLED, FEW_COLUMNS = "no text", "too few columns"
NO_NUMBER, TOO_LARGE, NO_OP = "{} is no number", "{} is beyond 64 bits", "unknown operation"
NEGATIVE_OFFSET, NEGATIVE_LENGTH, EMPTY = "negative offset", "negative length", "empty request"
TOO_LONG, TOO_FAR = "longer than 1 GiB", "ends beyond 2^63 bytes"
BLANK_LINES, COMMENTS = "blank lines", "comments"  #: skipped
CUT_RECORD, CUT_STREAM = "cut short", "the file ends early"


@dataclass(slots=True)
class Lot:
    """Requests of a piece of a trace, as the file has them; all columns have the same length."""

    line: Int64s  #: the line of each, from 1
    time: Int64s  #: in the format's ticks, from any beginning
    op: UInt8s  #: READ, WRITE, TRIM, FLUSH or REMAP
    offset: Int64s  #: bytes
    length: Int64s  #: bytes
    hash: UInt64s | None = None  #: of each request's content; 0: unknown
    hashes: Hashes | None = None  #: or of each 4 KiB of the content
    unit: Int64s | None = None  #: the number of the disk, file or volume, in the order of their first requests; None: 0
    source: Int64s | None = None  #: bytes: the addresses that remaps share; None: there are no remaps
    moved: npt.NDArray[np.bool_] | None = None  #: with ``source``: which remaps are moves, which empty their source

    def take(self, which: np.ndarray) -> Lot:
        """The requests for which ``which``, an array of bool, is true."""
        return self if which.all() else self.pick(np.flatnonzero(which))

    def pick(self, at: np.ndarray) -> Lot:
        """The requests at these indices, in this order."""
        hashes = None
        if self.hashes is not None:
            begin, lengths = self.hashes.start[at], np.diff(self.hashes.start)[at]
            start = starts(lengths)
            within = np.arange(start[-1]) - np.repeat(start[:-1], lengths)
            hashes = Hashes(start, self.hashes.grain[np.repeat(begin, lengths) + within])
        one = None if self.hash is None else self.hash[at]
        unit = None if self.unit is None else self.unit[at]
        line, time, op = self.line[at], self.time[at], self.op[at]
        source = None if self.source is None else self.source[at]
        moved = None if self.moved is None else self.moved[at]
        return Lot(line, time, op, self.offset[at], self.length[at], one, hashes, unit, source, moved)

    @staticmethod
    def join(lots: Sequence[Lot]) -> Lot:
        """One lot from at least one lot of a trace; either all have ``hashes`` or none has."""

        def column(name: str) -> Any:
            """The column of all lots, 0 for those that lack it; None if all lack it."""
            parts = [getattr(lot, name) for lot in lots]
            kinds = [part.dtype for part in parts if part is not None]
            if not kinds:
                return None
            sizes = [len(lot.op) for lot in lots]
            return np.concatenate([
                np.zeros(n, kinds[0]) if part is None else part for n, part in zip(sizes, parts, strict=True)
            ])  # fmt: skip

        hashes = None
        if known := [lot.hashes for lot in lots if lot.hashes is not None]:
            lengths = np.concatenate([np.diff(one.start) for one in known])
            hashes = Hashes(starts(lengths), np.concatenate([one.grain for one in known]))
        named = {one.name: column(one.name) for one in fields(Lot) if one.name != "hashes"}
        return Lot(**named, hashes=hashes)


@dataclass(slots=True)
class Telling:
    """Collects what a format rejects, adjusts and skips during one pass, and its units."""

    rejected: Tally = field(default_factory=Tally)
    adjusted: Tally = field(default_factory=Tally)
    skipped: dict[str, int] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)  #: requests by unit, in the order of their first requests

    def skip(self, what: str, count: int) -> None:
        if count:
            self.skipped[what] = self.skipped.get(what, 0) + count

    def clear(self) -> None:
        self.rejected.clear()
        self.adjusted.clear()
        self.skipped.clear()
        self.units.clear()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which requests of a trace are wanted."""

    unit: str | None = None  #: only requests of this disk, file or volume, as the trace writes it
    event: str = "D"  #: the stage of a request in a blktrace that counts


class Format(ABC):
    """One trace format. ``head`` is the first 64 KiB of the content. An object serves one pass at a time."""

    name: ClassVar[str]
    title: ClassVar[str]
    tick_ns: ClassVar[int] = 1
    aliases: ClassVar[tuple[str, ...]] = ()
    unit_is: ClassVar[str] = ""  #: what a unit is in this format; empty: it has none

    stages: ClassVar[bool] = False  #: whether a request has a line for each stage
    units_in_doubt: ClassVar[bool] = False  #: whether files of the same form may use other units

    def fresh(self) -> Format:
        """Another object of this format, for a pass of its own."""
        return type(self)()

    @abstractmethod
    def likeness(self, head: bytes) -> float:
        """The share of ``head`` that can be read as this format, 0 to 1."""

    def judge(self, head: bytes) -> Reading:
        """How well ``head`` fits this format, including its numbers, and why."""
        share = self.likeness(head)
        return Reading(f"--format {self.name}", share, f"{share:.0%} of the sample is of its form", self, share)

    @abstractmethod
    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        """One pass over the content."""

    def made_for(self, path: Path) -> tuple[int, int] | None:
        """(bytes, bytes of a page) of the device that was traced, if the trace says so."""
        return None

    def timed(self, head: bytes) -> bool:
        """False if the trace has only an order and no times."""
        return True


def sound(lot: Lot, told: Tally, texts: Callable[[int], str | bytes]) -> Lot:
    """The lot without requests whose numbers are implausible; those are added to the Tally."""
    flush = lot.op == FLUSH
    whole = flush | (
        (lot.offset >= 0) & (lot.length > 0) & (lot.length <= REQUEST_BYTES_MAX)
        & (lot.offset <= np.iinfo(np.int64).max - REQUEST_BYTES_MAX)
    )  # fmt: skip
    if whole.all():
        return lot
    trim = (lot.op == TRIM) | (lot.op == REMAP)  # these may have any length
    far = lot.offset > np.iinfo(np.int64).max - np.maximum(lot.length, 0)
    left = ~flush
    for reason, where in (
        (NEGATIVE_OFFSET, lot.offset < 0),
        (NEGATIVE_LENGTH, lot.length < 0),
        (EMPTY, lot.length == 0),
        (TOO_LONG, (lot.length > REQUEST_BYTES_MAX) & ~trim),
        (TOO_FAR, far),
    ):
        hit = np.flatnonzero(left & where)
        if len(hit):
            line = int(lot.line[hit[0]])
            told.add(reason, line, texts(line), len(hit))
            left[hit] = False
    return lot.take(left | flush)


class Texts:
    """The lines of a chunk by number; the chunk is split only when a line is asked for."""

    def __init__(self, chunk: bytes, first_line: int) -> None:
        self._chunk = chunk
        self.first = first_line
        self._lines: list[bytes] | None = None

    def __call__(self, line: int) -> bytes:
        if self._lines is None:
            self._lines = self._chunk.split(b"\n")
        return self._lines[line - self.first]
