"""A figure that draws itself: what a notebook shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashfs.replay.plots import _figures
from flashfs.replay.plots._draw import draw, render
from flashfs.replay.plots._shapes import Figure

if TYPE_CHECKING:
    import polars

SHOWN_DPI = 150  #: of the bitmap that a notebook keeps for viewers without SVG


@dataclass
class Picture(Figure):
    """A figure as plain numbers (``panels``); a notebook shows it, ``save`` draws it into a file. ``width_inches`` None
    is the width of a paper's column, or of its page if panels are side by side or a column has no room."""

    width_inches: float | None = None

    def save(self, path: str | Path) -> Path:
        """Draw it into a .svg, .pdf or .png; returns the path. UsageError for another suffix."""
        path = Path(path)
        draw(self, path, width_inches=self.width_inches)
        return path

    def _repr_svg_(self) -> str:
        return render(self, ".svg", width_inches=self.width_inches).decode()

    def _repr_png_(self) -> bytes:
        return render(self, ".png", width_inches=self.width_inches, dpi=SHOWN_DPI)

    def __repr__(self) -> str:
        panels = f"{len(self.panels)} panel{'s' if len(self.panels) > 1 else ''}"
        labels = dict.fromkeys(series.label for panel in self.panels for series in panel.series)
        return f"<Picture of {self.what}: {panels}, {', '.join(labels)}>"


def figure(
    table: polars.DataFrame, what: str, *, x: str | None = None, baseline: str | None = None,
    where: Mapping[str, str] | None = None,
) -> Picture:  # fmt: skip
    """The picture ``what`` of the rows of ``table`` (see ``results.read``): a name of KINDS, a column of numbers, or
    ``cdf:`` and a column of counts.

    ``x`` is the column for the x axis instead of the kind's own; ``where`` keeps the rows with these values;
    ``baseline`` is the FTL whose values become 1. UsageError for names that the rows do not have, and for a picture
    that could not show one of its curves, bars or points.
    """
    found = _figures.figure(table, what, x=x, baseline=baseline, where=where)
    return Picture(found.what, found.panels, found.columns, found.left_out)
