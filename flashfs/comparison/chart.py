"""The chart of a comparison: a mark for each FTL and workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashfs.comparison.beside import published
from flashfs.comparison.kept import Row
from flashfs.comparison.works import short
from flashfs.replay.plots import Figure, Panel, Series

MIB = 1 << 20
PANELS: tuple[tuple[str, Callable[[Row], float | None]], ...] = (
    ("Write amplification", lambda row: row["waf"]),
    ("Requests per second", lambda row: row["iops"]),
    ("Map (MiB)", lambda row: row["map_bytes"] / MIB),
)


def figure(rows: Sequence[Row], mine: Sequence[Row] = ()) -> Figure:
    """The FTL of ``mine`` first, then all FTLs of ``rows`` on filled devices."""
    every = [*mine, *published(rows)]
    columns = list(dict.fromkeys(row["column"] for row in every))
    sources = list(dict.fromkeys(row["source"] for row in every))
    panels = []
    for label, value in PANELS:
        cells = {(row["source"], row["column"]): value(row) for row in every}
        series = [Series(short(source), [cells.get((source, column)) for column in columns]) for source in sources]
        panels.append(Panel("dots", "", label, series, groups=columns, y_scale="log"))
    return Figure("comparison", panels)
