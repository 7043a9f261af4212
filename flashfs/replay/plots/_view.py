"""Turns results into series: decides what is side by side in a panel, and what gets a panel of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flashfs.errors import UsageError
from flashfs.replay.plots import _rows
from flashfs.replay.plots._rows import DRAM, OP, OPTION, QD, SEED, SIZE, Row
from flashfs.replay.plots._shapes import Figure, Panel, Series

MOST_CURVES = 16  #: in one panel: as many as there are colours
MOST_BESIDE = 8  #: bars of a group; with more, what distinguishes them gets panels if possible
UNIT = r" \([^)]*\)"  #: in a label
LINE = 3  #: values of a column from which a line is better than bars
LOG_RANGE = 30  #: least ratio of the most to the least for a logarithmic axis

Value = Callable[[Row], float | None]
Cell = tuple[float | None, float | None, float | None]  #: (mean, least, most) of the repeats of one point


@dataclass(frozen=True)
class View:
    """A request for a picture: rows, the column on the x axis (None: the kind's own), and the FTL to compare with.
    ``left_out`` collects lines about what could not be shown."""

    rows: list[Row]
    x: str | None
    baseline: str | None
    left_out: list[str] = field(default_factory=list)

    def sources(self) -> dict[str, str]:
        """{source: its short name}, in the order of the rows."""
        return _rows.source_labels(list(dict.fromkeys(row["source"] for row in self.rows)))

    def of(self, rows: Sequence[Row]) -> View:
        return replace(self, rows=list(rows))

    def by_source(self) -> dict[str, View]:
        """{title: the View of a source}; the title of a single source is empty."""
        many = len(self.sources()) > 1
        return {
            title if many else "": self.of([row for row in self.rows if row["source"] == source])
            for source, title in self.sources().items()
        }

    def parts(self, taken: Sequence[str], most: int) -> dict[str, View]:
        """The same rows in a part for each source, by title; a source with more than ``most`` labels is split by the
        values of what varies besides the FTL. ``taken`` are columns that the picture shows otherwise."""
        out: dict[str, View] = {}
        for title, one in self.by_source().items():
            for words, part in one.by_variable(taken, most).items():
                out[", ".join(word for word in (title, words) if word)] = part
        return out

    def by_variable(self, taken: Sequence[str], most: int) -> dict[str, View]:
        """A part for each value of what varies besides the FTL; an FTL without such an option is in each part."""
        columns = _rows.crossed(self.rows, taken)
        if not columns or len(set(_rows.labels(self.rows, taken))) <= most:
            return {"": self}
        has = {row["ftl"]: _has(self.rows, row["ftl"], columns) for row in self.rows}
        out: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: has[row["ftl"]] != columns):  # rows with all columns first
            title = ", ".join(_rows.words(row, column) or f"{_rows.called(column)}=none" for column in columns)
            where = [title] if has[row["ftl"]] == columns else [
                there for there, rows in out.items()
                if all(rows[0].get(column) == row.get(column) for column in has[row["ftl"]])]  # fmt: skip
            for one in where or [title]:
                out.setdefault(one, []).append(row)
        return {title: self.of([row for row in self.rows if any(row is one for one in rows)])
                for title, rows in out.items()}  # fmt: skip


def _has(rows: Sequence[Row], ftl: str, columns: Sequence[str]) -> list[str]:
    """The columns that are not options, or are options of this FTL."""
    return [column for column in columns if not column.startswith(OPTION)
            or any(row["ftl"] == ftl and row.get(column) is not None for row in rows)]  # fmt: skip


def metric(view: View, what: str, value: Value, y_label: str, y_scale: str, x: str) -> Figure:
    """A figure of one number per result, over sources (bars) or over a column (a panel for each source)."""
    x = view.x or _along(view, x)
    if x == "source":
        panels = [_titled(_bars(part, value, x, part.sources()), title)
                  for title, part in view.by_variable(("source",), MOST_BESIDE).items()]  # fmt: skip
    else:
        panels = [_titled(_over(part, value, x), title)
                  for title, part in view.parts(("source", x), MOST_CURVES).items()]  # fmt: skip
    for panel in panels:
        panel.y_label, panel.y_scale = y_label, y_scale
        if view.baseline is not None:
            panel.y_label = f"{re.sub(UNIT, '', y_label)} / {view.baseline}"
            panel.y_scale = "linear"
            panel.y_at_1 = True
    return Figure(what, panels, columns(len(panels)))


def columns(panels: int) -> int:
    """How many of ``panels`` panels are side by side."""
    return panels if panels <= 3 else 2 if panels == 4 else 3


def _titled(panel: Panel, title: str) -> Panel:
    panel.title = title
    return panel


def _along(view: View, x: str) -> str:
    """The column for the x axis: ``x``; but instead of ``source`` a column of numbers if each FTL was replayed with at
    least LINE values of it (over-provisionings, DRAM sizes, depths), as these would be too many bars. A column that
    FTLs themselves cause is not used, nor an option that one of them does not have."""
    if x != "source":
        return x
    varied = _rows.varied(view.rows)
    for column in sorted(varied, key=lambda column: column != OP):
        values: dict[tuple[str, str], set[Any]] = {}
        for row in view.rows:
            values.setdefault((row["ftl"], row["source"]), set()).add(row.get(column))
        counts = [len(some - {None}) for some in values.values()]
        known = column in (DRAM, QD) or all(counts)
        numbers = all(number(one) for some in values.values() for one in some if one is not None)
        if numbers and known and max(counts) >= LINE:
            return column
    return x


def _over(view: View, value: Value, x: str) -> Panel:
    """A panel with lines over numbers, or with bars over anything else."""
    at = {row.get(x): _rows.text_of(row, x) for row in view.rows}
    numbers = [float(one) for one in at if one is not None and number(one)]
    if len(numbers) < 2 or len(numbers) < sum(one is not None for one in at):
        return _bars(view, value, x, at)
    panel = Panel("lines", axis_name(x), "", [])
    along: list[float | None] = [*sorted(numbers), *([None] if None in at else [])]
    for label, rows in labelled(view.rows, ("source", x)).items():
        mine = [one for one in along if any(row.get(x) == one for row in rows)]
        cells = [_cell([row for row in rows if row.get(x) == one], value, view) for one in mine]
        panel.series.append(_series(label, cells, mine))
    panel.x_none = "no limit" if x == DRAM else "open" if x == QD else "none"
    panel.x_scale = _scale(x, numbers)
    return panel


def _scale(x: str, numbers: Sequence[float]) -> str:
    """The x scale for these numbers: linear if one is 0 or less, as a logarithmic axis has no place for it."""
    if min(numbers) <= 0:
        return "linear"
    if x == DRAM:
        return "MiB"
    if x == SIZE or x.endswith("_bytes"):
        return "sizes"
    return "log" if max(numbers) >= LOG_RANGE * min(numbers) else "linear"


def _bars(view: View, value: Value, x: str, groups: Mapping[Any, str]) -> Panel:
    panel = Panel("bars", "" if x in ("source", "ftl") else axis_name(x), "", [], groups=list(groups.values()))
    for label, rows in labelled(view.rows, ("source", x)).items():
        cells = [_cell([row for row in rows if row.get(x) == group], value, view) for group in groups]
        panel.series.append(_series(label, cells))
    if view.baseline is not None and len(groups) > 2:
        panel.groups.append("gmean")
        for one in panel.series:
            _add_mean(one)
    return panel


def labelled(rows: Sequence[Row], taken: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by label, in their order."""
    out: dict[str, list[Row]] = {}
    for row, label in zip(rows, _rows.labels(rows, taken), strict=True):
        out.setdefault(label, []).append(row)
    return out


def _cell(rows: Sequence[Row], value: Value, view: View) -> Cell:
    found = [one for row in rows if (one := _relative(row, value, view)) is not None]
    if not found:
        return None, None, None
    return math.fsum(found) / len(found), min(found), max(found)


def _relative(row: Row, value: Value, view: View) -> float | None:
    """The value of a row, or its ratio to the baseline's on the same work. None, noted in ``left_out``, if the baseline
    has none or 0; UsageError if it has several."""
    mine = value(row)
    if view.baseline is None or mine is None:
        return mine
    same = ["source", *(name for name in _rows.dimensions(view.rows) if _is_work(name))]
    found = {
        value(one)
        for one in view.rows
        if one["ftl"] == view.baseline and all(one.get(name) == row.get(name) for name in same)
    }
    if len(found) > 1:
        raise UsageError(f"--baseline {view.baseline}: it is there with several options; use --where to leave one")
    theirs = found.pop() if found else None
    if not theirs:
        why = f"has no result on the work of {row['ftl']}" if theirs is None else "is 0 there"
        view.left_out.append(f"{row['ftl']} on {row['source']}: the baseline {view.baseline} {why}")
        return None
    return mine / theirs


def _is_work(column: str) -> bool:
    """Whether a column describes the work, and not the FTL."""
    return not column.startswith(OPTION) and column not in ("config.version", "config.code", _rows.NVRAM)


def _series(label: str, cells: Sequence[Cell], x: list[float | None] | None = None) -> Series:
    y, low, high = ([cell[part] for cell in cells] for part in range(3))
    repeated = low != y or high != y
    return Series(label, y, x or [], low if repeated else None, high if repeated else None)


def _add_mean(series: Series) -> None:
    """Append the geometric mean of all groups, which are ratios; None unless each group has a value above 0."""
    there = [one for one in series.y if one is not None and one > 0]
    mean = math.exp(math.fsum(math.log(one) for one in there) / len(there)) if len(there) == len(series.y) else None
    series.y.append(mean)
    for bounds in (series.low, series.high):
        if bounds is not None:
            bounds.append(mean)


AXIS_NAMES = {
    OP: "Over-provisioning (%)", DRAM: "DRAM", QD: "Queue depth", "config.trace.speedup": "Speed-up",
    "config.geometry.dies": "Dies", "config.geometry.channels": "Channels", SEED: "Seed",
}  # fmt: skip


def axis_name(column: str) -> str:
    if column in AXIS_NAMES:
        return AXIS_NAMES[column]
    name = _rows.called(column).replace("_", " ")
    return name[0].upper() + name[1:]


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
