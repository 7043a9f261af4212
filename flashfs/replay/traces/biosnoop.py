"""bcc's biosnoop: `TIME(s) COMM PID DISK T SECTOR BYTES [...] LAT(ms)`.

A process's name may contain blanks. A request without a disk, most often a flush, leaves that column empty. T is R or W
in bcc's own biosnoop, which shows discards as R, and RWBS in that of libbpf-tools. A line is a request that was issued
to the drive, so a preflush has its own line.
"""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.request_source import FLUSH
from flashfs.replay.traces import _rwbs
from flashfs.replay.traces._format import NOT_A_REQUEST, Choice
from flashfs.replay.traces._text import INT, NANO, TEXT, PatternFormat, ticks


class Biosnoop(PatternFormat):
    name = "biosnoop"
    title = "bcc's biosnoop"
    unit_is = "the disk"
    units_in_doubt = False  # the format fixes its units
    other_lines = "headings, and requests without data"
    length_unit = 1
    columns: ClassVar = {
        "heading": TEXT, "time": NANO, "device": TEXT, "rwbs": TEXT, "offset": INT, "length": INT,
    }  # fmt: skip
    needed = ("time", "rwbs", "offset", "length")
    sample = re.compile(
        rb"^\s*(?:(?P<heading>TIME\(s\))|(?P<time>\d+\.\d+)\s+.*?\s\d+\s+(?:(?P<device>\S+)\s+)?"
        rb"(?P<rwbs>[A-Z]+)\s+(?P<offset>\d+)\s+(?P<length>\d+)(?:\s+(?:[A-Z]+|-?\d+(?:\.\d+)?)){1,3}\s*$)"
    )

    def op(self, choice: Choice) -> pl.Expr:
        kind = _rwbs.operation(pl.col("rwbs"), pl.col("length"))
        nothing = pl.col("heading").is_not_null() | ((pl.col("length") == 0) & (kind != FLUSH))
        return pl.when(nothing).then(pl.lit(NOT_A_REQUEST, pl.UInt8)).otherwise(kind)

    def flushes(self, choice: Choice) -> pl.Expr:
        return _rwbs.flushes(pl.col("rwbs"), pl.col("length"), "D")

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time"), "unit": pl.col("device").fill_null("")}
