"""Workloads: requests generated from rules and a seed, ``Workload("zipf:ops=4M,theta=0.9", device_bytes)``.

The name is a pattern of addresses or a program; keys say how many requests, which operations, sizes, contents and
times. The stream depends only on the text and the sizes of the device and its pages: it is the same on any machine, for
any batch size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import (
    BATCH,
    FLUSH,
    GRAIN,
    MOVED,
    READ,
    REMAP,
    TRIM,
    WRITE,
    Batch,
    Int64s,
    Source,
    UInt8s,
    UInt64s,
    rebatch,
)  # fmt: skip
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._contents import Carried, contents
from flashfs.replay.workloads._fileset import Fileset
from flashfs.replay.workloads._grammar import COMMON, Law, Parameter, count, parse
from flashfs.replay.workloads._lfs import Lfs
from flashfs.replay.workloads._lsm import Lsm
from flashfs.replay.workloads._patterns import PATTERNS, Kind, Pattern, Span
from flashfs.replay.workloads._programs import Program
from flashfs.replay.workloads._random import Alias, Stream, ln
from flashfs.replay.workloads._remaps import Remaps
from flashfs.replay.workloads._wal import Wal

__all__ = ["COMMON", "PATTERNS", "WORKLOADS", "Parameter", "Workload", "count", "is_workload", "written"]

#: all names: patterns of addresses, and programs, which define their operations too
WORKLOADS: dict[str, type[Kind]] = {**PATTERNS, **{one.name: one for one in (Fileset, Lsm, Wal, Lfs, Remaps)}}

BLOCK = 8_192  #: requests that are made together, as columns of 64 KiB stay in the cache; it does not affect them
VERSION = 1  #: part of the hash; raised when the same text gives other requests


def is_workload(text: str) -> bool:
    """Whether ``text`` begins with the name of a workload."""
    return text.partition(":")[0] in WORKLOADS


class Workload(Source):
    """Requests for a device of ``device_bytes`` with pages of ``page_bytes``. UsageError for what does not fit."""

    def __init__(self, text: str, device_bytes: int, page_bytes: int = 4096) -> None:
        super().__init__(text)
        name, values, given = parse(text, {one.name: (*one.shared, *one.parameters) for one in WORKLOADS.values()})
        self.device_bytes, self.page_bytes = device_bytes, page_bytes
        self.kind = WORKLOADS[name]
        self.values = values
        self._fill_in(given)
        if "qd" in given and values["rate"]:
            raise UsageError(f"workload {text}: qd and rate: use one of them")
        if values["skip"] and values["rate"]:
            raise UsageError(f"workload {text}: skip and rate: what is left out would take its time; use qd")
        if "dup" in given and isinstance(values["contents"], Law):
            raise UsageError(f"workload {text}: dup and contents=zipf: use one of them")
        self.timed = values["rate"] > 0
        self.qd = None if self.timed else values["qd"]
        self._first, self.span = self._place()
        self.kind(self.span)  # raises its errors now
        self.ops: int = values["ops"] or self.kind.default_ops(self.span)
        values["ops"] = self.ops
        if not self.ops:
            raise UsageError(f"workload {text}: it has no request")

    def _fill_in(self, given: dict[str, Any]) -> None:
        """Fill in keys whose default follows from the device, or from other keys."""
        values = self.values
        if issubclass(self.kind, Program):
            values.update(self.kind.defaults(values))
            if "qd" not in given:
                values["qd"] = self.kind.depth(values)
            return
        values["size"] = values["size"] or ((self.page_bytes, 1),)
        values["align"] = values["align"] or min(size for size, _ in values["size"])
        self._check_mix()

    def _check_mix(self) -> None:
        values = self.values
        rest = 1.0 - values["trim"] - values["flush"]
        if values["write"] is None:
            values["write"] = max(0.0, rest)
        if values["write"] > rest + 1e-9:
            raise UsageError(f"workload {self.name}: write, trim and flush are more than 1 together")

    def _place(self) -> tuple[int, Span]:
        """(where the span begins, in bytes; the span)."""
        values = self.values
        align: int = values.get("align", self.page_bytes)
        whole = self.device_bytes // align
        first, places = int(whole * values["start"]), int(whole * values["span"])
        largest = max(size for size, _ in values.get("size", ((align, 1),)))
        if first + places > whole:
            raise UsageError(f"workload {self.name}: start and span are more than 1 together")
        if places * align < largest:
            raise UsageError(f"workload {self.name}: a request of {largest} bytes in a span of {places * align}")
        return first * align, Span(places, align, values)

    def batches(self, size: int = BATCH) -> Iterator[Batch]:
        return rebatch(self._blocks(), size)

    def _blocks(self) -> Iterator[Batch]:
        making = Making(self)
        skip: int = self.values["skip"]
        for first in range(0, skip, BLOCK):
            making.block(min(BLOCK, skip - first))
        for first in range(0, self.ops, BLOCK):
            yield making.block(min(BLOCK, self.ops - first))

    def canonical(self) -> str:
        """The text with every key, in order: equal texts on equal devices give equal requests."""
        return self._text(self.values)

    def _text(self, values: dict[str, Any]) -> str:
        return f"{self.kind.name}:" + ",".join(f"{key}={written(values[key])}" for key in sorted(values))

    def hash(self) -> str:
        contents = {**self.values, **self.kind.made_of(self.values)}
        if not contents["skip"]:  # added later; leaving out 0 keeps older hashes
            del contents["skip"]
        text = f"flashfs workload {VERSION}\n{self._text(contents)}\n{self.device_bytes}\n"
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        return {
            "workload": self.name,
            "canonical": self.canonical(),
            "version": VERSION,
            "device_bytes": self.device_bytes,
            "page_bytes": self.page_bytes,
        }

    def span_bytes(self) -> int:
        return self._first + self.span.bytes

    def at(self) -> int:
        """Where the span begins, in bytes."""
        return self._first


class Making:
    """One pass over a workload: the state of its streams."""

    def __init__(self, of: Workload) -> None:
        values = of.values
        seed = values["seed"]
        self.of = of
        self.kind = of.kind(of.span)
        self.contents = contents(values, of.device_bytes)
        self.carried: Carried | None = None
        if self.contents is not None and isinstance(self.kind, Program) and self.kind.sources:
            if of.at() % GRAIN:
                raise UsageError(f"workload {of.name}: contents from byte {of.at()} on: use a multiple of {GRAIN}")
            self.carried = Carried(self.contents, of.device_bytes)
        self.arrivals = Arrivals(values)
        if isinstance(self.kind, Pattern):
            self.ops = Stream(seed, _random.OP)
            self.sizes = Stream(seed, _random.SIZE)
            self.size_mix = Alias([weight for _, weight in values["size"]])
            self.size_of = np.array([size for size, _ in values["size"]], np.int64)
            self.bounds = np.cumsum([values["write"], values["trim"], values["flush"]])

    def block(self, n: int) -> Batch:
        source = None
        if isinstance(self.kind, Program):
            op, where, length, come_from = self.kind.take(n)
            flushes = True
            if self.kind.sources:
                come_from = np.where(come_from >= 0, come_from + self.of.at(), come_from)
                source = self._sources(op, come_from, self.kind.moves)
        else:
            assert isinstance(self.kind, Pattern)
            op, length = self._ops(n), self._lengths(n)
            flushes = self.of.values["flush"] > 0
            if flushes:
                length = np.where(op == FLUSH, 0, length)
            where = self.kind.offsets(length)
        offset = (where + self.of.at()).view(np.uint64)
        if flushes:
            offset = np.where(op == FLUSH, np.uint64(0), offset)
        size = length.view(np.uint64)
        hashes = None
        if self.carried is not None:
            hashes = self.carried.of(op, offset, size, come_from)
        elif self.contents is not None:
            hashes = self.contents.of(op, offset, size)
        return Batch(self.arrivals.take(n), op, offset, size, hashes, source)

    @staticmethod
    def _sources(op: UInt8s, come_from: Int64s, moves: bool) -> UInt64s:
        """The column ``source`` of a batch."""
        remaps = op == REMAP
        return np.where(remaps, come_from, 0).astype(np.uint64) | np.where(remaps & moves, MOVED, np.uint64(0))

    def _ops(self, n: int) -> UInt8s:
        """The next operations. A workload of one operation draws no random numbers."""
        for op, share in ((WRITE, "write"), (TRIM, "trim"), (FLUSH, "flush")):
            if self.of.values[share] >= 1.0:
                return np.full(n, op, np.uint8)
        if not self.bounds[-1]:
            return np.full(n, READ, np.uint8)
        kinds = np.array([WRITE, TRIM, FLUSH, READ], np.uint8)
        return kinds[np.searchsorted(self.bounds, self.ops.unit(n), "right")]

    def _lengths(self, n: int) -> Int64s:
        if len(self.size_of) == 1:
            return np.full(n, self.size_of[0])
        return self.size_of[self.size_mix.draw(self.sizes, n)]


class Arrivals:
    """Arrival times of requests, in ns; 0 for a closed loop."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.rate: float = values["rate"]
        self.poisson = values["arrival"] == "poisson"
        self.stream = Stream(values["seed"], _random.ARRIVAL)
        self.index = 0
        self.at_ns = 0

    def take(self, n: int) -> Int64s:
        if not self.rate:
            return np.zeros(n, np.int64)
        if not self.poisson:
            index = np.arange(self.index, self.index + n, dtype=np.int64)
            self.index += n
            return (index * (1e9 / self.rate)).astype(np.int64)
        gap = (-ln(1.0 - self.stream.unit(n)) * (1e9 / self.rate)).astype(np.int64)
        out = self.at_ns + np.cumsum(gap) - gap
        self.at_ns = int(out[-1] + gap[-1])
        return out


def written(value: Any) -> str:
    """A value as the text of a key has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ":".join(f"{size}/{weight}" for size, weight in value)
    return repr(value) if isinstance(value, float) else str(value)
