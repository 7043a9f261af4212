"""Five columns of numbers: `time device address size read-or-write`, in the units of whoever wrote them.

DiskSim's ascii has milliseconds and flags of which bit 0 means read; SSDsim and MQSim have nanoseconds and 1 for read;
all three count sectors of 512 bytes. Two variants are about: sizes in pages of 4 KiB, and offsets in bytes. They look
the same line by line, but not by the hundred:

- addresses that are nearly all multiples of 8 sectors with sizes that mostly are not: a trace aligned to 4 KiB whose
  sizes are pages;
- addresses that are all multiples of 512 with sizes that mostly are not: those addresses are bytes.
"""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np
import polars as pl

from flashfs.replay.source import READ, WRITE
from flashfs.replay.traces._format import UNKNOWN_OP, Choice
from flashfs.replay.traces._text import INT, MICRO, TextFormat, sample_lines, ticks

LINE = re.compile(rb"\s*(\d+\.?\d*)\s+\d+\s+(-?\d+)\s+(\d+)\s+(\d+)\s*$")
SURE_LINES = 8  #: fewer lines than this say nothing about what their numbers have in common


class Columns(TextFormat):
    unit_is = "the device's number"
    columns: ClassVar = {"time": INT, "device": INT, "offset": INT, "length": INT, "flags": INT}
    needed = ("time", "offset", "length", "flags")
    sample = LINE
    fractions: ClassVar[bool] = False  #: times with a point in them

    def likeness(self, head: bytes) -> float:
        lines = sample_lines(head)
        found = [match for match in map(LINE.match, lines) if match]
        if not found or any(b"." in match[1] for match in found) != self.fractions:
            return 0.0
        address = np.array([int(match[2]) for match in found], object)
        size = np.array([int(match[3]) for match in found], object)
        fits = self.fits(address, size) if len(found) >= SURE_LINES else type(self) in (DiskSim, MqSim)
        return len(found) / len(lines) if fits else 0.0

    def fits(self, address: np.ndarray, size: np.ndarray) -> bool:
        """Whether these numbers can be in this format's units rather than a variant's."""
        return True

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

    def fits(self, address: np.ndarray, size: np.ndarray) -> bool:
        return not in_pages(address, size)

    def op(self, choice: Choice) -> pl.Expr:
        bit = pl.col("flags") & 1
        return pl.when(bit == 1).then(pl.lit(READ, pl.UInt8)).when(bit == 0).then(pl.lit(WRITE, pl.UInt8))


class AsciiPages(Columns):
    name = "ascii-pages"
    title = "DiskSim-like ascii with sizes in 4 KiB"
    columns: ClassVar = {**Columns.columns, "time": MICRO}
    fractions = True
    length_unit = 4096

    def fits(self, address: np.ndarray, size: np.ndarray) -> bool:
        return in_pages(address, size)


class MqSim(Columns):
    name = "mqsim"
    title = "SSDsim and MQSim ascii"
    aliases = ("ssdsim",)

    def fits(self, address: np.ndarray, size: np.ndarray) -> bool:
        return not in_bytes(address, size)


class MqSimBytes(Columns):
    name = "mqsim-bytes"
    title = "MQSim-like ascii with offsets in bytes"
    offset_unit = 1

    def fits(self, address: np.ndarray, size: np.ndarray) -> bool:
        return in_bytes(address, size)


def in_pages(address: np.ndarray, size: np.ndarray) -> bool:
    """Sectors would be aligned in their addresses, but not in their sizes."""
    return bool(np.mean(address % 8 == 0) >= 0.9 and np.mean(size % 8 != 0) >= 0.5)


def in_bytes(address: np.ndarray, size: np.ndarray) -> bool:
    """Sectors would be aligned to 256 KiB in their addresses, but not in their sizes."""
    return bool(np.all(address % 512 == 0) and np.mean(size % 512 != 0) >= 0.5)
