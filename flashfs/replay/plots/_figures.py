"""What a picture shows, as plain numbers: figures of panels of series. Nothing here draws."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.plain import meant
from flashfs.replay.plots import _rows
from flashfs.replay.plots._rows import DRAM, SEED, Row
from flashfs.replay.results import COUNTS

if TYPE_CHECKING:
    import polars

MOST_SERIES = 12  #: in one picture; more cannot be told apart
MOST_PANELS = 12
UNIT = r" \([^)]*\)"  #: in a label
LINE = 3  #: values of a column that make a line better than bars
SLIVER = 0.02  #: of the highest bar: parts below it are not told apart
UNSEEN = 0.25  #: of a sliver: less than that cannot be seen
WINDOWS = 60  #: in which cleaning over time is counted
CDF = "cdf:"  #: in front of a column of counts: how they are distributed
OPERATIONS = ("read", "write", "trim", "flush", "remap")
#: what every FTL has beside its map: validity, and the engine's own
NO_MAPPING = frozenset({"pvb", "bvc", "victim_lists", "blocks", "write_buffer", "trim_log", "gc_buffer"})


@dataclass
class Series:
    """One curve, or the bars of one kind: ``y[i]`` at ``x[i]``, or in the panel's group i; None where there is nothing.
    ``low`` and ``high``, if there are repeats, are the least and the most of them."""

    label: str
    y: list[float | None]
    x: list[float] = field(default_factory=list)
    low: list[float | None] | None = None
    high: list[float | None] | None = None


@dataclass
class Panel:
    """One pair of axes. ``form`` is bars (side by side in ``groups``), stack (on top of each other), lines or steps."""

    form: str
    x_label: str
    y_label: str
    series: list[Series]
    title: str = ""
    groups: list[str] = field(default_factory=list)
    x_scale: str = "linear"  #: linear, log, sizes (powers of two of bytes, with a tick at each x) or MiB: at least
    y_scale: str = "linear"  #: linear, log, share (0 to 1), nines (a share by the log of what it leaves) or bytes
    y_at_1: bool = False  #: y is a multiple of the baseline's


@dataclass
class Figure:
    """Panels, ``columns`` of them beside each other."""

    what: str
    panels: list[Panel]
    columns: int = 1


@dataclass(frozen=True)
class View:
    """What was asked for: rows, the column on the x axis (None: the kind's own), and the FTL to compare with."""

    rows: list[Row]
    x: str | None
    baseline: str | None

    def sources(self) -> dict[str, str]:
        """Short names, in the order in which the sources come."""
        return _rows.source_labels(list(dict.fromkeys(row["source"] for row in self.rows)))

    def of(self, source: str) -> View:
        return View([row for row in self.rows if row["source"] == source], self.x, self.baseline)


@dataclass(frozen=True)
class Kind:
    """A picture that can be made: what it needs, and how."""

    name: str
    about: str
    there: Callable[[Row], bool]
    make: Callable[[View], Figure]
    relative: bool = False  #: a baseline has a meaning


def figure(
    table: polars.DataFrame, what: str, *, x: str | None = None, baseline: str | None = None,
    where: Mapping[str, str] | None = None,
) -> Figure:  # fmt: skip
    """The picture ``what`` of the rows of ``table`` (see ``results.read``): a name of KINDS, a column of numbers, or
    ``cdf:`` and a column of counts.

    ``x`` is the column along which to show it, instead of the kind's own; ``where`` keeps the rows with these values;
    ``baseline`` is the FTL whose values are 1. UsageError for what the rows do not have.
    """
    rows = _rows.chosen(table.to_dicts(), where or {})
    kind = KINDS.get(what) or _column_kind(rows, what)
    if baseline is not None and not kind.relative:
        relative = ", ".join(one.name for one in KINDS.values() if one.relative)
        raise UsageError(f"--baseline {baseline}: {what} is not relative to anything; {relative} can be")
    if baseline is not None and all(row["ftl"] != baseline for row in rows):
        raise UsageError(f"--baseline {baseline}: use {', '.join(dict.fromkeys(row['ftl'] for row in rows))}")
    view = View([row for row in rows if kind.there(row)], x and _rows.resolve(rows, x), baseline)
    if not view.rows:
        raise UsageError(f"--what {what}: these results have nothing of it")
    made = kind.make(view)
    for panel in made.panels:
        if len(panel.series) > MOST_SERIES:
            raise UsageError(
                f"--what {what}: {len(panel.series)} series in one picture, {MOST_SERIES} at most; --where NAME=VALUE "
                "leaves some out, --x NAME puts others along the axis")  # fmt: skip
    if len(made.panels) > MOST_PANELS:
        panels = len(made.panels)
        raise UsageError(f"--what {what}: {panels} panels, {MOST_PANELS} at most; use --where source=...")
    return made


def available(table: polars.DataFrame, where: Mapping[str, str] | None = None) -> list[str]:
    """The kinds that these rows have something of."""
    rows = _rows.chosen(table.to_dicts(), where or {})
    return [kind.name for kind in KINDS.values() if any(kind.there(row) for row in rows)]


# --- one number a result


Value = Callable[[Row], float | None]


def _metric(view: View, what: str, value: Value, y_label: str, y_scale: str, x: str) -> Figure:
    """One number of each result, over sources (bars) or over a column (a panel a source)."""
    x = view.x or _longest(view, x)
    if x == "source":
        panels = [_bars(view, value, x, view.sources())]
    else:
        panels = []
        for source, title in view.sources().items():
            panel = _over(view.of(source), value, x)
            panel.title = title if len(view.sources()) > 1 else ""
            panels.append(panel)
    for panel in panels:
        panel.y_label, panel.y_scale = y_label, y_scale
        if view.baseline is not None:
            panel.y_label = f"{re.sub(UNIT, '', y_label)} / {view.baseline}"
            panel.y_scale = "linear"
            panel.y_at_1 = True
    return Figure(what, panels, _columns(len(panels)))


def _longest(view: View, x: str) -> str:
    """Where sources are asked for, but results are of several DRAM sizes, queue depths or the like, those: a bar for
    each would be a forest."""
    if x != "source":
        return x
    for column in _rows.dimensions(view.rows):
        values = {row.get(column) for row in view.rows} - {None}
        if column != SEED and len(values) >= LINE and all(_number(value) for value in values):
            return column
    return x


def _columns(panels: int) -> int:
    return panels if panels <= 3 else 2 if panels == 4 else 3


def _over(view: View, value: Value, x: str) -> Panel:
    """Lines over numbers, bars over anything else."""
    at = list(dict.fromkeys(row.get(x) for row in view.rows))
    numbers = [one for one in at if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 2 or len(numbers) < sum(one is not None for one in at):
        return _bars(view, value, x, {one: _tick(x, one) for one in at})
    panel = Panel("lines", _axis_name(x), "", [])
    for label, rows in _labelled(view.rows, ("source", x)).items():
        along = sorted({row[x] for row in rows if row.get(x) is not None})
        cells = [_cell([row for row in rows if row.get(x) == one], value, view) for one in along]
        panel.series.append(_series(label, cells, [float(one) for one in along]))
    panel.series = [one for one in panel.series if one.x]
    if x == DRAM or x.endswith("_bytes"):
        panel.x_scale = "MiB" if x == DRAM else "sizes"
    elif min(numbers) > 0 and max(numbers) >= 30 * min(numbers):
        panel.x_scale = "log"
    return panel


def _tick(x: str, value: Any) -> str:
    """What is below the bars of a value of column ``x``."""
    return _rows.shown(value) if x == DRAM and value is not None else _rows.text_of(value)


def _bars(view: View, value: Value, x: str, groups: Mapping[Any, str]) -> Panel:
    panel = Panel("bars", "" if x == "source" else _axis_name(x), "", [], groups=list(groups.values()))
    for label, rows in _labelled(view.rows, ("source", x)).items():
        cells = [_cell([row for row in rows if row.get(x) == group], value, view) for group in groups]
        panel.series.append(_series(label, cells))
    if view.baseline is not None and len(groups) > 2:
        panel.groups.append("gmean")
        for one in panel.series:
            _add_mean(one)
    return panel


def _labelled(rows: Sequence[Row], taken: Sequence[str]) -> dict[str, list[Row]]:
    """Rows by what they are called, in their order."""
    out: dict[str, list[Row]] = {}
    for row, label in zip(rows, _rows.labels(rows, taken), strict=True):
        out.setdefault(label, []).append(row)
    return out


Cell = tuple[float | None, float | None, float | None]


def _cell(rows: Sequence[Row], value: Value, view: View) -> Cell:
    """(mean, least, most) of the repeats of one point."""
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
        raise UsageError(f"--baseline {view.baseline}: it is there with several options; --where would leave one")
    theirs = found.pop() if found else None
    return mine / theirs if theirs else None


def _is_work(column: str) -> bool:
    """Whether it says what was asked of an FTL, not what the FTL is."""
    return not column.startswith("config.options.") and column not in ("config.version", "config.code")


def _series(label: str, cells: Sequence[Cell], x: list[float] | None = None) -> Series:
    y, low, high = ([cell[part] for cell in cells] for part in range(3))
    repeated = low != y or high != y
    return Series(label, y, x or [], low if repeated else None, high if repeated else None)


def _add_mean(series: Series) -> None:
    """The geometric mean of all groups behind them, if there is something in each: they are ratios."""
    there = [one for one in series.y if one is not None and one > 0]
    mean = math.exp(math.fsum(math.log(one) for one in there) / len(there)) if len(there) == len(series.y) else None
    series.y.append(mean)
    for bounds in (series.low, series.high):
        if bounds is not None:
            bounds.append(mean)


AXIS_NAMES = {
    DRAM: "DRAM", "config.qd": "Queue depth", "config.trace.speedup": "Speed-up", "config.geometry.dies": "Dies",
    "config.geometry.channels": "Channels", SEED: "Seed",
}  # fmt: skip


def _axis_name(column: str) -> str:
    return AXIS_NAMES.get(column) or column.rpartition(".")[2].replace("_", " ")


def _of(row: Row, prefix: str) -> dict[str, float]:
    """The numbers of the columns that begin so, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix) and _number(value)}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(view: View) -> Figure:
    """Where only the FTL makes a difference, as with tables of fixed size, there is one bar for each."""
    made = _metric(view, "mapping", lambda row: row["map_bytes"], "Mapping (bytes)", "bytes", "source")
    every = [one for panel in made.panels for one in panel.series]
    heights: dict[str, float | None] = {one.label: one.y[0] for one in every}
    if view.x is not None or any(not _alike(value, heights[one.label]) for one in every for value in one.y):
        return made
    panel = made.panels[0]
    one = Panel("bars", "", panel.y_label, [Series("mapping", list(heights.values()))], groups=list(heights),
                y_scale=panel.y_scale, y_at_1=panel.y_at_1)  # fmt: skip
    return Figure("mapping", [one])


def _alike(one: float | None, other: float | None) -> bool:
    """A geometric mean of equal values is that value but for rounding."""
    return one == other if one is None or other is None else math.isclose(one, other)


def _column_kind(rows: Sequence[Row], what: str) -> Kind:
    """A column of numbers is a kind too, and so is the distribution that a column of counts has."""
    if what.startswith(CDF):
        return _cdf_kind(rows, what)
    if any(_counts(row.get(what)) for row in rows) and not any(_number(row.get(what)) for row in rows):
        return _cdf_kind(rows, CDF + what)
    if not any(_number(row.get(what)) for row in rows):
        near = meant(what, [*KINDS, *dict.fromkeys(name for row in rows for name in row if _number(row[name]))])
        raise UsageError(
            f"--what {what}{near}: use {', '.join(KINDS)}, a column of numbers, as latency_us.read.p99, or one of "
            "counts, as scheme.groups_by_levels"
        )

    def make(view: View) -> Figure:
        label = what.replace("_us.", " (us) ").replace("_", " ").replace(".", " ")
        return _metric(view, what, lambda row: row[what], label[0].upper() + label[1:], "linear", "source")

    return Kind(what, "", lambda row: _number(row.get(what)), make, relative=True)


def _hits(view: View) -> Figure:
    sizes = {row.get(DRAM) for row in view.rows} - {None}
    return _metric(view, "hits", lambda row: row["cache.hit_ratio"], "Hit ratio", "share", DRAM if sizes else "source")


# --- parts of a whole


def _stacks(view: View, what: str, parts: Callable[[Row], dict[str, float]], y_label: str, y_scale: str) -> Figure:
    """A panel for each source, in it a bar for each FTL; one panel if they are all alike."""
    panels: list[Panel] = []
    for source, title in view.sources().items():
        groups, rows = _bars_of(view.of(source).rows, parts)
        each = _without_small([parts(row) for row in rows])
        names = sorted(dict.fromkeys(name for one in each for name in one), key=_from_below)
        series = [Series(name.replace("_", " "), [one.get(name, 0.0) for one in each]) for name in names]
        panels.append(Panel("stack", "", y_label, series, title, groups, y_scale=y_scale))
    if all(panel.series == panels[0].series for panel in panels):
        panels = panels[:1]
        panels[0].title = ""
    return Figure(what, panels, _columns(len(panels)))


def _bars_of(rows: Sequence[Row], parts: Callable[[Row], dict[str, float]]) -> tuple[list[str], list[Row]]:
    """Names and rows of bars; one for several DRAM sizes if it is the same for all."""
    for taken in (("source", DRAM), ("source",)):
        labelled = _labelled(rows, taken)
        if taken == ("source",) or all(parts(one) == parts(found[0]) for found in labelled.values() for one in found):
            break
    return list(labelled), [found[-1] for found in labelled.values()]


def _without_small(each: list[dict[str, float]]) -> list[dict[str, float]]:
    """What is nowhere more than a sliver becomes one part, on top."""
    least = SLIVER * max((sum(one.values()) for one in each), default=0.0)
    kept = list(dict.fromkeys(name for one in each for name, value in one.items() if value >= least and value))
    out = []
    for one in each:
        parts = {name: one[name] for name in kept if name in one}
        rest = math.fsum(value for name, value in one.items() if name not in kept)
        out.append({**parts, "other": rest})
    if max((one["other"] for one in out), default=0.0) < least * UNSEEN:
        for one in out:
            del one["other"]
    return out


def _dram_parts(row: Row) -> dict[str, float]:
    """Without the data cache, which takes what is left."""
    return {name: value for name, value in _of(row, "dram.").items() if name not in ("total", "data_cache")}


def _from_below(name: str) -> int:
    """In a stack: what is the FTL's own first."""
    return 2 if name == "other" else int(name in NO_MAPPING)


def _program_parts(row: Row) -> dict[str, float]:
    """Flash programs by cause, a host page each."""
    return {name: n / row["host.write"] for name, n in _of(row, "nand.by_cause.program.").items()}


# --- distributions


def _latency(view: View, tail: bool) -> Figure:
    """How many requests took at most so long; or, for the tail, longer."""
    panels: list[Panel] = []
    share = "Share of requests longer" if tail else "Share of requests"
    many = len(view.sources()) > 1
    columns = _columns(len(view.sources()))
    for operation in OPERATIONS:
        column = f"histograms.{operation}"
        row_begins = many
        for source, title in view.sources().items():
            rows = [row for row in view.of(source).rows if any(row.get(f"{column}.count") or ())]
            if not rows:
                continue
            series = [_curve(label, mine, column, tail) for label, mine in _labelled(rows, ("source",)).items()]
            if row_begins:  # each operation has its own
                panels += [Panel("steps", "", share, []) for _ in range(-len(panels) % columns)]
                row_begins = False
            named = f"{title}: {operation}" if many else operation
            panels.append(Panel("steps", "Latency (us)", share, series, named, x_scale="log",
                                y_scale="log" if tail else "nines"))  # fmt: skip
    return Figure("tail" if tail else "latency", panels, columns if many else _columns(len(panels)))


def _curve(label: str, rows: Sequence[Row], column: str, tail: bool) -> Series:
    """Of the requests of all repeats together. Upper ends of buckets, so no share is shown before it is reached."""
    counts: dict[int, int] = {}
    for row in rows:
        for upper, n in zip(row[f"{column}.upper_ns"], row[f"{column}.count"], strict=True):
            if n:
                counts[upper] = counts.get(upper, 0) + n
    total, seen = sum(counts.values()), 0
    x: list[float] = []
    y: list[float | None] = []
    for upper in sorted(counts):
        seen += counts[upper]
        if tail and seen == total:
            break
        x.append(upper / 1000)
        y.append((total - seen) / total if tail else seen / total)
    return Series(label, y, x)


def _histogram(row: Row) -> bool:
    return any(any(row.get(f"histograms.{operation}.count") or ()) for operation in OPERATIONS)


def _cdf_kind(rows: Sequence[Row], what: str) -> Kind:
    column = what.removeprefix(CDF)
    if not any(_counts(row.get(column)) for row in rows):
        found = sorted({name for row in rows for name, value in row.items() if COUNTS in name and _counts(value)})
        would = ", ".join(found) or "these results have none"
        raise UsageError(f"--what {what}: it takes a column of counts, a list in each result: {would}")
    return Kind(what, "", lambda row: bool(_counts(row.get(column))), lambda view: _cdf(view, what, column))


def _counts(value: Any) -> list[int]:
    """A list of whole numbers, up to the last that is not 0; none if it is anything else. Where a file has results from
    before such columns were lists, they are JSON."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if not isinstance(value, list) or not all(isinstance(one, int) and one >= 0 for one in value):
        return []
    return value[: max((i + 1 for i, one in enumerate(value) if one), default=0)]


def _cdf(view: View, what: str, column: str) -> Figure:
    """A panel for each source: the share of what ``column`` counts that has at most so much. Entry i of a column
    ``as_by_bs`` counts the as that have i bs; of one that is called ``as_by_b``, those at place i + 1."""
    counted, _, by = column.rpartition(".")[2].partition("_by_")
    first = int(bool(by) and not by.endswith("s"))
    panels = []
    for source, title in view.sources().items():
        labelled = _labelled(view.of(source).rows, ("source",))
        series = [_cumulated(label, rows, column, first) for label, rows in labelled.items()]
        named = title if len(view.sources()) > 1 else ""
        x_label, y_label = ((by or "entry").capitalize(), f"Share of {counted}")
        panels.append(Panel("steps", x_label.replace("_", " "), y_label.replace("_", " "), series, named,
                            y_scale="share"))  # fmt: skip
    return Figure(what, panels, _columns(len(panels)))


def _cumulated(label: str, rows: Sequence[Row], column: str, first: int) -> Series:
    """Of the counts of all repeats together."""
    counts = [sum(at_i) for at_i in zip_longest(*(_counts(row[column]) for row in rows), fillvalue=0)]
    total = sum(counts)
    shares: list[float | None] = [seen / total for seen in accumulate([0] * first + counts)]
    return Series(label, shares, [float(i) for i in range(first + len(counts))])


# --- over time


def _gc(view: View) -> Figure:
    """Pages that cleaning moved for each page of the host's, and free blocks below, over virtual time."""
    above, below = [], []
    for source, title in view.sources().items():
        labelled = _labelled(view.of(source).rows, ("source",))
        named = title if len(view.sources()) > 1 else ""
        moved = [_moved(label, rows[-1]) for label, rows in labelled.items()]
        free = [
            Series(label, list(rows[-1]["series.free_blocks"]), list(rows[-1]["series.virtual_s"]))
            for label, rows in labelled.items()
        ]
        above.append(Panel("lines", "", "GC pages a host page", moved, named))
        below.append(Panel("lines", "Virtual time (s)", "Free blocks", free))
    return Figure("gc", above + below, len(above))


def _moved(label: str, row: Row) -> Series:
    """In windows of time that hold a few samples each; none where the host wrote nothing."""
    time, moved, host = (row[f"series.{name}"] for name in ("virtual_s", "gc_program", "host_write"))
    marks = sorted({round(i * (len(time) - 1) / WINDOWS) for i in range(WINDOWS + 1)})
    out = Series(label, [])
    for first, last in pairwise(marks):
        pages = host[last] - host[first]
        out.x.append((time[first] + time[last]) / 2)
        out.y.append((moved[last] - moved[first]) / pages if pages else None)
    return out


def _has(*columns: str) -> Callable[[Row], bool]:
    return lambda row: all(_number(row.get(column)) for column in columns)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("mapping", "bytes of DRAM for the map", _has("map_bytes"), _mapping, relative=True),
        Kind("dram", "bytes of DRAM by structure, but for the data cache", lambda row: bool(_dram_parts(row)),
             lambda view: _stacks(view, "dram", _dram_parts, "DRAM (bytes)", "bytes")),
        Kind("waf", "write amplification: flash programs for each page of the host's", _has("waf"),
             lambda view: _metric(view, "waf", lambda row: row["waf"], "Write amplification", "linear", "source"),
             relative=True),
        Kind("programs", "the same, by cause",
             lambda row: bool(row.get("host.write") and _program_parts(row)),
             lambda view: _stacks(view, "programs", _program_parts, "Programs a host page", "linear")),
        Kind("iops", "requests per second of virtual time", _has("iops"),
             lambda view: _metric(view, "iops", lambda row: row["iops"], "IOPS", "linear", "source"), relative=True),
        Kind("latency", "the share of requests that took at most so long, by its nines: 0.9, 0.99, ...", _histogram,
             lambda view: _latency(view, tail=False)),
        Kind("tail", "the share that took longer: the tail, on a logarithmic axis", _histogram,
             lambda view: _latency(view, tail=True)),
        Kind("hits", "hit ratio of the data cache against DRAM", _has("cache.hit_ratio"), _hits),
        Kind("gc", "cleaning and free blocks over virtual time",
             lambda row: len(row.get("series.gc_program") or ()) > 1, _gc),
    )
}  # fmt: skip
