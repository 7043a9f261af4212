"""Draws bars, stacks, dots and curves on axes, and gives each label its look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashfs.replay.plots import _labels, _scales
from flashfs.replay.plots._shapes import Figure, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_POINTS, MARK_POINTS = 1.2, 3.5  #: how wide a line is, and how large a mark
COINCIDE = 0.004  #: of the highest y: curves that are nowhere further apart cover each other
WIDER, MOST_WIDER = 1.3, 5  #: points by which a covered curve is wider per curve on it, for so many at most
FEW_POINTS = 12  #: a curve of at most so many points has a mark at each
MARKS = 5  #: on a curve with more points
PLOT_SHARE = 0.8  #: of a panel's width is within the axes
THICK_BAR = 3.0  #: points of a bar's width from which a hatch is visible
#: Okabe and Ito's colours, which colour-blind readers can distinguish, without yellow, which is faint on paper; then
#: others that differ clearly from those
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#882255", "#999933", "#332288",
    "#8C510A", "#888888", "#86C232", "#C00000", "#7B5FD0", "#B8A9E0",
)  # fmt: skip
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  #: filled, and then hollow
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
REFERENCE = {"color": "#404040", "linewidth": 0.9, "linestyle": (0, (1, 1)), "zorder": 3}
WHISKERS = {"elinewidth": 0.6, "capsize": 1.5, "capthick": 0.6}


@dataclass
class Key:
    """The looks shared by all panels: ``places`` numbers the labels, which decides their looks; ``handles`` are their
    legend entries. ``named``: names are below the bars, without a legend. ``panel_inches`` is a panel's width."""

    places: dict[str, int]
    named: bool
    panel_inches: float
    handles: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, figure: Figure, panel_inches: float) -> Key:
        panels = [panel for panel in figure.panels if panel.series]
        every = [one for panel in panels for one in panel.series]
        places = {label: i for i, label in enumerate(dict.fromkeys(one.label for one in every if not one.reference))}
        # if every panel has one group of bars, names below the bars read better than a legend
        named = len(places) > 1 and all(panel.form == "bars" and len(panel.groups) == 1 for panel in panels)
        return cls(places, named, panel_inches)

    def fill(self, one: Series, thin: bool = False) -> dict[str, Any]:
        """The look of bars. A colour that repeats has another hatch; thin bars have none, as it would hide them."""
        place = 0 if self.named else self.places[one.label]
        colour = COLOURS[place % len(COLOURS)]
        if thin:
            return {"facecolor": colour, "linewidth": 0}
        hatch = HATCHES[(place + place // len(COLOURS)) % len(HATCHES)]
        return {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "linewidth": 0.5}

    def look(self, one: Series, panel: Panel) -> dict[str, Any]:
        """The look of a curve. No two have the same mark, nor the same colour and dashes; a covered curve is wider."""
        if one.reference:
            return REFERENCE
        place = self.places[one.label]
        more = WIDER * min(_covering(one, panel), MOST_WIDER)
        look = {
            "color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)],
            "marker": MARKERS[place % len(MARKERS)], "linewidth": LINE_POINTS + more, "markersize": MARK_POINTS + more,
        }  # fmt: skip
        return look if place // len(MARKERS) % 2 == 0 else {**look, "markerfacecolor": "white"}


def _covering(one: Series, panel: Panel) -> int:
    """How many later curves cover this one."""
    top = max((abs(y) for other in panel.series for y in other.y if y is not None), default=0.0)

    def covers(other: Series) -> bool:
        return not other.reference and other.x == one.x and all(
            a == b or (a is not None and b is not None and abs(a - b) <= COINCIDE * top)
            for a, b in zip(one.y, other.y, strict=True))  # fmt: skip

    at = next(i for i, other in enumerate(panel.series) if other is one)
    return sum(covers(other) for other in panel.series[at + 1 :])


def put(axes: Axes, panel: Panel, key: Key) -> None:
    """Draw everything that does not depend on the scales."""
    if panel.form == "bars":
        _bars(axes, panel, key)
    elif panel.form == "stack":
        _stack(axes, panel, key)
    elif panel.form == "dots":
        _dots(axes, panel, key)
    else:
        _curves(axes, panel, key)
    if panel.y_at_1:
        axes.axhline(1, color="#404040", linewidth=0.6, zorder=0.5)


def put_by_scale(axes: Axes, panel: Panel, key: Key) -> None:
    """Draw what depends on the scales: steps up to the edges, and points that have no x."""
    if panel.form == "steps":
        _to_the_edges(axes, panel)
    place = _scales.none_at(axes, panel) if panel.form == "lines" else None
    if place is None:
        return
    for one in panel.series:
        for _, y, low, high in _points(one, beyond=True):
            axes.errorbar([place], [y], yerr=[[y - low], [high - y]], elinewidth=0.6, capsize=1.5,
                          **key.look(one, panel))  # fmt: skip


def bar_points(panel: Panel, panel_inches: float) -> float:
    """The approximate width of a bar in points."""
    bars = len(panel.groups) * (1 if panel.form == "stack" else len(panel.series) + 1)
    return 72 * PLOT_SHARE * panel_inches / bars if bars else THICK_BAR


def names(panel: Panel) -> list[str]:
    """The names below a panel's bars."""
    return [one.label for one in panel.series] if panel.form == "bars" and len(panel.groups) == 1 else panel.groups


def _heights(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _errors(one: Series) -> list[list[float]] | None:
    if one.low is None or one.high is None:
        return None
    y, low, high = _heights(one.y), _heights(one.low), _heights(one.high)
    return [[a - b for a, b in zip(y, low, strict=True)], [b - a for a, b in zip(y, high, strict=True)]]


def _bars(axes: Axes, panel: Panel, key: Key) -> None:
    """Bars side by side in their groups; or, in one group, each with its name below it."""
    wide = 0.6 if key.named else min(0.8 / len(panel.series), 0.5)
    thin = bar_points(panel, key.panel_inches) < THICK_BAR
    for i, one in enumerate(panel.series):
        at = [group + wide * (i + 0.5 - len(panel.series) / 2) for group in range(len(panel.groups))]
        made = axes.bar([i] if key.named else at, _heights(one.y), wide, yerr=_errors(one), error_kw=WHISKERS,
                        **key.fill(one, thin))  # fmt: skip
        key.handles.setdefault(one.label, made)
    if key.named:
        axes.set_xlabel(_labels.literal(", ".join(word for word in (panel.x_label, panel.groups[0]) if word)))
    _groups(axes, names(panel) if key.named else panel.groups)


def _stack(axes: Axes, panel: Panel, key: Key) -> None:
    base = [0.0] * len(panel.groups)
    for one in panel.series:
        heights = [value or 0.0 for value in one.y]
        key.handles.setdefault(one.label, axes.bar(range(len(heights)), heights, 0.6, bottom=base, **key.fill(one)))
        base = [below + height for below, height in zip(base, heights, strict=True)]
    _groups(axes, panel.groups)


def _dots(axes: Axes, panel: Panel, key: Key) -> None:
    """A mark for each number, beside those of the other series."""
    apart = 0.6 / max(1, len(panel.series) - 1)
    for i, one in enumerate(panel.series):
        at = [group + apart * (i - (len(panel.series) - 1) / 2) for group in range(len(panel.groups))]
        (made,) = axes.plot(
            at, _heights(one.y), **{**key.look(one, panel), "linestyle": "none", "markersize": MARK_POINTS}
        )
        key.handles.setdefault(one.label, made)
    _groups(axes, panel.groups)
    for edge in range(1, len(panel.groups)):
        axes.axvline(edge - 0.5, color="#E4E4E4", linewidth=0.4, zorder=0.5)


def _groups(axes: Axes, groups: Sequence[str]) -> None:
    """Name the groups below the bars, and set the x limits."""
    _labels.name_bars(axes, range(len(groups)), groups)
    room = 0.5 if len(groups) > 2 else 0.75  # keep one or two bars narrow
    axes.set_xlim(-room, len(groups) - 1 + room)


def _points(one: Series, *, beyond: bool = False) -> list[tuple[float, float, float, float]]:
    """(x, y, least, most) of the points with an x, or, if ``beyond``, of those with none."""
    low, high = _heights(one.low or one.y), _heights(one.high or one.y)
    every = zip(one.x, _heights(one.y), low, high, strict=True)
    return [(x or 0.0, y, least, most) for x, y, least, most in every if (x is None) == beyond]


def _curves(axes: Axes, panel: Panel, key: Key) -> None:
    """Curves or steps; ``put_by_scale`` draws the points that have no x."""
    for one in panel.series:
        points = _points(one)
        x, y, low, high = ([point[part] for point in points] for part in range(4))
        look = key.look(one, panel)
        if not one.reference:
            look["markevery"] = _marked(y, key.places[one.label])
        (made,) = axes.plot(x, y, drawstyle="steps-post" if panel.form == "steps" else "default", **look)
        key.handles.setdefault(one.label, made)
        if one.low is not None:
            axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _marked(y: Sequence[float], place: int) -> list[int]:
    """Which points of a curve are marked: all if there are few, else MARKS of them, at other places on each curve, and
    isolated points, which no line shows."""
    if len(y) <= FEW_POINTS:
        return list(range(len(y)))
    gap = [True, *(math.isnan(value) for value in y), True]
    alone = {i for i in range(len(y)) if gap[i] and not gap[i + 1] and gap[i + 2]}
    step = len(y) / MARKS
    return sorted(alone | {int(step * (i + place % MARKS / MARKS)) for i in range(MARKS)})


def _to_the_edges(axes: Axes, panel: Panel) -> None:
    """Extend curves of shares to both edges, before their first step and after their last one."""
    left, right = axes.get_xlim()
    for line, one in zip(axes.get_lines(), panel.series, strict=False):
        x, y = ([point[part] for point in _points(one)] for part in range(2))
        if panel.before is not None and x[0] > 0:
            x, y = [left, *x], [panel.before, *y]
        line.set_data([*(max(left, one) for one in x), right], [*y, y[-1]])
    axes.set_xlim(left, right)
