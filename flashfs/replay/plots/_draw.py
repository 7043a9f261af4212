"""Draws a figure with matplotlib, as a column of a paper wants it.

Letters are as large as the text beside them, nothing is told by colour alone (bars are hatched, lines dashed and
marked), and PDF and SVG hold their letters themselves. The same figure gives the same bytes: no date, no random ids.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.plain import UNITS
from flashfs.replay.plots._figures import Figure, Panel, Series
from flashfs.replay.results import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

SUFFIXES = (".svg", ".pdf", ".png")
COLUMN_INCHES, PAGE_INCHES = 3.33, 7.0  #: of a paper with two columns
PNG_DPI = 300
HEADROOM = 1.06  #: of the y axis over the highest thing on it
ROUNDING = 1e-12  #: of shares: what is closer to 1 is 1
SLANT_CHARACTERS = 36  #: below the bars of one panel; more do not fit beside each other
#: Okabe and Ito's colours, which also the colour-blind can tell apart, without the yellow, which paper swallows
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib: the same letters, and bytes, everywhere
    "font.size": 7.5, "axes.labelsize": 7.5, "axes.titlesize": 7.5, "legend.fontsize": 7,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    "hatch.linewidth": 0.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "axes.grid.axis": "y", "grid.linewidth": 0.4, "grid.color": "#D0D0D0",
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5, "ytick.minor.size": 1.5, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
    "legend.frameon": False, "legend.handlelength": 2.2, "legend.columnspacing": 1.2, "legend.handletextpad": 0.5,
    "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "flashfs", "figure.constrained_layout.use": True,
}  # fmt: skip
NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}


def draw(figure: Figure, path: Path, *, width_inches: float | None = None) -> None:
    """Draw ``figure`` into ``path`` (.svg, .pdf or .png), a paper's column wide, or its page if panels are beside each
    other, unless ``width_inches`` says otherwise."""
    check_name(path)
    drawn = render(figure, path.suffix, width_inches=width_inches)
    with replacing(path) as draft:
        draft.write_bytes(drawn)


def render(figure: Figure, suffix: str, *, width_inches: float | None = None, dpi: int = PNG_DPI) -> bytes:
    """The bytes of a file of that suffix (``draw``); ``dpi`` is a .png's."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    rows = -(-len(figure.panels) // figure.columns)
    width = width_inches or (COLUMN_INCHES if figure.columns == 1 else PAGE_INCHES)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the caller's own style is for the caller's pictures
        parameters: Any = matplotlib.rcParams
        parameters.update(STYLE)
        legend = _legend_rows(figure, width)
        canvas = Canvas(figsize=(width, _height(figure, rows) + 0.16 * legend))
        grid = canvas.subplots(rows, figure.columns, squeeze=False, sharey=_one_scale(figure))
        places = _places(figure)
        pairs = list(zip(grid.flat, figure.panels, strict=False))
        for axes, panel in pairs:
            _panel(axes, panel, places)
        for axes, panel in pairs:  # now that what shares a scale has all that is on it
            _scales(axes, panel, [other for other in figure.panels if other.y_label == panel.y_label])
        for axes in list(grid.flat)[len(figure.panels) :]:
            axes.set_axis_off()
        _inner_labels_off(grid)
        _legend(canvas, grid.flat, len(places), width)
        out = io.BytesIO()
        canvas.savefig(out, format=suffix[1:], dpi=dpi, metadata=NO_DATE[suffix])
        return out.getvalue()


def check_name(path: Path) -> None:
    """UsageError if the name does not say in which format to draw."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out {path}: use a name that ends in {', '.join(SUFFIXES)}")


def _height(figure: Figure, rows: int) -> float:
    return {1: 1.9, 2: 3.2}.get(rows, 1.55 * rows)


def _one_scale(figure: Figure) -> Any:
    """Panels that show the same are compared, so they have one scale."""
    return "row" if figure.what == "gc" else len({panel.y_label for panel in figure.panels if panel.series}) == 1


def _places(figure: Figure) -> dict[str, int]:
    """A number for each label: it looks the same in every panel."""
    return {label: i for i, label in enumerate(dict.fromkeys(s.label for panel in figure.panels for s in panel.series))}


def _legend_columns(labels: Sequence[str], width: float) -> int:
    longest = max(map(len, labels))
    return max(1, min(len(labels), int(width / (0.45 + 0.068 * longest))))


def _legend_rows(figure: Figure, width: float) -> int:
    labels = list(_places(figure))
    return -(-len(labels) // _legend_columns(labels, width)) if len(labels) > 1 else 0


def _legend(canvas: Any, axes: Any, count: int, width: float) -> None:
    """One for all panels, above them; none where there is nothing to tell apart."""
    handles: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if count > 1:
        columns = _legend_columns(list(handles), width)
        canvas.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def _inner_labels_off(grid: Any) -> None:
    """What the panel to the left, or the one below, says already."""
    for row in grid:
        for left, axes in reversed(list(pairwise(row))):
            if axes.get_ylabel() == left.get_ylabel():
                axes.set_ylabel("")
    for upper, lower in pairwise(grid):
        for above, below in zip(upper, lower, strict=True):
            if above.get_xlabel() == below.get_xlabel() and below.axison:
                above.set_xlabel("")


def _panel(axes: Axes, panel: Panel, places: dict[str, int]) -> None:
    if not panel.series:
        axes.set_axis_off()
        return
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.title:
        axes.set_title(panel.title)
    {"bars": _bars, "stack": _stack, "lines": _lines, "steps": _lines}[panel.form](axes, panel, places)
    if panel.y_at_1:
        axes.axhline(1, color="#404040", linewidth=0.6, zorder=0.5)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _heights(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _bars(axes: Axes, panel: Panel, places: dict[str, int]) -> None:
    wide = min(0.8 / len(panel.series), 0.5)
    for i, one in enumerate(panel.series):
        at = [group + wide * (i + 0.5 - len(panel.series) / 2) for group in range(len(panel.groups))]
        axes.bar(at, _heights(one.y), wide, label=one.label, yerr=_errors(one),
                 error_kw={"elinewidth": 0.6, "capsize": 1.5, "capthick": 0.6}, **_fill(places[one.label]))  # fmt: skip
    _groups(axes, panel.groups)


def _stack(axes: Axes, panel: Panel, places: dict[str, int]) -> None:
    base = [0.0] * len(panel.groups)
    for one in panel.series:
        heights = [value or 0.0 for value in one.y]
        axes.bar(range(len(heights)), heights, 0.6, bottom=base, label=one.label, **_fill(places[one.label]))
        base = [below + height for below, height in zip(base, heights, strict=True)]
    _groups(axes, panel.groups)


def _fill(place: int) -> dict[str, Any]:
    return {"facecolor": _colour(place), "edgecolor": "white", "hatch": HATCHES[place % len(HATCHES)], "linewidth": 0.5}


def _groups(axes: Axes, groups: list[str]) -> None:
    """Names below the bars, aslant where they would run into each other."""
    axes.set_xticks(range(len(groups)), groups)
    if len(groups) > 1 and max(map(len, groups)) * len(groups) > SLANT_CHARACTERS:
        for name in axes.get_xticklabels():
            name.set(rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    room = 0.5 if len(groups) > 2 else 0.75  # two bars as wide as the column say no more than two narrow ones
    axes.set_xlim(-room, len(groups) - 1 + room)


def _errors(one: Series) -> list[list[float]] | None:
    if one.low is None or one.high is None:
        return None
    y, low, high = _heights(one.y), _heights(one.low), _heights(one.high)
    return [[a - b for a, b in zip(y, low, strict=True)], [b - a for a, b in zip(y, high, strict=True)]]


def _lines(axes: Axes, panel: Panel, places: dict[str, int]) -> None:
    """Markers at each point where they are few, else at some, or on none if the line turns too often."""
    steps = panel.form == "steps"
    for one in panel.series:
        place = places[one.label]
        marked = len(one.x) <= 12 and not steps
        axes.plot(one.x, _heights(one.y), drawstyle="steps-post" if steps else "default", label=one.label,
                  color=_colour(place), linestyle=DASHES[place % len(DASHES)],
                  marker=MARKERS[place % len(MARKERS)] if marked else None)  # fmt: skip
        if one.low is not None and one.high is not None:
            low, high = _heights(one.low), _heights(one.high)
            axes.fill_between(one.x, low, high, color=_colour(place), alpha=0.2, linewidth=0)


def _top(panels: Sequence[Panel]) -> float:
    """The highest thing in any of them."""
    values = [0.0]
    for panel in panels:
        if panel.form == "stack":
            values += [sum(parts) for parts in zip(*([y or 0.0 for y in one.y] for one in panel.series), strict=True)]
        for one in panel.series:
            values += [value for value in (*one.y, *(one.high or ())) if value is not None]
    return max(values)


def _scales(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """``alike`` are the panels that share the y axis, this one among them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    top = _top(alike)
    positive = [x for one in panel.series for x in one.x if x > 0]
    if panel.x_scale == "log" and positive:  # whole decades: a part of one has no tick that says where it is
        axes.set_xscale("log")
        axes.set_xlim(10 ** math.floor(math.log10(min(positive))), 10 ** math.ceil(math.log10(max(positive)) + 1e-9))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif panel.x_scale in ("sizes", "MiB"):
        at = sorted({x for one in panel.series for x in one.x})
        unit, unit_name = _unit(max(at[0], 1 << 20) if panel.x_scale == "MiB" else at[0])
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(at))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / unit:g}"))
        axes.set_xlabel(f"{panel.x_label} ({unit_name})" if axes.get_xlabel() else "")
    elif panel.form == "lines":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short_number(x)))
    if panel.form in ("lines", "steps") and panel.x_scale == "linear":
        _count_whole(axes.xaxis, [x for one in panel.series for x in one.x])
    if panel.y_scale == "log" and top > 0:
        axes.set_yscale("log")
    elif panel.y_scale == "share":
        axes.set_ylim(0, 1.02)
    elif panel.y_scale == "nines":
        _nines_axis(axes, alike)
    else:
        axes.set_ylim(0, top * HEADROOM or 1.0)
        if panel.y_scale == "bytes":
            _bytes_axis(axes)
        else:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short_number(y)))
            _count_whole(axes.yaxis, [y for panel in alike for one in panel.series for y in one.y])


def _count_whole(axis: Axis, values: Sequence[float | None]) -> None:
    """Of what comes in whole numbers alone, such as levels, there is no half."""
    from matplotlib.ticker import MaxNLocator

    if all(float(value).is_integer() for value in values if value is not None):
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def _nines_axis(axes: Axes, panels: Sequence[Panel]) -> None:
    """Shares by the logarithm of what they leave: 0.9, 0.99 and 0.999 are equally far from each other. The whole is at
    the upper edge, beyond the least that is left anywhere."""
    import numpy as np
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    left = [1 - y for panel in panels for one in panel.series for y in one.y if y is not None and 1 - y > ROUNDING]
    nines = max(1, math.ceil(-math.log10(min(left)))) if left else 1
    least = 10.0 ** -(nines + 0.3)
    axes.set_yscale("function", functions=(lambda y: -np.log10(np.clip(1 - y, least, 1)),
                                           lambda y: 1 - 10.0 ** -np.asarray(y, dtype=float)))  # fmt: skip
    axes.set_ylim(0, 1 - least)
    at = [0.0, *([0.5] if nines <= 3 else []), *(1 - 10.0**-n for n in range(1, nines + 1))]
    axes.yaxis.set_major_locator(FixedLocator(at))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.{nines}f}".rstrip("0").rstrip(".")))


def _bytes_axis(axes: Axes) -> None:
    """Ticks at round numbers of the unit that fits."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    top = axes.get_ylim()[1]
    unit, name = _unit(top / 2)
    ticks = MaxNLocator(5, steps=[1, 2, 4, 5, 8, 10]).tick_values(0, top / unit)
    axes.set_yticks([tick * unit for tick in ticks if tick * unit <= top])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y / unit:g}"))
    axes.set_ylabel(axes.get_ylabel().replace("bytes", name))


def _unit(size_bytes: float) -> tuple[int, str]:
    """The largest of which there is one in it: its bytes, and its name."""
    power = next((power for power in (4, 3, 2, 1) if size_bytes >= 1024**power), 0)
    return 1024**power, UNITS[power]


def _short_number(value: float) -> str:
    """200k for 200000."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit or (abs(value) >= unit and value % (unit / 10) == 0):
            return f"{value / unit:g}{name}"
    return f"{value:g}"
