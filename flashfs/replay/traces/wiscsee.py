"""WiscSee's digest of blkparse: `pid action op offset size seconds gap sync`, bytes; the action D is a request."""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces._format import NOT_A_REQUEST, Choice
from flashfs.replay.traces._text import INT, NANO, TEXT, TextFormat, letters, ticks


class WiscSee(TextFormat):
    name = "wiscsee"
    title = "WiscSee events"
    stages = True
    other_lines = "events of other stages"
    columns: ClassVar = {"pid": TEXT, "action": TEXT, "type": TEXT, "offset": INT, "length": INT, "time": NANO}
    needed = ("action", "type", "offset", "length", "time")
    sample = re.compile(rb"\d+ [A-Z] \w+ -?\d+ -?\d+ \d+(\.\d+)?( |$)")
    offset_unit = length_unit = 1

    def op(self, choice: Choice) -> pl.Expr:
        stage = pl.col("action").str.len_bytes() == 1
        kind = letters("type", ("read",), ("write",), ("discard",))
        return pl.when(stage & (pl.col("action") != choice.event)).then(pl.lit(NOT_A_REQUEST, pl.UInt8)).otherwise(kind)

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time")}
