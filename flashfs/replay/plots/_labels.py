"""Room for words: labels below bars, above panels and in the legend are turned, wrapped or thinned out until none of
them overlap."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.text import Text

GAP = 2.0  #: points between two words on one line
LINES_GAP = 0.5  #: points between two lines of turned words
TURNS = (30, 45, 60, 90)  #: degrees
WRAPPED_LINES = 3  #: below a bar, at most
LEAST_INCHES = 0.9  #: least height of a pair of axes
SHORTEST = 6  #: letters of a wrapped line, at least
LEGEND_SHARE = 0.98  #: of the picture's width
LEGEND_LETTERS = (1000, 60, 40, 30, 20)  #: of a line in the legend: the first for which there is room
ROUNDS = 5  #: of layout, measuring and making room, at most
TALLER = 1.5  #: factor for a picture in which words leave no room for the axes

_NAMES: WeakKeyDictionary[Axes, list[str]] = WeakKeyDictionary()  #: below bars


def arrange(canvas: Any, all_axes: Sequence[Axes], rows: int) -> bool:
    """Make room for the words of a figure that is otherwise drawn. Returns whether there is enough."""
    for _ in range(ROUNDS):
        if not _laid_out(canvas):  # words take all of the height
            canvas.set_size_inches(canvas.get_figwidth(), canvas.get_figheight() * TALLER)
            continue
        changed = [_wrap_words(axes) for axes in all_axes]
        turns = [_turn(axes) for axes in all_axes]
        if None in turns:
            return False
        short = LEAST_INCHES - min(axes.get_window_extent().height for axes in all_axes) / canvas.dpi
        if short > 0.02:
            canvas.set_size_inches(canvas.get_figwidth(), canvas.get_figheight() + short * rows)
        elif not any(changed) and not any(turns):
            break
    if not _laid_out(canvas):
        return False
    for axes in all_axes:
        _thin(axes.yaxis, 1)
        if axes not in _NAMES:
            _thin(axes.xaxis, 0)  # ticks without a visible label stay
    return all(_turn(axes) is not None for axes in all_axes)


def _laid_out(canvas: Any) -> bool:
    """Run the layout; False if words leave no room for the axes, of which matplotlib warns."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        canvas.get_layout_engine().execute(canvas)
    return not said


def _wrap_words(axes: Axes) -> bool:
    """Wrap titles and axis labels that are longer than their side of the axes. Returns whether any changed."""
    box = axes.get_window_extent()
    return any([
        _wrapped(axes.title, box.width, False), _wrapped(axes.xaxis.label, box.width, False),
        _wrapped(axes.yaxis.label, box.height, True),
    ])  # fmt: skip


def _wrapped(text: Text, room: float, upright: bool) -> bool:
    before = text.get_text()
    words = " ".join(before.split())
    text.set_text(words)
    box = text.get_window_extent()
    length = box.height if upright else box.width
    if words and length > room:
        text.set_text(textwrap.fill(words, max(SHORTEST, int(len(words) * room / length))))
    return text.get_text() != before


def name_bars(axes: Axes, at: Sequence[float], names: Sequence[str]) -> None:
    """Put names below bars; ``arrange`` turns them where needed."""
    axes.set_xticks(at, [literal(name) for name in names])
    axes.tick_params(axis="x", length=0)
    _NAMES[axes] = list(names)


def unname(axes: Axes) -> None:
    """Remove the names below bars: the panel below has the same ones."""
    axes.tick_params(axis="x", labelbottom=False)
    del _NAMES[axes]


def _turn(axes: Axes) -> bool | None:
    """Set the names below bars side by side, wrapped if needed, else turned as little as possible. Returns whether
    anything changed; None if there is no room."""
    names = _NAMES.get(axes, [])
    labels = axes.get_xticklabels()
    if len(names) < 2:
        return False
    point = axes.figure.dpi / 72
    at = [float(axes.transData.transform((tick, 0))[0]) for tick in axes.get_xticks()]
    apart = min(b - a for a, b in pairwise(at))
    before = [(label.get_text(), label.get_rotation()) for label in labels]
    for lines in (1, 2, WRAPPED_LINES):
        _stand(axes, [_lines(name, lines) for name in names], 0)
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        if all(a.x1 + GAP * point <= b.x0 for a, b in pairwise(boxes)):
            break
    else:
        _stand(axes, list(names), 0)
        height = max(label.get_window_extent().height for label in axes.get_xticklabels()) + LINES_GAP * point
        turns = [turn for turn in TURNS if apart * math.sin(math.radians(turn)) >= height]
        _stand(axes, list(names), turns[0] if turns else TURNS[-1])
        if not turns:
            return None
    return before != [(label.get_text(), label.get_rotation()) for label in axes.get_xticklabels()]


def _stand(axes: Axes, names: Sequence[str], turn: int) -> None:
    axes.set_xticks(axes.get_xticks(), [literal(name) for name in names])
    for label in axes.get_xticklabels():
        if turn == 90:
            label.set(rotation=90, ha="center", va="top", rotation_mode="default")
        elif turn:
            label.set(rotation=turn, ha="right", va="top", rotation_mode="anchor")
        else:
            label.set(rotation=0, ha="center", va="top", rotation_mode="default")


def _lines(name: str, most: int) -> str:
    """The name in at most ``most`` lines of about equal length."""
    if most == 1 or " " not in name:
        return name
    for width in range(-(-len(name) // most), len(name)):
        lines = textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= most:
            return "\n".join(lines)
    return name


def _thin(axis: Axis, along: int) -> None:
    """Drop ticks whose numbers overlap. The last one stays."""
    from matplotlib.ticker import FixedLocator

    low, high = sorted(axis.get_view_interval())
    ticks = [
        tick
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible() and tick.label1.get_text() and low <= tick.get_loc() <= high
    ]
    gap = GAP * axis.axes.figure.dpi / 72 if along == 0 else 0.0
    kept: list[float] = []
    end = math.inf
    for tick in reversed(ticks):
        (x0, y0), (x1, y1) = tick.label1.get_window_extent().get_points()
        first, last = (x0, x1) if along == 0 else (y0, y1)
        if last + gap <= end:
            kept.append(float(tick.get_loc()))
            end = first
    if len(kept) < len(ticks):
        axis.set_major_locator(FixedLocator(kept[::-1]))


def legend(canvas: Any, handles: dict[str, Any]) -> float:
    """One legend for all panels, above them, in as many columns as there is room for. Returns its height in inches."""
    from matplotlib import rcParams

    if len(handles) < 2:
        return 0.0
    room = canvas.get_size_inches()[0] * canvas.dpi * LEGEND_SHARE
    for letters in LEGEND_LETTERS:
        words = [_lines_of(label, letters) for label in handles]
        for columns in range(len(words), 0, -1):
            made = canvas.legend(list(handles.values()), words, loc="outside upper center", ncols=columns)
            box = made.get_window_extent(canvas.canvas.get_renderer())
            if box.width <= room or (letters, columns) == (LEGEND_LETTERS[-1], 1):
                break
            made.remove()
        else:
            continue
        break
    for line in made.get_lines():  # covered curves are wider only in their panel
        line.set(linewidth=rcParams["lines.linewidth"], markersize=rcParams["lines.markersize"])
    return float(box.height / canvas.dpi)


def _lines_of(label: str, letters: int) -> str:
    """A wrapped label for the legend: matplotlib would leave out one that begins with _."""
    words = literal(textwrap.fill(label, letters))
    return f" {words}" if words.startswith("_") else words


def literal(words: str) -> str:
    """Words with dollars escaped: matplotlib takes text between two dollars for a formula."""
    return words.replace("$", r"\$")
