"""SPC, as the UMass repository has it: `ASU,LBA,size,opcode,seconds`; the LBA counts 512 bytes, the size bytes."""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces._format import Choice
from flashfs.replay.traces._text import INT, NANO, TEXT, TextFormat, letters, ticks


class Spc(TextFormat):
    name = "spc"
    title = "SPC (UMass: Financial, WebSearch)"
    aliases = ("umass",)
    unit_is = "the application storage unit (ASU)"
    separator = ","
    columns: ClassVar = {"asu": INT, "offset": INT, "length": INT, "opcode": TEXT, "time": NANO, "more": TEXT}
    needed = ("offset", "length", "opcode", "time")
    sample = re.compile(rb"\d+,-?\d+,\d+,[rRwW],\d+(\.\d+)?(,|$)")
    length_unit = 1

    def op(self, choice: Choice) -> pl.Expr:
        return letters("opcode", ("r", "R"), ("w", "W"))

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time"), "unit": pl.col("asu")}
