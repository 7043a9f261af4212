"""fio's iolog: version 2, `file action [offset length]`, and version 3, which puts microseconds before that.

Version 2 has no times except the sums of its `wait` lines. Files are units, laid in a row unless one is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import polars as pl

from flashfs.replay.request_source import FLUSH, TraceError
from flashfs.replay.traces._content import HEAD_BYTES, Content, text_of
from flashfs.replay.traces._format import NOT_A_REQUEST, Choice, Lot, Telling
from flashfs.replay.traces._text import INT, TEXT, TextFormat, letters

FIRST_LINE = re.compile(rb"fio version (\d+) iolog\s*$")
MANAGEMENT = ("add", "open", "close")


class Iolog(TextFormat):
    title = "fio iolog"
    unit_is = "the file"
    units_in_doubt = False  # the format fixes its units
    other_lines = "lines that add, open and close files, and waits"
    header_lines = 1
    tick_ns = 1000
    offset_unit = length_unit = 1
    version: ClassVar[int]

    def likeness(self, head: bytes) -> float:
        found = FIRST_LINE.match(text_of(head).split(b"\n", 1)[0])
        return 1.0 if found and int(found[1]) == self.version else 0.0

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        if self.likeness(content.head(HEAD_BYTES)) < 1:
            raise TraceError(f"{content.path}: the first line is not 'fio version {self.version} iolog'")
        yield from super().lots(content, choice, telling)

    def op(self, choice: Choice) -> pl.Expr:
        action = pl.col("action")
        return (
            pl.when(action.is_in(["sync", "datasync"])).then(pl.lit(FLUSH, pl.UInt8))
            .when(action.is_in([*MANAGEMENT, "wait"])).then(pl.lit(NOT_A_REQUEST, pl.UInt8))
            .otherwise(letters("action", ("read",), ("write",), ("trim",)))
        )  # fmt: skip

    def expressions(self) -> dict[str, pl.Expr]:
        return {"unit": pl.col("file")}


class Iolog2(Iolog):
    name = "fio2"
    title = "fio iolog, version 2"
    version = 2
    columns: ClassVar = {"file": TEXT, "action": TEXT, "offset": INT, "length": INT}
    needed = ("file", "action", "offset", "length")
    sample = re.compile(rb"\S+ \w+( -?\d+ \d+)?")

    def __init__(self) -> None:
        self._waited_us = 0

    def timed(self, head: bytes) -> bool:
        return b" wait " in head

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        self._waited_us = 0
        yield from super().lots(content, choice, telling)

    def expressions(self) -> dict[str, pl.Expr]:
        waits = pl.when(pl.col("action") == "wait").then(pl.col("offset")).otherwise(0).fill_null(0).cum_sum()
        return {"unit": pl.col("file"), "time": waits + self._waited_us}

    def passing(self, found: pl.DataFrame, op: np.ndarray) -> None:
        self._waited_us = int(found["time"][-1])


class Iolog3(Iolog):
    name = "fio3"
    title = "fio iolog, version 3"
    version = 3
    columns: ClassVar = {"time": INT, "file": TEXT, "action": TEXT, "offset": INT, "length": INT}
    needed = ("time", "file", "action", "offset", "length")
    sample = re.compile(rb"\d+ \S+ \w+( -?\d+ \d+)?")
