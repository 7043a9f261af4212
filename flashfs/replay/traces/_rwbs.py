"""RWBS, the letters by which blkparse and ftrace say what a request is: `R`, `WS`, `FWFSM`.

An `F` before the operation is a preflush: what the drive has in its cache is durable before the request begins. An `F`
after it is FUA: the request's own data are durable before it is acknowledged, which a flush after it stands for here,
as it does for NBD and the loop device. Then come the operation (`R`, `W`, `D` discard, `DE` secure erase, `WZ` zeroing,
`F` flush, `N` none) and flags that make no difference here (`A` ahead, `S` sync, `M` metadata, `U` untorn).
"""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE
from flashfs.replay.traces._format import NOT_A_REQUEST, UNKNOWN_OP, Choice
from flashfs.replay.traces._text import FLUSH_AFTER, FLUSH_BEFORE, ticks

#: stages before the block layer has made a flush of its own of a preflush; later, that has a line of its own
WITH_PREFLUSH = ("Q", "G", "I")


def operation(rwbs: pl.Expr, length: pl.Expr) -> pl.Expr:
    """READ, WRITE, TRIM, FLUSH, NOT_A_REQUEST or UNKNOWN_OP. What asks for a flush and has no data is one."""
    empty = length.is_null() | (length == 0)
    after = rwbs.str.strip_prefix("F")
    kind = after.str.slice(0, 1)
    number = pl.UInt8
    return (
        pl.when(rwbs.str.starts_with("F") & empty).then(pl.lit(FLUSH, number))
        .when((kind == "D") | after.str.starts_with("WZ")).then(pl.lit(TRIM, number))
        .when(kind == "W").then(pl.lit(WRITE, number))
        .when(kind == "R").then(pl.lit(READ, number))
        .when(kind == "N").then(pl.lit(NOT_A_REQUEST, number))
        .otherwise(pl.lit(UNKNOWN_OP, number))
    )  # fmt: skip


def flushes(rwbs: pl.Expr, length: pl.Expr, event: str) -> pl.Expr:
    """FLUSH_BEFORE and FLUSH_AFTER of what has data, at a stage of its way."""
    data = (length > 0).fill_null(False)
    first = rwbs.str.starts_with("F") if event in WITH_PREFLUSH else pl.lit(False)
    last = rwbs.str.strip_prefix("F").str.contains("^[WD].*F")
    number = pl.UInt8
    return pl.when(data & first).then(pl.lit(FLUSH_BEFORE, number)).otherwise(pl.lit(0, number)) + pl.when(
        data & last
    ).then(pl.lit(FLUSH_AFTER, number)).otherwise(pl.lit(0, number))


class Stages:
    """What text of a block trace has in common, beside its columns ``time``, ``device``, ``rwbs`` and ``length``."""

    unit_is: ClassVar[str] = "the device, major,minor"
    stages: ClassVar[bool] = True
    units_in_doubt: ClassVar[bool] = False  # it says itself what it is
    other_lines: ClassVar[str] = "events of other stages, or without data"

    def flushes(self, choice: Choice) -> pl.Expr:
        return flushes(pl.col("rwbs"), pl.col("length"), choice.event)

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time"), "unit": pl.col("device")}
