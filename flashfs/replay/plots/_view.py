"""Results as series: which of them are beside each other, above each other, and in panels of their own."""

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

MOST_CURVES = 16  #: in one panel: as many as have a colour of their own
MOST_BESIDE = 8  #: bars of a group, if what they are told apart by can be in panels
UNIT = r" \([^)]*\)"  #: in a label
LINE = 3  #: values of a column that make a line better than bars
LOG_RANGE = 30  #: between the least and the most on a logarithmic axis, at least

Value = Callable[[Row], float | None]
Cell = tuple[float | None, float | None, float | None]  #: (mean, least, most) of the repeats of one point


@dataclass(frozen=True)
class View:
    """What was asked for: rows, the column on the x axis (None: the kind's own), and the FTL to compare with. Lines are
    put into ``left_out``."""

    rows: list[Row]
    x: str | None
    baseline: str | None
    left_out: list[str] = field(default_factory=list)

    def sources(self) -> dict[str, str]:
        """Short names, in the order in which the sources come."""
        return _rows.source_labels(list(dict.fromkeys(row["source"] for row in self.rows)))

    def of(self, rows: Sequence[Row]) -> View:
        return replace(self, rows=list(rows))

    def by_source(self) -> dict[str, View]:
        """{title: what a source has}; one alone needs no title."""
        many = len(self.sources()) > 1
        return {
            title if many else "": self.of([row for row in self.rows if row["source"] == source])
            for source, title in self.sources().items()
        }

    def parts(self, taken: Sequence[str], most: int) -> dict[str, View]:
        """The same rows in a part for each source, and, where one would have more than ``most`` labels, for each value
        of what is varied beside the FTL; by title. ``taken`` is what the parts show otherwise."""
        out: dict[str, View] = {}
        for title, one in self.by_source().items():
            for words, part in one.by_variable(taken, most).items():
                out[", ".join(word for word in (title, words) if word)] = part
        return out

    def by_variable(self, taken: Sequence[str], most: int) -> dict[str, View]:
        """A part for each value of what is varied beside the FTL; an FTL without such an option is in each part."""
        columns = _rows.crossed(self.rows, taken)
        if not columns or len(set(_rows.labels(self.rows, taken))) <= most:
            return {"": self}
        has = {row["ftl"]: _has(self.rows, row["ftl"], columns) for row in self.rows}
        out: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: has[row["ftl"]] != columns):  # those with all of them say which
            title = ", ".join(_rows.words(row, column) or f"{_rows.called(column)}=none" for column in columns)
            where = [title] if has[row["ftl"]] == columns else [
                there for there, rows in out.items()
                if all(rows[0].get(column) == row.get(column) for column in has[row["ftl"]])]  # fmt: skip
            for one in where or [title]:
                out.setdefault(one, []).append(row)
        return {title: self.of([row for row in self.rows if any(row is one for one in rows)])
                for title, rows in out.items()}  # fmt: skip


def _has(rows: Sequence[Row], ftl: str, columns: Sequence[str]) -> list[str]:
    """Those of the columns that are no options, or options of this FTL."""
    return [column for column in columns if not column.startswith(OPTION)
            or any(row["ftl"] == ftl and row.get(column) is not None for row in rows)]  # fmt: skip


def metric(view: View, what: str, value: Value, y_label: str, y_scale: str, x: str) -> Figure:
    """One number of each result, over sources (bars) or over a column (a panel for each source)."""
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
    """How many panels are beside each other."""
    return panels if panels <= 3 else 2 if panels == 4 else 3


def _titled(panel: Panel, title: str) -> Panel:
    panel.title = title
    return panel


def _along(view: View, x: str) -> str:
    """Where sources are asked for, but each FTL was replayed with several over-provisionings, DRAM sizes, depths or the
    like, those: a bar for each would be a forest. What FTLs themselves cause is no axis, and neither is an option that
    one of them does not have."""
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
    """Lines over numbers, bars over anything else."""
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
    """0 has no place on a logarithmic axis."""
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
    """Rows by what they are called, in their order."""
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
    """The value of a row, as a multiple of the baseline's on the same work."""
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
    """Whether it says what was asked of an FTL, not what the FTL is."""
    return not column.startswith(OPTION) and column not in ("config.version", "config.code", _rows.NVRAM)


def _series(label: str, cells: Sequence[Cell], x: list[float | None] | None = None) -> Series:
    y, low, high = ([cell[part] for cell in cells] for part in range(3))
    repeated = low != y or high != y
    return Series(label, y, x or [], low if repeated else None, high if repeated else None)


def _add_mean(series: Series) -> None:
    """The geometric mean of all groups after them, if there is something in each: they are ratios."""
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
