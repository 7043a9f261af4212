"""Figures of stored measurements: wall time differs from run to run, so it is not measured when a figure is made. A
point names a ``file`` in bench/results, and the values that select its ``row``.

Such a file says under ``machine`` where it was measured, and under ``tool`` with which program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flashfs
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import grid
from flashfs.reproduce.figure import Figure, Point, Table, merged

FOLDER = Path(flashfs.__file__).parents[1] / "bench" / "results"  #: in a source tree

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """A point of a figure, and what a tool measured there."""

    series: Point
    x: Point
    table: Table
    row: Row

    def said(self) -> dict[str, str]:
        return {"file": str(self.table["file"]), **{key: str(value) for key, value in self.table["row"].items()}}


def of(
    figure: Figure, scale: str, ftls: Sequence[str] | None, tell: grid.Tell
) -> tuple[list[Recorded], list[str]]:
    """(all points that were measured, a line for each file that says on which machine). UsageError names the figure."""
    out: list[Recorded] = []
    where: dict[str, None] = {}
    for series in figure.series:
        for x in figure.xs:
            table = merged(
                figure.all, figure.scales[scale], series.sweep, series.scales[scale], x.sweep, x.scales[scale]
            )
            if ftls is not None and table["ftl"] not in ftls and series.name != figure.baseline:
                continue
            try:
                found = _found(table)
            except UsageError as error:
                raise UsageError(f"{figure.name}: {series.name}, {x.name}: {error}") from None
            if found is None:
                tell(f"{figure.name}: {x.name} needs bench/results/{table['file']}, of a tree of sources")
                continue
            out.append(Recorded(series, x, table, found[0]))
            where[found[1]] = None
    return out, list(where)


def _found(table: Table) -> tuple[Row, str] | None:
    """The row of a point, and where it was measured; None if there is no such file. UsageError unless one row
    matches."""
    name, asked = table.get("file"), table.get("row")
    if not isinstance(name, str) or not isinstance(asked, dict) or not asked:
        raise UsageError("use file = NAME, of bench/results, and row = { COLUMN = VALUE }")
    path = FOLDER / name
    try:
        kept = json.loads(path.read_text())
        rows = [row for row in kept["rows"] if all(row.get(key) == value for key, value in asked.items())]
        cpu, python = kept["machine"]["cpu"], kept["machine"]["python"]
        said = f"{name}: measured by {kept['tool']} on one core of {cpu}, Python {python}"
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise FlashfsError(f"{path}: no results with tool, machine and rows; run the tool again") from None
    if len(rows) != 1:
        raise UsageError(f"row = {asked}: {len(rows)} rows of {name} match; it must be one")
    return rows[0], said
