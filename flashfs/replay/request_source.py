"""Where requests come from: a trace or a workload, as batches of columns.

``open_source`` in flashfs.replay.open_source makes one from the text that a user gives. Everything here is in bytes and
nanoseconds; the player turns bytes into pages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flashfs.errors import FlashfsError

READ, WRITE, TRIM, FLUSH, REMAP = range(5)
OPERATIONS = ("read", "write", "trim", "flush", "remap")  #: by their number in ``Batch.op``
MOVED = np.uint64(1 << 63)  #: in ``Batch.source``: the source of that remap holds nothing afterwards
BATCH = 65_536
GRAIN = 4096  #: bytes that a content hash covers
SHOWN_CHARACTERS = 80  #: of a line in a complaint

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
UInt8s = npt.NDArray[np.uint8]


class TraceError(FlashfsError):
    """A trace that cannot be read at all, or whose bytes are damaged."""


class Hashes(NamedTuple):
    """The contents of requests: a number for each aligned 4 KiB that a request touches; equal numbers mean equal bytes.
    Those of request i are ``grain[start[i] : start[i + 1]]``, none if its content is unknown (trims, most reads)."""

    start: Int64s  #: one entry more than there are requests; the first is 0
    grain: UInt64s


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in the order in which the host sent them; every column has the same length."""

    time_ns: Int64s  #: since the first request of the source; never falls
    op: UInt8s  #: READ, WRITE, TRIM, FLUSH or REMAP
    offset: UInt64s  #: bytes; 0 for a flush
    length: UInt64s  #: bytes, above 0; 0 for a flush
    hashes: Hashes | None = None
    source: UInt64s | None = None  #: bytes: the address that a remap shares, MOVED added for a move; None: no remaps

    def __len__(self) -> int:
        return len(self.op)

    def slice(self, first: int, last: int) -> Batch:
        """Requests ``first`` to before ``last``, as views."""
        hashes = None
        if self.hashes is not None:
            start = self.hashes.start[first : last + 1]
            hashes = Hashes(start - start[0], self.hashes.grain[start[0] : start[-1]])
        cut = slice(first, last)
        source = None if self.source is None else self.source[cut]
        return Batch(self.time_ns[cut], self.op[cut], self.offset[cut], self.length[cut], hashes, source)

    @staticmethod
    def join(parts: list[Batch]) -> Batch:
        """One batch from several; either all have hashes or none has."""
        if len(parts) == 1:
            return parts[0]
        known = [part.hashes for part in parts if part.hashes is not None]
        hashes = None
        if known:
            lengths = np.concatenate([np.diff(one.start) for one in known])
            hashes = Hashes(starts(lengths), np.concatenate([one.grain for one in known]))
        source = None
        if any(part.source is not None for part in parts):
            source = np.concatenate([
                np.zeros(len(part), np.uint64) if part.source is None else part.source for part in parts
            ])  # fmt: skip
        return Batch(
            np.concatenate([part.time_ns for part in parts]),
            np.concatenate([part.op for part in parts]),
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.length for part in parts]),
            hashes,
            source,
        )

    @staticmethod
    def empty() -> Batch:
        none = np.empty(0, np.uint64)
        return Batch(np.empty(0, np.int64), np.empty(0, np.uint8), none, none)


def starts(lengths: npt.NDArray[Any]) -> Int64s:
    """Where each of consecutive runs of these lengths begins, and where the last one ends."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def grains(offset: UInt64s, length: UInt64s) -> Int64s:
    """How many aligned 4 KiB each request touches."""
    end = (offset + length + np.uint64(GRAIN - 1)) // np.uint64(GRAIN)
    return np.where(length > 0, end - offset // np.uint64(GRAIN), 0).astype(np.int64)


def rebatch(parts: Iterable[Batch], size: int) -> Iterator[Batch]:
    """The same requests in batches of ``size``; the last may be shorter, none is empty."""
    held: list[Batch] = []
    have = 0
    for part in parts:
        held.append(part)
        have += len(part)
        if have < size:
            continue
        whole = Batch.join(held)
        at = 0
        while have - at >= size:
            yield whole.slice(at, at + size)
            at += size
        held, have = ([whole.slice(at, have)] if at < have else []), have - at
    if have:
        yield Batch.join(held)


@dataclass(slots=True)
class Complaint:
    """A reason why some lines are rejected or adjusted, how many, and the first of them."""

    reason: str
    count: int
    line: int  #: of the first, from 1; in a binary trace a record
    text: str  #: of the first, cut to fit on a line


class Tally:
    """Complaints by reason, in the order in which they first came up."""

    def __init__(self) -> None:
        self.by_reason: dict[str, Complaint] = {}

    def add(self, reason: str, line: int, text: str | bytes, count: int = 1) -> None:
        """``count`` more lines with this reason, the first of them at ``line``."""
        found = self.by_reason.get(reason)
        if found is not None:
            found.count += count
        elif count:
            self.by_reason[reason] = Complaint(reason, count, line, shorten(text))

    @property
    def total(self) -> int:
        return sum(one.count for one in self.by_reason.values())

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"reason": one.reason, "count": one.count, "first_line": one.line, "first": one.text}
            for one in self.by_reason.values()
        ]

    def clear(self) -> None:
        self.by_reason.clear()


def shorten(text: str | bytes) -> str:
    """At most SHOWN_CHARACTERS of a line, all printable."""
    if isinstance(text, bytes):
        text = text[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    text = "".join(one if one.isprintable() else " " if one == "\t" else "·" for one in text.strip(" \t\r\n"))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


class Source(ABC):
    """Requests; each pass over them gives the same ones."""

    name: str  #: as the user gave it
    rejected: Tally  #: lines that are not replayed, of the last pass; empty for a workload
    adjusted: Tally  #: lines that are replayed in a changed form, of the last pass
    skipped: dict[str, int]  #: lines that are no requests and were not meant to be, of the last pass
    timed: bool  #: False if the times mean nothing: replay in a closed loop
    qd: int | None  #: the queue depth that the source itself asks for

    def __init__(self, name: str) -> None:
        self.name = name
        self.rejected, self.adjusted, self.skipped = Tally(), Tally(), {}
        self.timed, self.qd = False, None

    @abstractmethod
    def batches(self, size: int = BATCH) -> Iterator[Batch]:
        """A pass over all requests; ``size`` decides only where batches end."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Everything that determines these requests, as plain values, for the ``config`` of a result."""

    @abstractmethod
    def hash(self) -> str:
        """64 hexadecimal digits: SHA-256 of a trace's content (decompressed), or of a workload's canonical text."""

    @abstractmethod
    def span_bytes(self) -> int:
        """The smallest device, in bytes, on which every request lies."""

    def complaints(self) -> list[str]:
        """One line for each reason of ``rejected`` and ``adjusted``, for stderr, after a pass."""
        out = []
        for verb, tally in (("rejected", self.rejected), ("adjusted", self.adjusted)):
            for one in tally.by_reason.values():
                lines = f"{one.count:,} lines" if one.count > 1 else "1 line"
                out.append(f"{self.name}: {lines} {verb}: {one.reason} (first: line {one.line:,}: {one.text!r})")
        return out
