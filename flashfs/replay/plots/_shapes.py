"""What a picture shows, as plain numbers: figures of panels of series. Nothing here knows of results, or draws."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Series:
    """One curve, or the bars of one kind: ``y[i]`` at ``x[i]``, or in the panel's group i; None where there is nothing.
    An ``x`` of None has no place among the numbers, as a DRAM without a limit: it is drawn beyond the last of them.
    ``low`` and ``high``, if there are repeats, are the least and the most of them. A ``reference`` is no result: a
    formula, say."""

    label: str
    y: list[float | None]
    x: list[float | None] = field(default_factory=list)
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    reference: bool = False


@dataclass
class Panel:
    """One pair of axes. ``form`` is bars (side by side in ``groups``), stack (on top of each other), dots (a mark for
    each, above its group), lines or steps."""

    form: str
    x_label: str
    y_label: str
    series: list[Series]
    title: str = ""
    groups: list[str] = field(default_factory=list)
    x_scale: str = "linear"  #: linear, log, sizes (powers of two of bytes, with a tick at each x) or MiB: at least
    y_scale: str = "linear"  #: linear, log, share (0 to 1), nines (a share by the log of what it leaves) or bytes
    y_at_1: bool = False  #: y is a multiple of the baseline's
    x_none: str = "none"  #: below an x of None
    before: float | None = None  #: of steps: where a curve is before its first x; None: it begins there


@dataclass
class Figure:
    """Panels, ``columns`` of them beside each other. ``left_out`` has a line for each result that was asked for and is
    not in the picture."""

    what: str
    panels: list[Panel]
    columns: int = 1
    left_out: list[str] = field(default_factory=list)
