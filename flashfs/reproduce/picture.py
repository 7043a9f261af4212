"""The plot of a figure: our values as bars or lines, with the paper's numbers beside them if it has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashfs.replay.plots import Figure as Drawing
from flashfs.replay.plots import Panel, Series, draw
from flashfs.reproduce.figure import NUMBERED, Figure
from flashfs.reproduce.verdict import Line

__all__ = ["draw", "of"]


def of(figure: Figure, lines: Sequence[Line], values: Mapping[tuple[str, str], float | None]) -> Drawing | None:
    """The drawing of a figure; None if there is nothing to draw."""
    xs = [x.name for x in figure.xs if any((one.name, x.name) in values for one in figure.series)]
    at = {name: _number(name) for name in xs}
    along = figure.form == "lines" and all(value is not None for value in at.values())
    places = [value for value in at.values() if value is not None] if along else []
    series = []
    for one in figure.series:
        ours = [values.get((one.name, x)) for x in xs]
        if any(value is not None for value in ours):
            series.append(Series(one.name, ours, list(places)))
        theirs = [_paper(lines, one.name, x) for x in xs]
        if any(value is not None for value in theirs):
            series.append(Series(f"{one.name}, paper", theirs, list(places)))
    if not series:
        return None
    panel = Panel("lines" if along else "bars", figure.x, figure.y, series, groups=[] if along else xs)
    if along and min(places) > 0 and max(places) >= 30 * min(places):
        panel.x_scale = "log"
    panel.y_at_1 = figure.value.relative
    return Drawing(figure.name, [panel])


def _paper(lines: Sequence[Line], series: str, x: str) -> float | None:
    found = [one.paper for one in lines if (one.series, one.x) == (series, x) and one.rule in NUMBERED[:1]]
    return found[0] if found else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
