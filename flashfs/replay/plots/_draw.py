"""Draws a figure with matplotlib, sized for a column of a paper.

Letters have the size of a paper's text, nothing is distinguished by colour alone (bars are hatched, lines dashed and
marked), no word overlaps another, and PDF and SVG contain their fonts. The same figure gives the same bytes: no date,
no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.replay.plots import _forms, _labels, _scales
from flashfs.replay.plots._shapes import Figure, Panel
from flashfs.replay.results import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".pdf", ".png")
COLUMN_INCHES, PAGE_INCHES = 3.33, 7.0  #: of a paper with two columns
PNG_DPI = 300
LEAST_PANEL = 1.5  #: inches of a panel's width, with its labels
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so letters, and bytes, are the same everywhere
    "font.size": 7.5, "axes.labelsize": 7.5, "axes.titlesize": 7.5, "legend.fontsize": 7,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "axes.linewidth": 0.6,
    "lines.linewidth": _forms.LINE_POINTS, "lines.markersize": _forms.MARK_POINTS,
    "hatch.linewidth": 0.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "axes.grid.axis": "y", "grid.linewidth": 0.4, "grid.color": "#D0D0D0",
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5, "ytick.minor.size": 1.5, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
    "legend.frameon": False, "legend.handlelength": 2.2, "legend.columnspacing": 1.2, "legend.handletextpad": 0.5,
    "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "flashfs", "figure.constrained_layout.use": True,
}  # fmt: skip
NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}


def draw(figure: Figure, path: Path, *, width_inches: float | None = None) -> None:
    """Draw ``figure`` into ``path`` (.svg, .pdf or .png). It is as wide as a paper's column, or as its page if panels
    are side by side or a column has no room, unless ``width_inches`` is given. UsageError if that is too narrow."""
    check_name(path)
    drawn = render(figure, path.suffix, width_inches=width_inches)
    with replacing(path) as draft:
        draft.write_bytes(drawn)


def render(figure: Figure, suffix: str, *, width_inches: float | None = None, dpi: int = PNG_DPI) -> bytes:
    """The bytes of the file that ``draw`` would write with this suffix; ``dpi`` is for .png."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the caller's style
        parameters: Any = matplotlib.rcParams
        parameters.update(STYLE)
        canvas = _canvas(figure, width_inches)
        out = io.BytesIO()
        canvas.savefig(out, format=suffix[1:], dpi=dpi, metadata=NO_DATE[suffix])
        return out.getvalue()


def check_name(path: Path) -> None:
    """UsageError if the suffix is none of SUFFIXES."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out {path}: use a name that ends in {', '.join(SUFFIXES)}")


def _canvas(figure: Figure, width_inches: float | None) -> Any:
    """The whole figure, in the first layout in which every word has room. UsageError if there is none."""
    for width, columns in _ways(figure, width_inches):
        canvas = _set_out(figure, width, columns)
        if canvas is not None:
            return canvas
    names = max(len(_forms.names(panel)) for panel in figure.panels)
    raise UsageError(
        f"{figure.what}: {names} names below the bars of one panel have no room in {width:g} inches; use --width for "
        "more, or --where NAME=VALUE to leave some out"
    )


def _ways(figure: Figure, width_inches: float | None) -> Iterator[tuple[float, int]]:
    """(width in inches, panels side by side), the best layout first."""
    widths = [width_inches] if width_inches else [COLUMN_INCHES, PAGE_INCHES] if figure.columns == 1 else [PAGE_INCHES]
    ways = [(width, columns) for width in widths
            for columns in range(max(1, min(figure.columns, int(width / LEAST_PANEL))), 0, -1)]  # fmt: skip
    thick = [(width, columns) for width, columns in ways if all(
        _forms.bar_points(panel, width / columns) >= _forms.THICK_BAR for panel in figure.panels)]  # fmt: skip
    yield from thick
    yield from (way for way in ways[::-1] if way not in thick)


def _set_out(figure: Figure, width: float, columns: int) -> Any:
    """A canvas with everything drawn; None if it has no room for all words."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    panels = _reflowed(figure, columns)
    rows = -(-len(panels) // columns)
    canvas = Canvas(figsize=(width, _height(rows)))
    FigureCanvasAgg(canvas)  # needed to measure text
    grid = canvas.subplots(rows, columns, squeeze=False, sharey=_one_scale(figure, columns))
    key = _forms.Key.of(figure, width / columns)
    pairs = list(zip(grid.flat, panels, strict=False))
    for axes, panel in pairs:
        _panel(axes, panel, key)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    _inner_labels_off(grid)
    for i, (axes, panel) in enumerate(pairs[:-columns] if panels else []):
        if panel.series and _forms.names(panel) == _forms.names(panels[i + columns]) != []:
            _labels.unname(axes)
    height = 0.0 if key.named else _labels.legend(canvas, key.handles)
    canvas.set_size_inches(width, _height(rows) + height)
    drawn = [(axes, panel) for axes, panel in pairs if panel.series]
    for axes, panel in drawn:  # only now is everything there that shares a scale
        _scales.set_scales(axes, panel, [other for other in panels if other.y_label == panel.y_label])
        _forms.put_by_scale(axes, panel, key)
    return canvas if _labels.arrange(canvas, [axes for axes, _ in drawn], rows) else None


def _reflowed(figure: Figure, columns: int) -> list[Panel]:
    """The panels in reading order for ``columns`` columns; a panel of ``gc`` that belongs below another stays there."""
    if columns == figure.columns:
        return figure.panels
    panels = figure.panels
    if figure.what == "gc":
        at = range(0, len(panels), 2 * figure.columns)
        panels = [panels[row + i + below] for row in at for i in range(figure.columns) for below in (0, figure.columns)]
    return [panel for panel in panels if panel.series]


def _height(rows: int) -> float:
    return {1: 1.9, 2: 3.2}.get(rows, 1.55 * rows)


def _one_scale(figure: Figure, columns: int) -> Any:
    """Which axes share a y scale (``sharey``): panels that show the same quantity, so that they compare."""
    if figure.what == "gc":
        return "row" if columns == figure.columns else False
    return len({panel.y_label for panel in figure.panels if panel.series}) == 1


def _inner_labels_off(grid: Any) -> None:
    """Remove axis labels that the panel to the left, or the one below, has too. A shared scale is labelled at the first
    panel of each row."""
    for row in grid:
        for left, axes in reversed(list(pairwise(row))):
            if axes.get_ylabel() == left.get_ylabel():
                axes.set_ylabel("")
        first = next((axes for axes in row if axes.axison), None)
        if first is not None:
            first.tick_params(labelleft=True)
    for upper, lower in pairwise(grid):
        for above, below in zip(upper, lower, strict=True):
            if above.get_xlabel() == below.get_xlabel() and below.axison:
                above.set_xlabel("")


def _panel(axes: Axes, panel: Panel, key: _forms.Key) -> None:
    if not panel.series:
        axes.set_axis_off()
        return
    axes.set_xlabel(_labels.literal(panel.x_label))
    axes.set_ylabel(_labels.literal(panel.y_label))
    if panel.title:
        axes.set_title(_labels.literal(panel.title))
    _forms.put(axes, panel, key)
