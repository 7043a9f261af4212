"""FIU: `ns pid process LBA sectors R|W major minor md5`, the MD5 of each request's content.

A piece cut from a tar archive has the archive's headers between its lines; they are rejected like any other noise.
"""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces._format import Choice
from flashfs.replay.traces._text import INT, TEXT, UNKNOWN_UNIT, TextFormat, letters

MD5_DIGITS = 32
MINORS = 1 << 20  #: of a major number, in Linux


class Fiu(TextFormat):
    name = "fiu"
    title = "FIU, with content hashes"
    unit_is = "major:minor"
    columns: ClassVar = {
        "time": INT, "pid": TEXT, "process": TEXT, "offset": INT, "length": INT, "type": TEXT, "major": INT,
        "minor": INT, "md5": TEXT,
    }  # fmt: skip
    needed = ("time", "offset", "length", "type")
    sample = re.compile(rb"\d+\s+\d+\s+\S+\s+-?\d+\s+\d+\s+[RW]\s+\d+\s+\d+(\s+[0-9a-f]{32})?\s*$")

    def unit_name(self, value: int) -> str:
        return "{}:{}".format(*divmod(value, MINORS)) if value != UNKNOWN_UNIT else str(value)

    def op(self, choice: Choice) -> pl.Expr:
        return letters("type", ("R",), ("W",))

    def expressions(self) -> dict[str, pl.Expr]:
        # 64 of the 128 bits: among 10^9 different pages two collide with a chance of 3 %
        half = pl.col("md5").str.slice(0, 16).str.to_integer(base=16, dtype=pl.UInt64, strict=False)
        whole = pl.col("md5").str.len_bytes() == MD5_DIGITS
        return {
            "unit": pl.col("major") * MINORS + pl.col("minor"),
            "hash": pl.when(whole).then(pl.when(half == 0).then(1).otherwise(half)).otherwise(0),
        }
