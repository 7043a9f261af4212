"""Pictures as they are drawn: no word runs into another, and everything that a picture names can be seen in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
from made_up import result
from matplotlib.text import Text
from schemes import thinned
from test_plot_axes import chip, over_op, table

from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from flashfs.replay.plots import Figure, Panel, Series, _draw, _forms, figure

MIB = 1 << 20
ALL = list(SCHEMES)
COLUMN, PAGE = _draw.COLUMN_INCHES, _draw.PAGE_INCHES


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with matplotlib.rc_context(_draw.STYLE):
        yield


def drawn(made: Figure, width: float | None = None) -> Any:
    canvas = _draw._canvas(made, width)
    canvas.draw_without_rendering()
    return canvas


def corners(text: Text) -> np.ndarray:
    """Of what it covers, in pixels: an upright box, turned about the point where the text is held."""
    turn = text.get_rotation()
    if turn % 90 == 0:
        return text.get_window_extent().corners()[[0, 1, 3, 2]]
    held = text.get_transform().transform(text.get_position())
    text.set_rotation(0)
    flat = text.get_window_extent().corners()[[0, 1, 3, 2]]
    text.set_rotation(turn)
    sin, cos = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    return (flat - held) @ np.array([[cos, sin], [-sin, cos]]) + held


def apart(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a line separates two convex shapes."""
    for shape in (one, other):
        for edge in np.roll(shape, -1, axis=0) - shape:
            normal = np.array([-edge[1], edge[0]])
            a, b = one @ normal, other @ normal
            if a.max() <= b.min() + 1e-6 or b.max() <= a.min() + 1e-6:
                return True
    return False


def words(canvas: Any) -> list[Text]:
    """All that is to be read."""
    found: list[Text] = [text for legend in canvas.legends for text in legend.get_texts()]
    for axes in canvas.axes:
        if axes.axison:
            found += [axes.title, axes.xaxis.label, axes.yaxis.label]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def check(canvas: Any) -> None:
    """No two words overlap, and none leaves the picture."""
    shapes = [(text.get_text(), corners(text)) for text in words(canvas)]
    for (said, one), (also, other) in combinations(shapes, 2):
        assert apart(one, other), (said, also)
    width, height = canvas.bbox.width, canvas.bbox.height
    for said, shape in shapes:
        assert shape.min() >= -1.5, said
        assert shape[:, 0].max() <= width + 1.5, said
        assert shape[:, 1].max() <= height + 1.5, said


def below(axes: Any) -> list[str]:
    return [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()]


def alone() -> list[dict[str, Any]]:
    return [result(ftl, waf=2.0 + n) for n, ftl in enumerate(ALL)]


def over_dram() -> list[dict[str, Any]]:
    return [result(ftl, waf=1.0 + n + 1 / (mib or 99), dram=mib and mib * MIB)
            for mib in (4, 5, 6, 7, 8, 10, 12, 16, 24, 32, None) for n, ftl in enumerate(ALL)]  # fmt: skip


def long_names() -> list[dict[str, Any]]:
    return [result(f"somebody.module_of_{n}:ClassOfALongName", f"uniform:ops=1,write=0.{i},size=16k,flush=0.1", waf=n)
            for i in range(1, 6) for n in range(1, 6)]  # fmt: skip


CASES = {
    "every FTL": (alone, ["waf", "mapping", "dram", "programs", "wear", "latency", "gc"]),
    "every FTL, 3 OP": (lambda: over_op(ALL), ["waf", "waf-op", "programs", "wear", "tail"]),
    "3 FTLs, 3 OP, 2 sources": (lambda: over_op(ALL[:3], ["uniform", "zipf"]), ["waf-op", "programs", "wear", "gc"]),
    "DRAM": (over_dram, ["waf", "hits"]),
    "long names": (long_names, ["waf", "programs", "wear", "latency"]),
}


PICTURES = [(case, what, width) for case, (_, kinds) in CASES.items() for what in kinds for width in (COLUMN, PAGE)]


@pytest.mark.parametrize(("case", "what", "width"), thinned(PICTURES, 6))
def test_no_word_runs_into_another(case: str, what: str, width: float) -> None:
    check(drawn(figure(table(*CASES[case][0]()), what), width))


def test_that_overlap_is_seen() -> None:
    """The check itself: names that are not turned."""
    canvas = drawn(figure(table(*alone()), "waf"), COLUMN)
    check(canvas)
    for label in canvas.axes[0].get_xticklabels():
        label.set(rotation=0, ha="center", rotation_mode="default")
    with pytest.raises(AssertionError):
        check(canvas)


def test_bars_by_ftl_have_their_names_below() -> None:
    """A legend of all FTLs would say less."""
    canvas = drawn(figure(table(*alone()), "waf"))
    assert below(canvas.axes[0]) == ALL
    assert canvas.legends == []
    assert [bar.get_height() for bar in canvas.axes[0].patches] == [2.0 + n for n in range(len(ALL))]


def test_groups_have_a_legend_of_all() -> None:
    rows = [result(ftl, source) for source in ("uniform", "zipf") for ftl in ALL]
    canvas = drawn(figure(table(*rows), "waf"))
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ALL
    assert len(canvas.axes[0].patches) == 2 * len(ALL)
    assert canvas.get_figwidth() == COLUMN
    rows = [result(ftl, f"uniform:ops={n}") for n in range(1, 7) for ftl in ALL]
    assert drawn(figure(table(*rows), "waf")).get_figwidth() == PAGE  # they could not be hatched in a column


def test_too_narrow_is_told() -> None:
    rows = [result(f"ftl{n}") for n in range(90)]
    with pytest.raises(
        UsageError, match="waf: 90 names below the bars of one panel have no room in 3 inches; use --wid"
    ):
        drawn(figure(table(*rows), "waf"), 3)
    check(drawn(figure(table(*rows), "waf"), 14))


def test_narrower_means_fewer_panels_beside_each_other() -> None:
    made = figure(table(*over_op(["pagemap", "dftl"], ["uniform", "zipf"])), "gc")
    titles = {width: [axes.get_ylabel().replace("\n", " ") for axes in drawn(made, width).axes] for width in (2, PAGE)}
    assert titles[PAGE] == ["GC pages per host page", "", "Free blocks", ""]
    assert titles[2] == ["GC pages per host page", "Free blocks"] * 2


# --- what is named can be seen


def test_each_curve_looks_its_own() -> None:
    series = [Series(f"{n}", [float(n)] * 2, [1.0, 2.0]) for n in range(16)]
    panel = Panel("lines", "x", "y", series)
    key = _forms.Key.of(Figure("made up", [panel]), COLUMN)
    looks = [key.look(one, panel) for one in series]
    assert len({(look["marker"], look.get("markerfacecolor")) for look in looks}) == 16
    assert len({look["color"] for look in looks}) == 16
    assert min(distance(a["color"], b["color"]) for a, b in combinations(looks, 2)) > 20
    fills = [key.fill(one) for one in series]
    assert len({(fill["facecolor"], fill["hatch"]) for fill in fills}) == 16


def distance(one: str, other: str) -> float:
    """Of two colours, in CIELAB: 2 is just seen, 10 at a glance."""

    def lab(colour: str) -> np.ndarray:
        rgb = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        x, y, z = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
        a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x / 0.9505, y, z / 1.089))
        return np.array([116 * b - 16, 500 * (a - b), 200 * (b - c)])

    return float(np.linalg.norm(lab(one) - lab(other)))


def test_a_curve_under_another_shows_beside_it() -> None:
    """pagemap and remapssd write as much: one of them was not to be seen."""
    series = [Series(name, [2.0, 1.0], [1.0, 2.0]) for name in ("pagemap", "remapssd")]
    series.append(Series("dftl", [3.0, 2.0], [1.0, 2.0]))
    lines = drawn(Figure("made up", [Panel("lines", "x", "y", series)])).axes[0].get_lines()
    assert lines[0].get_linewidth() > lines[1].get_linewidth() == lines[2].get_linewidth()
    assert lines[0].get_markersize() > lines[1].get_markersize()


@pytest.mark.parametrize("label", ["__main__:Mine", "$a$b", "_x"])
def test_every_label_is_in_the_legend(label: str) -> None:
    """matplotlib drops those that begin with _, and takes dollars for formulas."""
    rows = [result(ftl, source) for ftl in (label, "dftl") for source in ("uniform", "zipf")]
    for what in ("waf", "gc"):
        texts = [text.get_text() for text in drawn(figure(table(*rows), what)).legends[0].get_texts()]
        assert [text.strip().replace("\\", "") for text in texts] == [label, "dftl"]


def seen(line: Any) -> bool:
    """Whether something of it is inside its axes: a mark, or a piece of some length."""
    axes = line.axes
    at = axes.transData.transform(np.column_stack(line.get_data()).astype(float))
    box = axes.get_window_extent().padded(1)
    at = at[np.isfinite(at).all(axis=1)]
    inside = [bool(box.contains(*point)) for point in at]
    marks = line.get_markevery()
    marked = line.get_marker() not in ("None", None) and any(
        inside[i] for i in (marks if isinstance(marks, list) else range(len(at))) if i < len(inside))  # fmt: skip
    lengths = np.hypot(*np.diff(at, axis=0).T)
    return marked or any(a and b and length > 3 for a, b, length in zip(inside, inside[1:], lengths, strict=False))


@pytest.mark.parametrize(("what", "histogram"), [
    ("latency", {"upper_ns": [1000], "count": [5]}), ("tail", {"upper_ns": [1000], "count": [5]}),
    ("latency", {"upper_ns": [0], "count": [5]}), ("tail", {"upper_ns": [10, 1000], "count": [5, 1]}),
])  # fmt: skip
def test_a_curve_of_one_step_is_seen(what: str, histogram: dict[str, list[int]]) -> None:
    """All requests took as long: there was a point without a mark."""
    rows = [result("pagemap"), result("dftl")]
    rows[1]["histograms"]["write"] = histogram
    for line in drawn(figure(table(*rows), what)).axes[0].get_lines():
        assert seen(line)


def test_a_point_alone_is_marked() -> None:
    """Between windows in which the host wrote nothing there was no line to see."""
    y = [None if i % 2 else float(i) for i in range(40)]
    [line] = (
        drawn(Figure("made up", [Panel("lines", "x", "y", [Series("a", y, [*map(float, range(40))])])])).axes[0].lines
    )
    assert {i for i in range(40) if i % 2 == 0} <= set(line.get_markevery())


def test_what_has_no_number_is_beyond_the_numbers() -> None:
    canvas = drawn(figure(table(*over_dram()), "waf"))
    axes = canvas.axes[0]
    ticks = dict(zip(below(axes), axes.get_xticks(), strict=True))
    assert ticks["no limit"] > 32 * MIB
    marks = [line for line in axes.get_lines() if list(line.get_xdata()) == [ticks["no limit"]]
             and line.get_marker() in _forms.MARKERS]  # fmt: skip
    assert sorted(float(line.get_ydata()[0]) for line in marks) == [1.0 + n + 1 / 99 for n in range(len(ALL))]
    assert all(seen(line) for line in axes.get_lines())


@pytest.mark.parametrize("what", ["waf", "hits", "tail", "waf-op"])
def test_every_curve_is_seen(what: str) -> None:
    rows = over_dram() if what == "hits" else over_op(ALL)
    canvas = drawn(figure(table(*rows), what))
    for axes in canvas.axes:
        if axes.axison:
            assert len(axes.get_lines()) >= len(ALL)
            assert all(seen(line) for line in axes.get_lines())


def test_dots() -> None:
    """Numbers of several sizes above the names of FTLs: what a comparison is drawn with."""
    series = [Series(work, [1.0 + n * 10.0 ** (n % 3) for n in range(len(ALL))]) for work in ("uniform", "zipf")]
    canvas = drawn(Figure("made up", [Panel("dots", "", "WAF", series, groups=ALL, y_scale="log")]))
    check(canvas)
    assert below(canvas.axes[0]) == ALL
    assert all(len(line.get_xdata()) == len(ALL) and seen(line) for line in canvas.axes[0].get_lines()[:2])
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["uniform", "zipf"]


def test_panels_above_each_other_share_their_names() -> None:
    """Below the lowest of them, where the same names are below all."""
    made = figure(table(*over_op(ALL)), "programs")
    canvas = drawn(made, COLUMN)
    check(canvas)
    shown = [[text for text in words(canvas) if text in axes.get_xticklabels()] for axes in canvas.axes]
    assert [len(names) for names in shown] == [0, 0, len(ALL)]
    rows = over_op(ALL[:2])
    assert below(drawn(figure(table(*rows), "programs"), PAGE).axes[0]) == ALL[:2]


def test_sizes_that_run_into_each_other_are_thinned_out() -> None:
    rows = [result(waf=n + 1.0, geometry=chip(size=n * MIB)) for n in range(16, 64)]
    canvas = drawn(figure(table(*rows), "waf", x="size"))
    check(canvas)
    shown = [text for text in below(canvas.axes[0]) if text]
    assert shown[-1] == "63"
    assert 3 <= len(shown) < 48
