"""MSR Cambridge: `filetime,host,disk,Read|Write,offset,size,response`, the first and the last in 100 ns."""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces._format import Choice
from flashfs.replay.traces._text import INT, TEXT, TextFormat, letters


class Msr(TextFormat):
    name = "msr"
    title = "MSR Cambridge csv"
    unit_is = "the disk's number"
    tick_ns = 100
    separator = ","
    columns: ClassVar = {
        "time": INT, "host": TEXT, "disk": INT, "type": TEXT, "offset": INT, "length": INT, "response": TEXT,
    }  # fmt: skip
    needed = ("time", "type", "offset", "length")
    sample = re.compile(rb"\d+,[^,]*,\d*,(Read|Write),-?\d+,\d+(,|$)")
    offset_unit = length_unit = 1

    def op(self, choice: Choice) -> pl.Expr:
        return letters("type", ("Read", "read"), ("Write", "write"))

    def expressions(self) -> dict[str, pl.Expr]:
        return {"unit": pl.col("disk")}
