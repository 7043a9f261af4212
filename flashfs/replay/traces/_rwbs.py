"""RWBS, the letters with which blkparse and ftrace describe a request: `R`, `WS`, `FWFSM`.

An `F` before the operation is a preflush: the contents of the drive's cache are durable before the request begins. An
`F` after it is FUA: the request's own data are durable before it is acknowledged; here a flush after the request
represents that, as for NBD and the loop device. The operations are `R`, `W`, `D` discard, `DE` secure erase, `WZ`
zeroing, `F` flush and `N` none; the flags `A` ahead, `S` sync, `M` metadata and `U` untorn make no difference here.
"""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE
from flashfs.replay.traces._format import NOT_A_REQUEST, UNKNOWN_OP, Choice
from flashfs.replay.traces._text import FLUSH_AFTER, FLUSH_BEFORE, ticks

#: stages at which a preflush is still part of its request; at later ones it is a separate flush with its own line
WITH_PREFLUSH = ("Q", "G", "I")


def operation(rwbs: pl.Expr, length: pl.Expr) -> pl.Expr:
    """READ, WRITE, TRIM, FLUSH, NOT_A_REQUEST or UNKNOWN_OP. A preflush without data is a FLUSH."""
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
    """The sum of FLUSH_BEFORE and FLUSH_AFTER that apply to a request with data at the stage ``event``; else 0."""
    data = (length > 0).fill_null(False)
    first = rwbs.str.starts_with("F") if event in WITH_PREFLUSH else pl.lit(False)
    last = rwbs.str.strip_prefix("F").str.contains("^[WD].*F")
    number = pl.UInt8
    return pl.when(data & first).then(pl.lit(FLUSH_BEFORE, number)).otherwise(pl.lit(0, number)) + pl.when(
        data & last
    ).then(pl.lit(FLUSH_AFTER, number)).otherwise(pl.lit(0, number))


class Stages:
    """What texts of block traces share; they have columns ``time``, ``device``, ``rwbs`` and ``length``."""

    unit_is: ClassVar[str] = "the device, major,minor"
    stages: ClassVar[bool] = True
    units_in_doubt: ClassVar[bool] = False  # the format fixes its units
    other_lines: ClassVar[str] = "events of other stages, or without data"

    def flushes(self, choice: Choice) -> pl.Expr:
        return flushes(pl.col("rwbs"), pl.col("length"), choice.event)

    def expressions(self) -> dict[str, pl.Expr]:
        return {"time": ticks("time"), "unit": pl.col("device")}
