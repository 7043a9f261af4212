"""Biotracer, from mobile phones: `LBA sectors bytes flags t1 t2 t3 t4`; bit 0 of the flags means write; t1 is when the
request arrived, in seconds since 1970, the others are when it was issued and completed."""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.request_source import READ, WRITE
from flashfs.replay.traces._format import Choice
from flashfs.replay.traces._text import INT, NANO, TextFormat, ticks


class Biotracer(TextFormat):
    name = "biotracer"
    title = "Biotracer (mobile)"
    columns: ClassVar = {"offset": INT, "length": INT, "bytes": INT, "flags": INT, "time": NANO}
    needed = ("offset", "length", "flags", "time")
    sample = re.compile(rb"\s*-?\d+\s+\d+\s+\d+\s+\d+(\s+\d+\.\d+){4}\s*$")

    def op(self, choice: Choice) -> pl.Expr:
        bit = pl.col("flags") & 1
        return pl.when(bit == 1).then(pl.lit(WRITE, pl.UInt8)).when(bit == 0).then(pl.lit(READ, pl.UInt8))

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time")}
