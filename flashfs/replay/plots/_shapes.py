"""The contents of a picture as plain numbers: figures, panels and series. Nothing here knows results, or draws."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Series:
    """One curve, or the bars of one kind: ``y[i]`` at ``x[i]``, or in the panel's group i; None if there is no value.
    A point with an ``x`` of None (DRAM without a limit, say) is drawn beyond the last number. ``low`` and ``high`` are
    the least and the most of repeats, if there are any. A ``reference`` is not a result but, for example, a formula."""

    label: str
    y: list[float | None]
    x: list[float | None] = field(default_factory=list)
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    reference: bool = False


@dataclass
class Panel:
    """One pair of axes. ``form`` is bars (side by side in ``groups``), stack (on top of each other), dots (a mark for
    each value, above its group), lines or steps."""

    form: str
    x_label: str
    y_label: str
    series: list[Series]
    title: str = ""
    groups: list[str] = field(default_factory=list)
    x_scale: str = "linear"  #: linear, log, sizes (powers of two of bytes, a tick at each x), MiB (so, in MiB at least)
    y_scale: str = "linear"  #: linear, log, share (0 to 1), nines (a share by the log of 1 minus it) or bytes
    y_at_1: bool = False  #: y is a multiple of the baseline's
    x_none: str = "none"  #: the tick's label for an x of None
    before: float | None = None  #: of steps: y of a curve before its first x; None: it begins there


@dataclass
class Figure:
    """Panels, ``columns`` of them side by side. ``left_out`` has lines about requested results that are not in the
    picture."""

    what: str
    panels: list[Panel]
    columns: int = 1
    left_out: list[str] = field(default_factory=list)
