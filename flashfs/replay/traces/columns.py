"""Five columns of numbers: `time device address size read-or-write`, in units that depend on the program that wrote
them.

DiskSim's ascii has milliseconds and flags of which bit 0 means read; SSDsim and MQSim have nanoseconds and 1 for read;
all three count sectors of 512 bytes. Two variants exist: sizes in pages of 4 KiB, and offsets in bytes. A single line
does not distinguish them, but thousands do (``_evidence``). Other programs write the same five columns in other units
or in another order; a file that fits none of the readers here, or two of them, is refused, and the user must choose.
"""

from __future__ import annotations

import itertools
import math
import re
from functools import lru_cache
from typing import ClassVar

import numpy as np
import polars as pl

from flashfs.replay.request_source import READ, WRITE
from flashfs.replay.traces._evidence import HARD, SOFT, SURE_LINES, UNITS, WEAK, Reading, Sample, share, weigh
from flashfs.replay.traces._format import UNKNOWN_OP, Choice
from flashfs.replay.traces._text import INT, MICRO, TextFormat, sample_lines, ticks

LINE = re.compile(rb"\s*(\d+\.?\d*)\s+(\d+)\s+(-?\d+)\s+(\d+)\s+(\d+)\s*$")
NUMBER_MAX = 1 << 50  #: a line with a larger number is noise and says nothing about units
DEVICES, DEVICE_MAX = 64, 255  #: the most device numbers, and the largest one, that are plausible
RISING, POSITIVE, KNOWN = 0.9, 0.9, 0.98  #: least shares of lines that are right if a column is what it is taken for
CROSSING = 0.3  #: at most this share of the requests that continue another may do so on another device
SLOWEST_MS = 0.3  #: with a smaller mean gap the times are not in ms
SLOWEST_NS, SURE_NS, FINE_NS = 1000, 10_000_000, 100  #: nor in ns below the first; or the second, in steps so fine
COUNTS = 64  #: with a mean gap of fewer steps, the times only count lines


class Columns(TextFormat):
    unit_is = "the device's number"
    columns: ClassVar = {"time": INT, "device": INT, "offset": INT, "length": INT, "flags": INT}
    needed = ("time", "offset", "length", "flags")
    sample = LINE
    fractions: ClassVar[bool] = False  #: times have a decimal point

    def judge(self, head: bytes) -> Reading:
        found = Found.of(head, self.fractions)
        flag = f"--format {self.name}"
        if found is None:
            return Reading(flag, 0.0, "", self)
        score, why = found.weigh(self.offset_unit, self.length_unit)
        return Reading(flag, score, why, self, found.share)

    def timed(self, head: bytes) -> bool:
        found = Found.of(head, self.fractions)
        return found is None or not found.ordinal

    def op(self, choice: Choice) -> pl.Expr:
        flags, number = pl.col("flags"), pl.UInt8
        return (
            pl.when(flags == 1).then(pl.lit(READ, number))
            .when(flags == 0).then(pl.lit(WRITE, number))
            .otherwise(pl.lit(UNKNOWN_OP, number))
        )  # fmt: skip

    def expressions(self) -> dict[str, pl.Expr]:
        return {"unit": pl.col("device"), **({"time": ticks("time")} if self.fractions else {})}


class DiskSim(Columns):
    name = "disksim"
    title = "DiskSim ascii"
    columns: ClassVar = {**Columns.columns, "time": MICRO}
    fractions = True

    def op(self, choice: Choice) -> pl.Expr:
        bit = pl.col("flags") & 1
        return pl.when(bit == 1).then(pl.lit(READ, pl.UInt8)).when(bit == 0).then(pl.lit(WRITE, pl.UInt8))


class AsciiPages(Columns):
    name = "ascii-pages"
    title = "DiskSim-like ascii with sizes in 4 KiB"
    columns: ClassVar = {**Columns.columns, "time": MICRO}
    fractions = True
    length_unit = 4096


class MqSim(Columns):
    name = "mqsim"
    title = "SSDsim and MQSim ascii"
    aliases = ("ssdsim",)


class MqSimBytes(Columns):
    name = "mqsim-bytes"
    title = "MQSim-like ascii with offsets in bytes"
    offset_unit = 1


NAMED = {(kind.fractions, kind.offset_unit, kind.length_unit) for kind in (DiskSim, AsciiPages, MqSim, MqSimBytes)}


class Found:
    """The five columns of a sample, and what they show independently of the units of offset and size."""

    def __init__(self, rows: list[tuple[bytes, ...]], lines: int, fractions: bool) -> None:
        self.share = len(rows) / lines
        self.fractions = fractions
        self.time = [float(row[0]) if fractions else int(row[0]) for row in rows]
        self.device, self.address, self.size, self.flags = (
            np.array([int(row[at]) for row in rows], np.int64) for at in range(1, 5)
        )
        self.sample = Sample(self.address, self.size, self.device.tolist())
        self.steps = np.diff(np.array(self.time, np.float64))
        self.gap = max(0.0, (self.time[-1] - self.time[0]) / max(1, len(rows) - 1))
        self.step = 0 if fractions else math.gcd(*(abs(int(b - a)) for a, b in itertools.pairwise(self.time)))
        self.ordinal = len(rows) >= SURE_LINES and 0 < self.gap < min(SLOWEST_NS, COUNTS * self.step)
        self.doubts = self._doubts() if len(rows) >= SURE_LINES else []

    @staticmethod
    @lru_cache(maxsize=8)
    def of(head: bytes, fractions: bool) -> Found | None:
        """The columns in ``head``; None if there are no such lines, or if their times have a decimal point and
        ``fractions`` says otherwise, or the reverse."""
        lines = sample_lines(head)
        matches = [match for match in map(LINE.match, lines) if match]
        rows = [
            match.groups() for match in matches if all(len(one) < 17 and -1 < int(one) < NUMBER_MAX
                                                       for one in match.groups()[1:])
        ]  # fmt: skip
        if not rows or any(b"." in row[0] for row in rows) != fractions or any(len(row[0]) > 24 for row in rows):
            return None
        return Found(rows, len(lines), fractions)

    def _doubts(self) -> list[tuple[float, str]]:
        """Doubts that the columns are `time device address size read-or-write`, in milli- or nanoseconds."""
        devices = len(set(self.device.tolist()))
        out = []
        if share(self.steps >= 0) < RISING:
            out.append((SOFT, "the first column does not rise as times do"))
        if share(self.flags <= (255 if self.fractions else 1)) < KNOWN or len(set(self.flags.tolist())) > 16:
            out.append((HARD, "the fifth column is no read or write"))
        if self.fractions and share(self.flags <= 1) < KNOWN and share(self.flags % 8 == 0) > KNOWN:
            out.append((SOFT, "the fifth column looks like sizes"))
        if devices > DEVICES or 2 * devices > len(self.device):
            out.append((SOFT, f"the second column has {devices:,} different numbers: no devices"))
        elif devices > 1 and int(self.device.max()) > DEVICE_MAX:
            out.append((SOFT, f"the second column goes up to {int(self.device.max()):,}: process numbers, or sizes"))
        elif devices > 1 and (reason := self._no_disks()) is not None:
            out.append((SOFT, reason))
        if set(self.device.tolist()) == {0, 1} and len(set(self.flags.tolist())) == 1:
            out.append((SOFT, "the second column looks like read and write, and the fifth does not"))
        if share(self.size > 0) < POSITIVE:
            out.append((HARD, "the fourth column is often 0: no sizes"))
        if int(self.size.max()) > int(self.address.max()):
            out.append((SOFT, "the fourth column is larger than the third: sizes come first, or units differ much"))
        if devices > 1 and len(set(self.size.tolist())) == 1 and share(self.device % 8 == 0) == 1:
            out.append((SOFT, "the second column looks like sizes, and the fourth does not"))
        return [*out, *self._time_doubts()]

    def _no_disks(self) -> str | None:
        """Why several numbers in the second column may not be disks: requests continue others across them; or too few
        continue any, whatever the units, to decide. None if they may be disks."""
        most, crossing = 0, 0.0
        for units in itertools.product(UNITS, UNITS):
            everywhere = self.sample.continued(*units, apart=False)
            if everywhere >= SURE_LINES:
                most = max(most, everywhere)
                crossing = max(crossing, 1 - self.sample.continued(*units) / everywhere)
        if most < SURE_LINES:
            return "nothing says whether the second column is the device"
        if crossing > CROSSING:
            return "requests continue where those of another number in the second column ended: no devices"
        return None

    def _time_doubts(self) -> list[tuple[float, str]]:
        if self.fractions and 0 < self.gap < SLOWEST_MS:
            return [(SOFT, f"in milliseconds there would be {1e3 / self.gap:,.0f} requests per second: seconds?")]
        if self.fractions or self.ordinal or self.gap == 0:
            return []
        if self.gap < SLOWEST_NS or (self.gap < SURE_NS and self.step < FINE_NS):
            return [(SOFT, f"in nanoseconds there would be {1e9 / self.gap:,.0f} requests per second: ns, us or ms?")]
        return []

    def weigh(self, offset_unit: int, length_unit: int) -> tuple[float, str]:
        """(score from 0 to 1, why) for these units."""
        score, against = weigh(self.sample, offset_unit, length_unit)
        if score <= WEAK:  # five plain numbers can only be recognised by their units
            score *= SOFT
        for left, reason in self.doubts:
            score *= left
            against.append(reason)
        return self.share * score, "; ".join(against) or self._for(offset_unit, length_unit)

    def _for(self, offset_unit: int, length_unit: int) -> str:
        """What supports these units."""
        n = len(self.address)
        hits = self.sample.continued(offset_unit, length_unit)
        said = [f"{self.share:.0%} of {n:,} lines", f"offsets in {UNITS[offset_unit]}, sizes in {UNITS[length_unit]}"]
        said.append(f"{hits / n:.0%} of the requests begin where another ended")
        said.append("times only count lines" if self.ordinal else f"times in {'ms' if self.fractions else 'ns'} rise")
        return ", ".join(said)


def others(head: bytes) -> list[Reading]:
    """Readings of the same columns in units that no format has: only --columns reads them."""
    out = []
    for fractions, unit in ((False, "ns"), (True, "ms")):
        found = Found.of(head, fractions)
        for offset_unit, length_unit in itertools.product(UNITS, UNITS) if found is not None else ():
            if found is not None and (fractions, offset_unit, length_unit) not in NAMED:
                score, why = found.weigh(offset_unit, length_unit)
                flag = f"--columns time:{unit},dev,offset:{offset_unit},length:{length_unit},op:1=read"
                out.append(Reading(flag, score, why))
    return out
