"""Reads how often each address of a real volume was used, without the order: csv lines of `offset,count`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flashfs.replay.request_source import Int64s, TraceError
from flashfs.replay.traces._content import Content, check_file


@dataclass(frozen=True)
class Skewed:
    """``counts`` in the order of the addresses."""

    counts: Int64s

    @staticmethod
    def read(path: Path, top: int | None = None) -> Skewed:
        """Read a file; ``top`` keeps only that many lines, those with the highest counts. TraceError if it is not such
        a file."""
        check_file(path)
        content = Content(path)
        text = b"".join(content.lines())
        if content.cut_short:
            raise TraceError(f"{path}: the packed stream ends early")
        frame = pl.read_csv(
            b"0,0\n" + text, has_header=False, quote_char=None, schema={"offset": pl.Int64, "count": pl.Int64},
            ignore_errors=True, truncate_ragged_lines=True,
        )[1:]  # fmt: skip
        right = frame.select(((pl.col("offset") >= 0) & (pl.col("count") > 0)).fill_null(False)).to_series()
        wrong = np.flatnonzero(~right.to_numpy())
        if len(wrong) and wrong[0] == 0:
            wrong = wrong[1:]  # the names of the columns
        if len(wrong):
            raise TraceError(f"{path}: line {int(wrong[0]) + 1} is not offset,count; {len(wrong)} lines are not")
        kept = frame.filter(right)
        if not len(kept):
            raise TraceError(f"{path}: no line is offset,count")
        if top is not None:
            kept = kept.sort(["count", "offset"], descending=[True, False]).head(top)
        return Skewed(kept.sort("offset")["count"].to_numpy())

    @staticmethod
    def hash(path: Path) -> str:
        return Content(path).sha256()
