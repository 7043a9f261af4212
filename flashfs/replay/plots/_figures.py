"""The kinds of pictures, and what each of them shows. Nothing here draws."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.formulas.cleaning import greedy
from flashfs.replay.plots import _rows
from flashfs.replay.plots._rows import DRAM, OP, Row
from flashfs.replay.plots._shapes import Figure, Panel, Series
from flashfs.replay.plots._view import MOST_CURVES, Value, View, axis_name, columns, labelled, metric, number
from flashfs.replay.results import COUNTS
from flashfs.text import meant

if TYPE_CHECKING:
    import polars

MOST_PANELS = 15
PAGES_PER_BLOCK = "config.geometry.pages_per_block"
WEAR = "wear.erases."
WEAR_NAMES = {"max": "Most erases of a block", "mean": "Mean erases per block", "spread": "Most - least erases"}
SLIVER = 0.02  #: of the highest bar: parts that are smaller in every bar become one part
UNSEEN = 0.25  #: of a sliver: a combined part smaller than that is left out
WINDOWS = 60  #: of time, in which cleaning is counted
FORMULA_POINTS = 48  #: of a formula's curve
CDF = "cdf:"  #: before the name of a column of counts: show their distribution
OPERATIONS = ("read", "write", "trim", "flush", "remap")
#: DRAM that is no mapping: page validity, and the engine's own structures
NO_MAPPING = frozenset({"pvb", "bvc", "victim_lists", "blocks", "write_buffer", "trim_log", "gc_buffer"})


@dataclass(frozen=True)
class Kind:
    """A kind of picture: what it needs of a row (``there``) and of all rows (``together``), and how it is made."""

    name: str
    about: str
    there: Callable[[Row], bool]
    make: Callable[[View], Figure]
    relative: bool = False  #: it can be relative to a baseline
    along: bool = False  #: another column can be on the x axis
    together: Callable[[Sequence[Row]], bool] = lambda rows: True


def figure(
    table: polars.DataFrame, what: str, *, x: str | None = None, baseline: str | None = None,
    where: Mapping[str, str] | None = None,
) -> Figure:  # fmt: skip
    """The picture ``what`` of the rows of ``table`` (see ``results.read``): a name of KINDS, a column of numbers, or
    ``cdf:`` and a column of counts.

    ``x`` is the column for the x axis instead of the kind's own; ``where`` keeps the rows with these values;
    ``baseline`` is the FTL whose values become 1. UsageError for names that the rows do not have, and for a picture
    that could not show one of its curves, bars or points.
    """
    rows = asked_for(table, x=x, baseline=baseline, where=where)
    kind = KINDS.get(what) or _column_kind(rows, what)
    if baseline is not None and not kind.relative:
        relative = ", ".join(one.name for one in KINDS.values() if one.relative)
        raise UsageError(f"--baseline {baseline}: {what} is not relative to anything; {relative} can be")
    if x is not None and not kind.along:
        others = ", ".join(one.name for one in KINDS.values() if one.along)
        raise UsageError(f"--x {x}: {what} has an axis of its own; {others} can be along another")
    view = View([row for row in rows if kind.there(row)], x and _rows.resolve(rows, x, "--x"), baseline)
    if not view.rows:
        raise UsageError(f"--what {what}: these results have nothing of it")
    made = kind.make(view)
    for panel in made.panels:
        _check(panel, what)
    if len(made.panels) > MOST_PANELS:
        panels = len(made.panels)
        raise UsageError(f"--what {what}: {panels} panels, {MOST_PANELS} at most; --where NAME=VALUE leaves some out")
    without = [ftl for ftl in dict.fromkeys(row["ftl"] for row in rows) if all(row["ftl"] != ftl for row in view.rows)]
    if without:
        made.left_out.append(f"{', '.join(without)}: these results have nothing of it")
    made.left_out += dict.fromkeys(view.left_out)
    failed = _rows.failures(table.to_dicts(), where or {})
    made.left_out += [f"{ftl}: {n} of its replays failed" for ftl, n in failed.items()]
    return made


def asked_for(
    table: polars.DataFrame, *, x: str | None = None, baseline: str | None = None,
    where: Mapping[str, str] | None = None,
) -> list[Row]:  # fmt: skip
    """The rows that ``where`` selects. UsageError for names that they do not have."""
    rows = _rows.chosen(table.to_dicts(), where or {})
    if x is not None:
        _rows.resolve(rows, x, "--x")
    ftls = dict.fromkeys(row["ftl"] for row in rows)
    if baseline is not None and baseline not in ftls:
        raise UsageError(f"--baseline {baseline}{meant(baseline, ftls)}: use one of {', '.join(ftls)}")
    return rows


def available(
    table: polars.DataFrame, where: Mapping[str, str] | None = None, *, x: str | None = None,
    baseline: str | None = None,
) -> list[str]:  # fmt: skip
    """The kinds that these rows can be shown as. UsageError for names that they do not have."""
    rows = asked_for(table, x=x, baseline=baseline, where=where)
    return [kind.name for kind in KINDS.values() if any(kind.there(row) for row in rows) and kind.together(rows)]


def _check(panel: Panel, what: str) -> None:
    """UsageError if the panel has too many curves, or a series that could not be seen."""
    if panel.form in ("lines", "steps") and len(panel.series) > MOST_CURVES:
        raise UsageError(
            f"--what {what}: {len(panel.series)} curves in one picture, {MOST_CURVES} at most; --where NAME=VALUE "
            "leaves some out, --x NAME puts others along the axis")  # fmt: skip
    for one in panel.series:
        shown = [(x, y) for x, y in zip(one.x or range(len(one.y)), one.y, strict=True) if y is not None]
        if not shown:
            raise UsageError(f"--what {what}: nothing of {one.label or 'it'} can be shown; use --where to leave it out")
        if panel.form == "steps":  # such a curve enters and leaves at the edges of the axes
            continue
        if panel.y_scale == "log" and any(y <= 0 for _, y in shown):
            raise UsageError(f"--what {what}: {one.label} has a 0, which has no place on a logarithmic axis")


# --- one number a result


def _at(column: str) -> Value:
    return lambda row: row[column]


def _of(row: Row, prefix: str) -> dict[str, float]:
    """The numbers in the columns whose names begin with ``prefix``, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix) and number(value)}


def _mapping(view: View) -> Figure:
    """DRAM of the map. If only the FTL makes a difference, as with tables of fixed size, one bar for each FTL."""
    made = metric(view, "mapping", _at("map_bytes"), "Mapping (bytes)", "bytes", "source")
    every = [one for panel in made.panels for one in panel.series]
    heights: dict[str, float | None] = {one.label: one.y[0] for one in every}
    if view.x is not None or any(not _alike(value, heights[one.label]) for one in every for value in one.y):
        return made
    panel = made.panels[0]
    one = Panel("bars", "", panel.y_label, [Series("mapping", list(heights.values()))], groups=list(heights),
                y_scale=panel.y_scale, y_at_1=panel.y_at_1)  # fmt: skip
    return Figure("mapping", [one])


def _alike(one: float | None, other: float | None) -> bool:
    """Equal, or nearly: a geometric mean of equal values may differ from them by rounding."""
    return one == other if one is None or other is None else math.isclose(one, other)


def _column_kind(rows: Sequence[Row], what: str) -> Kind:
    """The kind for a column of numbers, or for the distribution of a column of counts. UsageError if there is none."""
    if what.startswith(CDF):
        return _cdf_kind(rows, what)
    if any(_counts(row.get(what)) for row in rows) and not any(number(row.get(what)) for row in rows):
        return _cdf_kind(rows, CDF + what)
    if not any(number(row.get(what)) for row in rows):
        near = meant(what, [*KINDS, *dict.fromkeys(name for row in rows for name in row if number(row[name]))])
        raise UsageError(
            f"--what {what}{near}: {', '.join(KINDS)}, a column of numbers, as latency_us.read.p99, or one of counts, "
            "as scheme.groups_by_levels, can be shown"
        )

    def make(view: View) -> Figure:
        label = what.replace("_us.", " (us) ").replace("_", " ").replace(".", " ")
        return metric(view, what, _at(what), label[0].upper() + label[1:], "linear", "source")

    return Kind(what, "", lambda row: number(row.get(what)), make, relative=True, along=True)


def _hits(view: View) -> Figure:
    sizes = {row.get(DRAM) for row in view.rows} - {None}
    return metric(view, "hits", _at("cache.hit_ratio"), "Hit ratio", "share", DRAM if sizes else "source")


def _wear(view: View) -> Figure:
    """Erases of the chip's blocks over its whole life: three numbers, each on its own axis."""
    figures = [metric(view, "wear", _at(WEAR + name), label, "linear", "source") for name, label in WEAR_NAMES.items()]
    each = len(figures[0].panels)
    return Figure("wear", [panel for one in figures for panel in one.panels], len(figures) if each == 1 else each)


def _waf_op(view: View) -> Figure:
    """WAF over over-provisioning, with the formula for greedy cleaning: uniform writes, and no block of the chip
    reserved for anything else."""
    if view.x not in (None, OP):
        raise UsageError(f"--x {_rows.called(str(view.x))}: waf-op is along op; use --what waf")
    if not _several_ops(view.rows):
        raise UsageError("--what waf-op: these results are of one over-provisioning; sweep over op to have several")
    made = metric(replace(view, x=OP), "waf-op", _at("waf"), "Write amplification", "linear", OP)
    sizes = sorted({row[PAGES_PER_BLOCK] for row in view.rows})
    for panel in made.panels:
        along = [x for one in panel.series for x in one.x if x is not None]
        panel.series += [_greedy(pages, min(along), max(along), len(sizes) > 1) for pages in sizes]
    return made


def _greedy(pages_per_block: int, low: float, high: float, several: bool) -> Series:
    along = [low + (high - low) * i / (FORMULA_POINTS - 1) for i in range(FORMULA_POINTS)]
    label = f"greedy, formula{f', {pages_per_block} pages per block' if several else ''}"
    return Series(label, [greedy(pages_per_block, 1 + op / 100) for op in along], [*along], reference=True)


def _several_ops(rows: Sequence[Row]) -> bool:
    return len({row.get(OP) for row in rows} - {None}) > 1


# --- parts of a whole


Parts = Callable[[Row], dict[str, float]]


def _stacks(view: View, what: str, parts: Parts, y_label: str, y_scale: str) -> Figure:
    """A panel for each source with a bar for each FTL; over a column, a panel for each source and FTL. One panel if all
    are alike."""
    panels: list[Panel] = []
    for title, bars in _stacked(view, parts).items():
        each = _without_small([_mean([parts(row) for row in rows]) for rows in bars.values()])
        names = sorted(dict.fromkeys(name for one in each for name in one), key=_from_below)
        series = [Series(name.replace("_", " "), [one.get(name, 0.0) for one in each]) for name in names]
        x_label = axis_name(view.x) if view.x not in (None, "source", "ftl") else ""
        panels.append(Panel("stack", x_label, y_label, series, title, list(bars), y_scale=y_scale))
    if all((panel.series, panel.groups) == (panels[0].series, panels[0].groups) for panel in panels):
        panels = panels[:1]
        panels[0].title = ""
    return Figure(what, panels, columns(len(panels)))


def _stacked(view: View, parts: Parts) -> dict[str, dict[str, list[Row]]]:
    """{title of a panel: {name of a bar: its rows}}, for ``_stacks``."""
    if view.x in (None, "source", "ftl"):
        view = view.of([row for one in view.by_source().values() for row in _without_dram(one.rows, parts)])
        return {title: labelled(part.rows, ("source",)) for title, part in view.parts(("source",), 0).items()}
    x = str(view.x)
    out: dict[str, dict[str, list[Row]]] = {}
    for source, part in view.by_source().items():
        for label, rows in labelled(part.rows, ("source", x)).items():
            bars = out.setdefault(", ".join(word for word in (source, label) if word), {})
            for row in rows:
                bars.setdefault(_rows.text_of(row, x), []).append(row)
    return out


def _without_dram(rows: list[Row], parts: Parts) -> list[Row]:
    """The rows; if DRAM sizes make no difference to the parts, one row for all sizes."""
    bars = labelled(rows, ("source", DRAM)).values()
    if all(parts(one) == parts(found[0]) for found in bars for one in found):
        return [found[-1] for found in bars]
    return rows


def _mean(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part over repeats."""
    names = dict.fromkeys(name for one in each for name in one)
    return {name: math.fsum(one.get(name, 0.0) for one in each) / len(each) for name in names}


def _without_small(each: list[dict[str, float]]) -> list[dict[str, float]]:
    """Combine parts that are below a sliver in every bar into one part, ``other``, on top."""
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
    """DRAM by structure, without the data cache, which takes whatever is left."""
    return {name: value for name, value in _of(row, "dram.").items() if name not in ("total", "data_cache")}


def _from_below(name: str) -> int:
    """Sort key of a stack's parts from the bottom: the FTL's own first, ``other`` last."""
    return 2 if name == "other" else int(name in NO_MAPPING)


def _program_parts(row: Row) -> dict[str, float]:
    """Flash programs per host page, by cause."""
    return {name: n / row["host.write"] for name, n in _of(row, "nand.by_cause.program.").items()}


# --- distributions


def _latency(view: View, tail: bool) -> Figure:
    """The share of requests that took at most so long; for the tail, the share that took longer."""
    panels: list[Panel] = []
    share = "Share of requests longer" if tail else "Share of requests"
    parts = view.parts(("source",), MOST_CURVES)
    beside = columns(len(parts))
    for operation in OPERATIONS:
        column = f"histograms.{operation}"
        found = {title: [row for row in part.rows if any(row.get(f"{column}.count") or ())]
                 for title, part in parts.items()}  # fmt: skip
        if not any(found.values()):
            continue
        if len(parts) > 1:  # each operation has its own rows of panels, each source its column
            panels += [Panel("steps", "", share, []) for _ in range(-len(panels) % beside)]
        for title, rows in found.items():
            series = [_curve(label, mine, column, tail) for label, mine in labelled(rows, ("source",)).items()]
            named = f"{title}: {operation}" if title else operation
            panels.append(Panel("steps", "Latency (us)", share, series, named, x_scale="log",
                                y_scale="log" if tail else "nines", before=1.0 if tail else 0.0))  # fmt: skip
    return Figure("tail" if tail else "latency", panels, beside if len(parts) > 1 else columns(len(panels)))


def _curve(label: str, rows: Sequence[Row], column: str, tail: bool) -> Series:
    """The curve over the requests of all repeats. x are upper ends of buckets, so no share is shown too early."""
    counts: dict[int, int] = {}
    for row in rows:
        for upper, n in zip(row[f"{column}.upper_ns"], row[f"{column}.count"], strict=True):
            if n:
                counts[upper] = counts.get(upper, 0) + n
    total, seen = sum(counts.values()), 0
    x: list[float | None] = []
    y: list[float | None] = []
    for upper in sorted(counts):
        seen += counts[upper]
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
    """A list of whole numbers, up to the last that is not 0; empty if ``value`` is anything else. In older files such
    columns are JSON texts."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if not isinstance(value, list) or not all(isinstance(one, int) and one >= 0 for one in value):
        return []
    return value[: max((i + 1 for i, one in enumerate(value) if one), default=0)]


def _cdf(view: View, what: str, column: str) -> Figure:
    """A panel for each source: the share of the things counted that have at most so much. Entry i of a column
    ``as_by_bs`` counts the as that have i bs; entry i of one named ``as_by_b`` counts those at place i + 1."""
    counted, _, by = column.rpartition(".")[2].partition("_by_")
    first = int(bool(by) and not by.endswith("s"))
    panels = []
    for title, part in view.parts(("source",), MOST_CURVES).items():
        series = [_cumulated(label, rows, column, first) for label, rows in labelled(part.rows, ("source",)).items()]
        x_label, y_label = ((by or "entry").capitalize(), f"Share of {counted}")
        panels.append(Panel("steps", x_label.replace("_", " "), y_label.replace("_", " "), series, title,
                            y_scale="share"))  # fmt: skip
    return Figure(what, panels, columns(len(panels)))


def _cumulated(label: str, rows: Sequence[Row], column: str, first: int) -> Series:
    """The cumulated shares, over the counts of all repeats."""
    counts = [sum(at_i) for at_i in zip_longest(*(_counts(row[column]) for row in rows), fillvalue=0)]
    total = sum(counts)
    shares: list[float | None] = [seen / total for seen in accumulate([0] * first + counts)]
    return Series(label, shares, [float(i) for i in range(first + len(counts))])


# --- over time


def _gc(view: View) -> Figure:
    """Pages that cleaning moved per host page, and below that free blocks, over virtual time; of repeats the last."""
    above, below = [], []
    for title, part in view.parts(("source",), MOST_CURVES).items():
        mine = {label: rows[-1] for label, rows in labelled(part.rows, ("source",)).items()}
        moved = [_moved(label, row) for label, row in mine.items()]
        free = [Series(label, list(row["series.free_blocks"]), list(row["series.virtual_s"]))
                for label, row in mine.items()]  # fmt: skip
        above.append(Panel("lines", "", "GC pages per host page", moved, title))
        below.append(Panel("lines", "Virtual time (s)", "Free blocks", free))
    beside = min(len(above), 3)
    blank = [Panel("lines", "", "", []) for _ in range(-len(above) % beside)]
    panels = [panel for at in range(0, len(above), beside) for panels in (above + blank, below + blank)
              for panel in panels[at : at + beside]]  # fmt: skip
    return Figure("gc", panels, beside)


def _moved(label: str, row: Row) -> Series:
    """Pages moved per host page in WINDOWS windows of samples; None where the host wrote nothing."""
    time, moved, host = (row[f"series.{name}"] for name in ("virtual_s", "gc_program", "host_write"))
    marks = sorted({round(i * (len(time) - 1) / WINDOWS) for i in range(WINDOWS + 1)})
    out = Series(label, [])
    for first, last in pairwise(marks):
        pages = host[last] - host[first]
        out.x.append((time[first] + time[last]) / 2)
        out.y.append((moved[last] - moved[first]) / pages if pages else None)
    return out


def _cleaned(row: Row) -> bool:
    """Whether the row has cleaning over time and host writes to relate it to."""
    host = row.get("series.host_write") or [0]
    return len(row.get("series.gc_program") or ()) > 1 and bool(host[-1] > host[0])


def _has(*columns: str) -> Callable[[Row], bool]:
    return lambda row: all(number(row.get(column)) for column in columns)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("mapping", "bytes of DRAM for the map", _has("map_bytes"), _mapping, relative=True, along=True),
        Kind("dram", "bytes of DRAM by structure, but for the data cache", lambda row: bool(_dram_parts(row)),
             lambda view: _stacks(view, "dram", _dram_parts, "DRAM (bytes)", "bytes"), along=True),
        Kind("waf", "write amplification: flash programs per page of the host", _has("waf"),
             lambda view: metric(view, "waf", _at("waf"), "Write amplification", "linear", "source"),
             relative=True, along=True),
        Kind("waf-op", "the same along over-provisioning, beside the formula of greedy cleaning",
             _has("waf", OP, PAGES_PER_BLOCK), _waf_op, along=True, together=_several_ops),
        Kind("programs", "the same, by cause",
             lambda row: bool(row.get("host.write") and _program_parts(row)),
             lambda view: _stacks(view, "programs", _program_parts, "Programs per host page", "linear"), along=True),
        Kind("wear", "erases of the blocks: most, mean, and spread", _has(*(WEAR + name for name in WEAR_NAMES)),
             _wear, along=True),
        Kind("iops", "requests per second of virtual time", _has("iops"),
             lambda view: metric(view, "iops", _at("iops"), "IOPS", "linear", "source"),
             relative=True, along=True),
        Kind("latency", "the share of requests that took at most so long, by its nines: 0.9, 0.99, ...", _histogram,
             lambda view: _latency(view, tail=False)),
        Kind("tail", "the share that took longer: the tail, on a logarithmic axis", _histogram,
             lambda view: _latency(view, tail=True)),
        Kind("hits", "hit ratio of the data cache against DRAM", _has("cache.hit_ratio"), _hits, along=True),
        Kind("gc", "cleaning and free blocks over virtual time", _cleaned, _gc),
    )
}  # fmt: skip
