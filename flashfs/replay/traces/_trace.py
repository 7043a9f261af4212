"""A trace file as a source of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import (
    BATCH,
    FLUSH,
    GRAIN,
    MOVED,
    REMAP,
    Batch,
    Hashes,
    Source,
    TraceError,
    UInt64s,
    rebatch,
    starts,
)
from flashfs.replay.request_source import grains as grains_of
from flashfs.replay.traces import _fit, _other_files
from flashfs.replay.traces._content import HEAD_BYTES, Content, check_file
from flashfs.replay.traces._fit import MODES, Extent, Fit
from flashfs.replay.traces._format import CUT_RECORD, CUT_STREAM, Choice, Format, Lot, Telling
from flashfs.replay.traces.columns import Columns

TIME_BACK = "time goes back; kept at the time before"
TIME_JUMPS = "time jumps by more than a year; that step is left out"
YEAR_NS = 365 * 24 * 3600 * 10**9
HASHES_GONE = "content hashes left out: shifted by no multiple of 4 KiB"
ODD = np.uint64(0x9E3779B97F4A7C15)
STREAM_ENDS = (CUT_RECORD, CUT_STREAM)
EVENTS = ("Q", "G", "I", "D", "C")
LAST_NS = 1 << 62  #: virtual time is a signed 64-bit number of ns, and a replay needs some room after the last request


@dataclass(frozen=True, slots=True)
class Options:
    """What is done with the requests of a trace before they are replayed."""

    shift_bytes: int = 0  #: added to each offset: -3584 brings a partition that begins at sector 7 to 0
    fit: str = "clip"  #: how the trace is laid on a device: clip, wrap, scale or pack
    pack_bytes: int = 1 << 20  #: the grain of `pack`: a power of two from 4 KiB to 1 MiB
    speedup: float = 1.0  #: times are divided by it
    utilisation: float | None = None  #: target of dies or channels, for which play.at_utilisation finds ``speedup``
    loops: int = 1  #: how often the requests are played
    first: int | None = None  #: only so many requests of each loop; complaints cover the 8 MiB up to the last, too
    unit: str | None = None  #: only those of this disk, file or volume
    event: str = "D"  #: which stage of a blktrace counts
    sort: bool = False  #: by time, before anything else is done; this holds the whole trace in memory

    def check(self) -> Options:
        """These options; UsageError for an invalid value."""
        if self.fit not in MODES:
            raise UsageError(f"fit {self.fit}: use {', '.join(MODES)}")
        if self.pack_bytes not in (1 << shift for shift in range(12, 21)):
            raise UsageError(f"pack {self.pack_bytes} bytes: use a power of two from 4k to 1M")
        if not 0 < self.speedup < float("inf"):
            raise UsageError(f"speed-up {self.speedup}: use a number above 0")
        if self.utilisation is not None and not 0 < self.utilisation <= 1:
            raise UsageError(f"speed-up u={self.utilisation:g}: use a share above 0, 1 at most")
        if self.loops < 1:
            raise UsageError(f"loops {self.loops}: use 1 or more")
        if self.first is not None and self.first < 1:
            raise UsageError(f"first {self.first}: use 1 or more requests")
        if self.event not in EVENTS:
            raise UsageError(f"event {self.event}: use {', '.join(EVENTS)}")
        return self


class Trace(Source):
    """The requests of a file. Each pass of ``batches`` reads it anew, with a few MiB in memory whatever its size.

    ``device_bytes`` is what ``options.fit`` fits the trace to; without it, requests keep their addresses. Raises
    TraceError if no format is recognised, and from ``batches`` if nothing in the file is a request or if a packed
    stream is damaged; OSError if the file cannot be read.
    """

    def __init__(
        self, path: str | Path, options: Options | None = None, *, format: str | None = None,
        device_bytes: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(str(path))
        from flashfs.replay.traces import detect, format_named

        self.path = Path(path)
        self.options = (options or Options()).check()
        if device_bytes is not None and (device_bytes < GRAIN or device_bytes % GRAIN):
            raise UsageError(f"a device of {device_bytes} bytes: use a multiple of {GRAIN}")
        self.device_bytes = device_bytes
        check_file(self.path)
        head = Content(self.path).head(HEAD_BYTES)
        if (what := _other_files.named(head)) is not None:
            raise TraceError(f"{path}: {what}")
        self.detected = format is None
        self.format: Format
        self.certainty = "as asked"  #: how certain the format is, and why
        if format is None:
            self.format, self.certainty = detect(self.path, head)
        else:
            self.format = format_named(format)
        if self.options.unit is not None and not self.format.unit_is:
            raise UsageError(f"unit {self.options.unit}: {self.format.name} traces name no units")
        if self.options.event != Options().event and not self.format.stages:
            raise UsageError(f"event {self.options.event}: {self.format.name} traces have no stages")
        self.timed = self.format.timed(head)
        if self.options.sort and not self.timed:
            raise UsageError(f"sort: {path}, read as {self.format.name}, has no times")
        self._telling = Telling()
        self.rejected, self.adjusted = self._telling.rejected, self._telling.adjusted
        self.skipped = self._telling.skipped
        self._extent: Extent | None = None
        self._hash: str | None = None
        self._times = Times(1, 1.0)

    @property
    def units(self) -> dict[str, int]:
        """Requests of each disk, file or volume that the trace names, in the last pass. Several units are laid in a
        row, in the order of their first requests."""
        return dict(self._telling.units)

    def batches(self, size: int = BATCH) -> Iterator[Batch]:
        return rebatch(self._loops(), size)

    def _loops(self) -> Iterator[Batch]:
        """All loops; complaints come from the first one only."""
        self._telling.clear()
        begin_ns = 0
        for loop in range(self.options.loops):
            telling = self._telling if loop == 0 else Telling()
            any_request = False
            for batch in self._pass(telling, begin_ns):
                any_request = any_request or len(batch) > 0
                yield batch
            if not any_request:
                raise TraceError(self._nothing())
            begin_ns += self._times.period_ns()
            if begin_ns + self._times.period_ns() > LAST_NS and loop + 1 < self.options.loops:
                raise TraceError(
                    f"{self.name}: {self.options.loops} loops take more than virtual time has, {LAST_NS // 10**9:,} s: "
                    f"{loop + 1}, or a --speedup"
                )

    def _pass(self, telling: Telling, begin_ns: int) -> Iterator[Batch]:
        """One pass over the requests, with times from ``begin_ns`` on."""
        fit = self._fit()
        self._times = times = Times(self.format.tick_ns, self.options.speedup)
        left = self.options.first
        lots = self._lots(telling)
        for lot in in_order(lots) if self.options.sort else lots:
            if fit is not None:
                drop = np.zeros(len(lot.op), bool)
                for reason, which in fit.place(lot):
                    self._tell(telling, lot, reason, which)
                    drop |= which
                lot = lot.take(~drop)
            if left is not None:
                lot = lot.take(np.arange(len(lot.op)) < left)
                left -= len(lot.op)
            if len(lot.op):
                yield self._batch(lot, times.take(lot, telling) + begin_ns)
            if left == 0:
                return

    def _lots(self, telling: Telling) -> Iterator[Lot]:
        """The requests of the file, shifted, with the units laid in a row."""
        for lot in self._raw(telling):
            if lot.unit is not None:
                base = self.extent().base  # may need an extra pass; a trace of one unit never gets here
                lot.offset += np.where(lot.op == FLUSH, 0, base[lot.unit])
            yield lot

    def _raw(self, telling: Telling) -> Iterator[Lot]:
        """The requests of the file, shifted; every unit begins at 0."""
        shift = self.options.shift_bytes
        choice = Choice(self.options.unit, self.options.event)
        form = self.format.fresh()  # extent() may start a pass in the middle of another
        for lot in form.lots(Content(self.path), choice, telling):
            if shift:
                lot.offset += np.where(lot.op == FLUSH, 0, shift)
                before = lot.offset < 0
                if lot.source is not None:
                    lot.source += np.where(lot.op == REMAP, shift, 0)
                    before |= lot.source < 0
                if before.any():
                    self._tell(telling, lot, _fit.BEFORE, before)
                    lot = lot.take(~before)
                if shift % GRAIN and lot.hashes is not None:
                    telling.skip(HASHES_GONE, len(lot.hashes.grain))
                    lot.hashes = None
            yield lot

    @staticmethod
    def _tell(telling: Telling, lot: Lot, reason: str, which: np.ndarray) -> None:
        hit = np.flatnonzero(which)
        if not len(hit):
            return
        if reason == _fit.NOWHERE:
            telling.skip(reason, len(hit))
            return
        one = int(hit[0])
        text = f"offset {int(lot.offset[one])}, length {int(lot.length[one])}"
        telling.rejected.add(reason, int(lot.line[one]), text, len(hit))

    def _batch(self, lot: Lot, time_ns: np.ndarray) -> Batch:
        offset, length = lot.offset.view(np.uint64), lot.length.view(np.uint64)
        hashes = lot.hashes
        if lot.hash is not None:
            hashes = spread(lot.hash, offset, length)
        source = None
        if lot.source is not None:
            source = lot.source.view(np.uint64)
            source = source if lot.moved is None else source | np.where(lot.moved, MOVED, np.uint64(0))
        return Batch(time_ns, lot.op, offset, length, hashes, source)

    def _fit(self) -> Fit | None:
        if self.device_bytes is None:
            return None
        known = self.extent() if self.options.fit in ("scale", "pack") else Extent()
        return Fit(self.options.fit, self.device_bytes, known)

    def extent(self) -> Extent:
        """Where the requests lie, shifted but not fitted; needs one pass over the file, once."""
        if self._extent is None:
            self._extent = Extent.of(self._raw(Telling()), self.options.pack_bytes.bit_length() - 1)
        return self._extent

    def span_bytes(self) -> int:
        if self.device_bytes is not None and self.options.fit != "clip":
            return self.device_bytes
        end = self.extent().end
        return end if self.device_bytes is None else min(end, self.device_bytes)

    def packed_bytes(self) -> int:
        """The smallest device, in bytes, that holds the trace with ``fit="pack"``: its footprint in whole grains."""
        extent = self.extent()
        return len(extent.touched) << extent.shift

    def made_for(self) -> tuple[int, int] | None:
        """(bytes, bytes of a page) of the device that was traced, if the trace says so, as flashfs's own do."""
        return self.format.made_for(self.path)

    def hash(self) -> str:
        if self._hash is None:
            self._hash = Content(self.path).sha256()
        return self._hash

    def complaints(self) -> list[str]:
        hint = "; --sort puts requests into the order of their times"
        out = [f"{line}{hint if TIME_BACK in line else ''}" for line in super().complaints()]
        if isinstance(self.format, Columns) and not self.timed:
            out.append(f"{self.name}: its times only count lines, the order is all; --columns time:UNIT,... says else")
        return out

    def describe(self) -> dict[str, Any]:
        return {
            "trace": self.name,
            "format": self.format.name,
            "detected": self.detected,
            "certainty": self.certainty,
            "timed": self.timed,
            "device_bytes": self.device_bytes,
            **asdict(self.options),
        }

    def _nothing(self) -> str:
        """The message that says why there is no request."""
        first = next(iter(self.rejected.by_reason.values()), None)
        if first is None:
            return f"{self.name}: no request in it, read as {self.format.name}"
        why = f"line {first.line}: {first.reason}: {first.text!r}"
        return f"{self.name}: no request can be replayed, {self.rejected.total:,} lines rejected, the first at {why}"


def in_order(lots: Iterable[Lot]) -> Iterator[Lot]:
    """The same requests sorted by time; requests of equal time keep their order."""
    held = [lot for lot in lots if len(lot.op)]
    if not held:
        return
    whole = Lot.join(held)
    order = np.argsort(whole.time, kind="stable")
    for at in range(0, len(order), BATCH):
        yield whole.pick(order[at : at + BATCH])


class Times:
    """The clock of one pass: turns ticks with any origin into nanoseconds since the first request that never go back. A
    jump by more than a year, either way, is left out: no host waited that long."""

    def __init__(self, tick_ns: int, speedup: float) -> None:
        self.tick_ns = tick_ns
        self.speedup = speedup
        self.before: int | None = None  #: ticks of the last request
        self.raw_ns = 0  #: its time before it was raised to that of an earlier request
        self.last_ns = 0
        self.requests = 0

    def take(self, lot: Lot, telling: Telling) -> np.ndarray:
        """The time of each request of a lot, which is not empty, in ns."""
        steps = np.diff(lot.time, prepend=lot.time[0] if self.before is None else self.before)
        self._cut(steps, lot, telling)
        time_ns = self.raw_ns + np.cumsum(steps) * self.tick_ns
        risen = np.maximum.accumulate(time_ns)
        np.maximum(risen, self.last_ns, out=risen)
        back = np.flatnonzero(risen > time_ns)
        if len(back):
            one = int(back[0])
            text = f"by {int(risen[one] - time_ns[one]):,} ns"
            telling.adjusted.add(TIME_BACK, int(lot.line[one]), text, len(back))
        self.before, self.raw_ns, self.last_ns = int(lot.time[-1]), int(time_ns[-1]), int(risen[-1])
        self.requests += len(risen)
        return risen if self.speedup == 1.0 else np.floor(risen / self.speedup).astype(np.int64)

    def _cut(self, steps: np.ndarray, lot: Lot, telling: Telling) -> None:
        """Set steps of more than a year to 0. A difference that overflows 64 bits is one too, as times are not
        negative."""
        jumps = np.flatnonzero((np.abs(steps) > YEAR_NS // self.tick_ns) | (steps == np.iinfo(np.int64).min))
        if len(jumps):
            one = int(jumps[0])
            text = f"by {float(steps[one]) * self.tick_ns / YEAR_NS:+,.1f} years"
            telling.adjusted.add(TIME_JUMPS, int(lot.line[one]), text, len(jumps))
            steps[jumps] = 0

    def period_ns(self) -> int:
        """How much later the next loop begins: one mean gap after the last request."""
        if self.requests < 2:
            return int(self.last_ns / self.speedup)
        return int((self.last_ns + self.last_ns // (self.requests - 1)) / self.speedup)


def spread(of: UInt64s, offset: UInt64s, length: UInt64s) -> Hashes:
    """A number for each 4 KiB from one for each request. A request that is one aligned 4 KiB keeps its own; the pieces
    of others get numbers that depend on their place in the request."""
    counts = np.where(of != 0, grains_of(offset, length), 0)
    start = starts(counts)
    if len(counts) and counts.max() <= 1 and not (offset % np.uint64(GRAIN)).any():
        return Hashes(start, of[counts > 0])
    piece: UInt64s = (np.arange(start[-1]) - np.repeat(start[:-1], counts)).astype(np.uint64)
    within: UInt64s = np.repeat(offset % np.uint64(GRAIN), counts)
    apart: UInt64s = np.multiply(piece + np.left_shift(within, np.uint64(20)), ODD)
    return Hashes(start, np.repeat(of, counts) + apart)
