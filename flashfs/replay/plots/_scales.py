"""Axes: their scales, their ticks and the labels of the ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashfs.replay.plots._shapes import Panel
from flashfs.text import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

HEADROOM = 1.06  #: the y axis ends at this multiple of the highest value
ROUNDING = 1e-12  #: of shares: what is closer to 1 counts as 1
BEYOND = 0.12  #: of the axis's length: how far beyond the last number the points without a number are
DECADES = 2  #: a logarithmic y axis of at most so many has ticks between them


def _top(panels: Sequence[Panel]) -> float:
    """The highest value in any of the panels."""
    values = [0.0]
    for panel in panels:
        if panel.form == "stack":
            values += [sum(parts) for parts in zip(*([y or 0.0 for y in one.y] for one in panel.series), strict=True)]
        for one in panel.series:
            values += [value for value in (*one.y, *(one.high or ())) if value is not None]
    return max(values)


def set_scales(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """Set both scales of a panel. ``alike`` are the panels that share the y axis, this one among them."""
    if panel.form in ("lines", "steps"):
        _x_scale(axes, panel)
    _y_scale(axes, panel, alike)


def _x_scale(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    at = sorted({x for one in panel.series for x in one.x if x is not None})
    positive = [x for x in at if x > 0]
    if panel.x_scale == "log" and positive:  # whole decades: a part of one would have no tick
        axes.set_xscale("log")
        axes.set_xlim(10 ** math.floor(math.log10(min(positive))), 10 ** math.ceil(math.log10(max(positive)) + 1e-9))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif panel.x_scale in ("sizes", "MiB") and positive == at:
        unit, unit_name = _unit(max(at[0], 1 << 20) if panel.x_scale == "MiB" else at[0])
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(at))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / unit:g}"))
        axes.set_xlabel(f"{panel.x_label} ({unit_name})" if axes.get_xlabel() else "")
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short_number(x)))
        _count_whole(axes.xaxis, at)


def none_at(axes: Axes, panel: Panel) -> float | None:
    """The place on the x axis, beyond the numbers, for points without an x; None if there are no such points. Sets
    ticks and limits accordingly."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    if all(x is not None for one in panel.series for x in one.x):
        return None
    numbers = [x for one in panel.series for x in one.x if x is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    scale = axes.xaxis.get_transform()
    start, end = (float(scale.transform([value])[0]) for value in (low, high))
    step = BEYOND * ((end - start) or 1.0)
    place, edge = (float(scale.inverted().transform([end + n * step])[0]) for n in (1, 1.5))
    first = float(scale.inverted().transform([start - step / 2])[0])
    write = axes.xaxis.get_major_formatter()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    axes.set_xlim(first, edge)
    axes.xaxis.set_major_locator(FixedLocator([*ticks, place]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, at: panel.x_none if x >= place else str(write(x, at))))
    return place


def _y_scale(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    from matplotlib.ticker import FuncFormatter

    top = _top(alike)
    if panel.y_scale == "log" and top > 0:
        axes.set_yscale("log")
        _log_axis(axes, panel, alike)
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


def _log_axis(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """A logarithmic y axis with plain numbers; if it has few decades, with ticks at 1, 2 and 5. Curves of shares leave
    it at the lower edge."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = [y for one in alike for series in one.series for y in series.y if y is not None and y > 0]
    low, high = min(values), max(values)
    if panel.form == "steps":
        axes.set_ylim(10 ** math.floor(math.log10(low)), 1.2)
        return
    axes.set_ylim(low / 1.3, high * 1.3)
    if high <= low * 10**DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short_number(y)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _count_whole(axis: Axis, values: Sequence[float | None]) -> None:
    """If all values are whole numbers, such as levels, put ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    if all(float(value).is_integer() for value in values if value is not None):
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def _nines_axis(axes: Axes, panels: Sequence[Panel]) -> None:
    """Shares on the logarithm of 1 minus the share: 0.9, 0.99 and 0.999 are equally far apart. 1 is at the upper edge,
    beyond the largest share below 1."""
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
    """Ticks at round numbers of a suitable unit."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    top = axes.get_ylim()[1]
    unit, name = _unit(top / 2)
    ticks = MaxNLocator(5, steps=[1, 2, 4, 5, 8, 10]).tick_values(0, top / unit)
    axes.set_yticks([tick * unit for tick in ticks if tick * unit <= top])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y / unit:g}"))
    axes.set_ylabel(axes.get_ylabel().replace("bytes", name))


def _unit(size_bytes: float) -> tuple[int, str]:
    """(bytes, name) of the largest unit that is at most ``size_bytes``."""
    power = next((power for power in (4, 3, 2, 1) if size_bytes >= 1024**power), 0)
    return 1024**power, UNITS[power]


def _short_number(value: float) -> str:
    """200k for 200000."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit or (abs(value) >= unit and value % (unit / 10) == 0):
            return f"{value / unit:g}{name}"
    return f"{value:g}"
