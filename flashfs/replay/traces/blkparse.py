"""blkparse's default text: `major,minor cpu sequence seconds pid action RWBS sector + sectors [process]`.

A request has a line at each stage (queued, inserted, issued to the drive, completed, ...). One stage counts, by default
D, when the drive gets the request. A summary follows the events.
"""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces import _rwbs
from flashfs.replay.traces._format import NOT_A_REQUEST, UNKNOWN_OP, Choice
from flashfs.replay.traces._text import INT, NANO, TEXT, TextFormat


class Blkparse(_rwbs.Stages, TextFormat):
    name = "blkparse"
    title = "blkparse's default text"
    columns: ClassVar = {
        "device": TEXT, "cpu": TEXT, "sequence": TEXT, "time": NANO, "pid": TEXT, "action": TEXT, "rwbs": TEXT,
        "offset": INT, "plus": TEXT, "length": INT,
    }  # fmt: skip
    needed = ("time", "action", "rwbs", "offset", "length")
    sample = re.compile(rb"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]{1,2}\s+\S+")
    end = re.compile(rb"^(CPU\d+ \(|Total \(|Throughput \(R/W\))", re.MULTILINE)

    def op(self, choice: Choice) -> pl.Expr:
        action, number = pl.col("action"), pl.UInt8
        return (
            pl.when(action.str.len_bytes() > 2).then(pl.lit(UNKNOWN_OP, number))
            .when(action != choice.event).then(pl.lit(NOT_A_REQUEST, number))
            .otherwise(_rwbs.operation(pl.col("rwbs"), pl.col("length")))
        )  # fmt: skip
