"""Pictures: what they show is what the rows say, and what is drawn is a sound file of its kind."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars
import pytest
from made_up import GEOMETRY, result
from schemes import thinned

from flashfs import cli
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.replay import results
from flashfs.replay.plots import KINDS, Figure, Panel, Series, _draw, _view, available, draw, figure

MIB = 1 << 20


def table(*made: Mapping[str, Any]) -> polars.DataFrame:
    return results.frame([results.row(one) for one in made])


def two_by_two() -> polars.DataFrame:
    """Two FTLs on two workloads."""
    wafs = {("pagemap", "uniform:ops=1"): 2.0, ("slimftl", "uniform:ops=1"): 3.0, ("pagemap", "zipf:ops=1"): 4.0,
            ("slimftl", "zipf:ops=1"): 2.0}  # fmt: skip
    return table(*(result(ftl, source, waf=waf) for (ftl, source), waf in wafs.items()))


def curves(made: Figure, panel: int = 0) -> dict[str, list[float | None]]:
    return {one.label: one.y for one in made.panels[panel].series}


# --- one number a result


def test_bars() -> None:
    made = figure(two_by_two(), "waf")
    [panel] = made.panels
    assert (panel.form, panel.groups, panel.y_label) == ("bars", ["uniform", "zipf"], "Write amplification")
    assert curves(made) == {"pagemap": [2.0, 4.0], "slimftl": [3.0, 2.0]}
    assert curves(figure(two_by_two(), "iops")) == {"pagemap": [5000.0, 2500.0], "slimftl": [10000 / 3, 5000.0]}


def test_multiples_of_a_baseline() -> None:
    made = figure(two_by_two(), "waf", baseline="pagemap")
    assert curves(made) == {"pagemap": [1.0, 1.0], "slimftl": [1.5, 0.5]}
    assert (made.panels[0].y_at_1, made.panels[0].y_label) == (True, "Write amplification / pagemap")


def test_phases_are_said_where_they_differ() -> None:
    phases = ([], [{"canonical": "uniform:ops=1", "hash": "a" * 64}, {"format": "msr", "hash": "b" * 64}])
    rows = []
    for before in phases:
        one = result("pagemap", "uniform:ops=1", waf=2.0)
        rows.append({**one, "config": {**one["config"], "before": before}})
    assert sorted(curves(figure(table(*rows), "waf"))) == [
        "pagemap, after nothing", "pagemap, after uniform:ops=1 and bbbbbbbb",
    ]  # fmt: skip


def test_the_mean_of_ratios_is_geometric() -> None:
    rows = [result(ftl, f"uniform:ops={n}", waf=2.0 if ftl == "pagemap" else 2.0 * 2**n)
            for n in (1, 2, 6) for ftl in ("pagemap", "slimftl")]  # fmt: skip
    made = figure(table(*rows), "waf", baseline="pagemap")
    assert made.panels[0].groups == ["uniform ops=1", "uniform ops=2", "uniform ops=6", "gmean"]
    assert curves(made)["slimftl"] == [2.0, 4.0, 64.0, pytest.approx(8.0)]


def test_a_baseline_is_on_the_same_work() -> None:
    """Beside each DRAM size and depth its own; options are the FTL's, and are not asked for."""
    rows = [
        result("pagemap", waf=2.0, dram=1 * MIB), result("pagemap", waf=4.0, dram=2 * MIB),
        result("slimftl", waf=3.0, dram=1 * MIB, options={"shift": 1}),
        result("slimftl", waf=3.0, dram=2 * MIB, options={"shift": 1}),
        result("slimftl", waf=3.0, dram=4 * MIB, options={"shift": 1}),
    ]  # fmt: skip
    made = figure(table(*rows), "waf", baseline="pagemap", x="dram")
    assert curves(made) == {"pagemap": [1.0, 1.0], "slimftl": [1.5, 0.75, None]}
    assert made.left_out == ["slimftl on uniform:ops=1k: the baseline pagemap has no result on the work of slimftl"]
    several = [result("pagemap", waf=2.0, options={"buffer": n}) for n in (0, 8)] + [result("pagemap", waf=3.0)]
    with pytest.raises(UsageError, match="pagemap: it is there with several options; use --where to leave one"):
        figure(table(*several[1:]), "waf", baseline="pagemap")


def test_lines_over_sizes() -> None:
    """What has no limit is drawn beyond the sizes; it was left out."""
    sizes, ftls = (4 * MIB, MIB, 2 * MIB), ("pagemap", "slimftl")
    rows = [result(ftl, waf=dram / MIB, dram=dram) for dram in sizes for ftl in ftls]
    made = figure(table(*rows, result(waf=9.0)), "waf")
    [panel] = made.panels
    assert (panel.form, panel.x_label, panel.x_scale, panel.x_none) == ("lines", "DRAM", "MiB", "no limit")
    assert [(one.label, one.x, one.y) for one in panel.series] == [
        ("pagemap", [MIB, 2 * MIB, 4 * MIB, None], [1.0, 2.0, 4.0, 9.0]),
        ("slimftl", [MIB, 2 * MIB, 4 * MIB], [1.0, 2.0, 4.0]),
    ]


def test_two_sizes_are_bars() -> None:
    made = figure(table(*(result(waf=dram / MIB, dram=dram) for dram in (MIB, 2 * MIB))), "waf")
    assert curves(made) == {"pagemap, 1 MiB DRAM": [1.0], "pagemap, 2 MiB DRAM": [2.0]}
    words = [result("slimftl", waf=2.0, options={"hash": name}) for name in ("fast", "md5")]
    assert figure(table(*words), "waf", x="hash").panels[0].groups == ["fast", "md5"]


def test_repeats_are_a_mean_and_its_bounds() -> None:
    rows = [result("pagemap", waf=waf, seed=seed) for seed, waf in enumerate((1.0, 2.0, 6.0))] + [result("slimftl")]
    made = figure(table(*rows), "waf")
    assert made.panels[0].series == [
        Series("pagemap", [3.0], low=[1.0], high=[6.0]), Series("slimftl", [2.0]),
    ]  # fmt: skip


def test_the_last_of_the_same_counts() -> None:
    assert curves(figure(table(result(waf=2.0), result(waf=3.0)), "waf")) == {"pagemap": [3.0]}


def test_any_column_of_numbers_is_a_picture() -> None:
    made = figure(two_by_two(), "latency_us.write.p99")
    assert made.panels[0].y_label == "Latency (us) write p99"
    assert curves(made) == {"pagemap": [2000.0, 4000.0], "slimftl": [3000.0, 2000.0]}


def test_a_column_of_counts_is_a_distribution() -> None:
    """Entry i counts those that have i; repeats are counted together, and zeros at the end are not drawn."""
    rows = [result("leaftl", seed=seed) for seed in range(2)]
    rows[0]["scheme"] = {"groups_by_levels": [0, 3, 1], "lookups_by_level": [3, 1]}
    rows[1]["scheme"] = {"groups_by_levels": [0, 3, 0, 1, 0], "lookups_by_level": [4], "settled_by_list": 3}
    made = figure(table(*rows), "cdf:scheme.groups_by_levels")
    (panel,) = made.panels
    assert (panel.form, panel.x_label, panel.y_label, panel.y_scale) == ("steps", "Levels", "Share of groups", "share")
    assert panel.series == [Series("leaftl", [0.0, 6 / 8, 7 / 8, 1.0], [0.0, 1.0, 2.0, 3.0])]
    assert figure(table(*rows), "scheme.groups_by_levels").panels == made.panels  # what else could it be
    (panel,) = figure(table(*rows), "cdf:scheme.lookups_by_level").panels  # the first of these is level 1
    assert (panel.x_label, panel.y_label) == ("Level", "Share of lookups")
    assert panel.series == [Series("leaftl", [0.0, 7 / 8, 1.0], [0.0, 1.0, 2.0])]
    with pytest.raises(UsageError, match=r"each result: scheme\.groups_by_levels, scheme\.look"):
        figure(table(*rows), "cdf:waf")


def test_mapping_is_one_bar_where_only_the_ftl_makes_a_difference() -> None:
    made = figure(two_by_two(), "mapping")  # the same on each source: a bar each
    assert (made.panels[0].groups, curves(made)) == (["pagemap", "slimftl"], {"mapping": [65536.0, 28672.0]})
    made = figure(two_by_two(), "mapping", baseline="pagemap")
    assert curves(made) == {"mapping": [1.0, 0.4375]}
    other = result("slimftl", "zipf:ops=1")
    other["map_bytes"] = 1000
    made = figure(table(result("pagemap", "zipf:ops=1"), other, result("slimftl", "uniform:ops=1")), "mapping")
    assert (made.panels[0].groups, curves(made)) == (
        ["zipf", "uniform"], {"pagemap": [65536.0, None], "slimftl": [1000.0, 28672.0]},
    )  # fmt: skip


def test_hits_are_over_dram_where_there_are_several() -> None:
    rows = [result(dram=size * MIB) for size in (1, 2)]
    for row, ratio in zip(rows, (0.25, 0.5), strict=True):
        row["cache"]["hit_ratio"] = ratio
    made = figure(table(*rows), "hits")
    assert (made.panels[0].x_label, made.panels[0].y_scale) == ("DRAM", "share")
    assert (made.panels[0].series[0].x, curves(made)) == ([MIB, 2 * MIB], {"pagemap": [0.25, 0.5]})
    assert figure(table(result()), "hits").panels[0].form == "bars"
    assert figure(table(result(dram=3 << 19)), "hits").panels[0].groups == ["1.5 MiB"]


@pytest.mark.parametrize(("sizes", "label", "ticks"), [
    ([MIB // 2, MIB], "DRAM (MiB)", ["0.5", "1"]), ([1 << 30, 1 << 31], "DRAM (GiB)", ["1", "2"]),
])  # fmt: skip
def test_dram_is_in_mib(sizes: list[int], label: str, ticks: list[str]) -> None:
    panel = figure(table(*(result(dram=size) for size in sizes)), "hits").panels[0]
    axes = axes_of(panel)
    assert axes.get_xlabel() == label
    assert [axes.xaxis.get_major_formatter()(tick, 0) for tick in axes.get_xticks()] == ticks


def axes_of(panel: Panel) -> Any:
    """The axes on which a panel alone was drawn."""
    import matplotlib

    with matplotlib.rc_context(_draw.STYLE):
        return _draw._canvas(Figure("made up", [panel]), None).axes[0]


def test_a_share_of_requests_is_shown_by_its_nines() -> None:
    """0.9, 0.99 and 0.999 are as far from each other; on a linear axis the last two are one."""
    one = result()
    one["histograms"]["write"] = {"upper_ns": [1_000, 2_000, 4_000, 9_000], "count": [900, 90, 9, 1]}
    panel = figure(table(one), "latency").panels[0]
    assert panel.y_scale == "nines"
    axes = axes_of(panel)
    ticks = [axes.yaxis.get_major_formatter()(tick, 0) for tick in axes.get_yticks()]
    assert ticks == ["0", "0.5", "0.9", "0.99", "0.999"]
    at = axes.transData.transform([(1, share) for share in (0.9, 0.99, 0.999)])[:, 1]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1])
    assert axes.get_ylim()[1] < 1


@pytest.mark.parametrize(("y", "whole"), [([1, 2, 1], True), ([1.0, 2.0, 2.0], True), ([1, 1.5, 2], False)])
def test_of_whole_numbers_there_is_no_half(y: list[float], whole: bool) -> None:
    """Levels had ticks at 0.5 and 1.5."""
    panel = Panel("lines", "levels", "groups", [Series("leaftl", [*y], [0, 1, 2])])
    axes = axes_of(panel)
    assert all(tick.is_integer() for tick in axes.get_xticks())
    assert all(tick.is_integer() for tick in axes.get_yticks()) == whole
    assert len(axes.get_yticks()) > 2


def test_chips_are_told_apart() -> None:
    """Each FTL on a chip of its own: side by side without a word, one would look better for its chip."""
    rows = [result("pagemap"), result("slimftl")]
    rows[1]["config"]["geometry"] = {**rows[1]["config"]["geometry"], "lpas": 4096, "blocks": 999}
    shown = list(curves(figure(table(*rows), "waf")))
    assert len(shown) == 2
    assert all("MiB" in label for label in shown)
    rows[1]["config"]["geometry"] = {**rows[0]["config"]["geometry"], "nvram_bytes": 4096}  # what a scheme asks for
    assert list(curves(figure(table(*rows), "waf"))) == ["pagemap", "slimftl"]


def test_a_meant_picture() -> None:
    for given, meant in (("latencies", "latency"), ("latency_us.wrte.p99", "latency_us.write.p99")):
        with pytest.raises(UsageError, match=rf"^--what {given} \(did you mean {meant}\?\): "):
            figure(two_by_two(), given)


# --- parts, distributions, time


def test_parts_of_the_dram() -> None:
    made = figure(two_by_two(), "dram")
    [panel] = made.panels  # both sources have the same
    assert (panel.form, panel.groups) == ("stack", ["pagemap", "slimftl"])
    assert curves(made) == {
        "pagemap table": [65536, 0.0], "slimftl table": [0.0, 28672], "write buffer": [262144, 262144],
        "other": [2560.0, 2560.0],
    }  # fmt: skip


def test_parts_that_are_the_same_for_all_sizes_are_one_bar() -> None:
    rows = [result(ftl, dram=dram * MIB) for dram in (1, 2) for ftl in ("pagemap", "slimftl")]
    assert figure(table(*rows), "dram").panels[0].groups == ["pagemap", "slimftl"]
    rows[1]["dram"]["pvb"] = 99_999
    made = figure(table(*rows), "dram")
    assert [(panel.title, panel.groups) for panel in made.panels] == [
        ("1 MiB DRAM", ["pagemap", "slimftl"]), ("2 MiB DRAM", ["pagemap", "slimftl"]),
    ]  # fmt: skip


def test_programs_by_cause_are_the_waf() -> None:
    made = figure(two_by_two(), "programs")
    assert [panel.title for panel in made.panels] == ["uniform", "zipf"]
    assert curves(made) == {"host": [1.0, 1.0], "gc": [1.0, 2.0]}
    assert curves(made, 1) == {"host": [1.0, 1.0], "gc": [3.0, 1.0]}


def test_a_latency_is_counted_where_it_is_reached() -> None:
    made = figure(table(result()), "latency")
    [panel] = made.panels
    assert (panel.form, panel.title, panel.x_scale) == ("steps", "write", "log")
    assert (panel.series[0].x, panel.series[0].y) == ([100.0, 1000.0], [0.9, 1.0])
    [panel] = figure(table(result()), "tail").panels
    assert (panel.series[0].x, panel.series[0].y, panel.y_scale) == ([100.0, 1000.0], [0.1, 0.0], "log")


def test_repeats_are_one_distribution() -> None:
    other = result(seed=2)
    other["histograms"]["write"] = {"upper_ns": [50_000, 100_000], "count": [500, 500]}
    [series] = figure(table(result(), other), "latency").panels[0].series
    assert (series.x, series.y) == ([50.0, 100.0, 1000.0], [0.25, 0.95, 1.0])


def test_operations_are_rows_and_sources_columns() -> None:
    rows = [result(source=f"uniform:ops={n}") for n in (1, 2, 3, 4, 5)]
    for row in rows:
        row["histograms"]["read"] = {"upper_ns": [1000], "count": [1]}
    made = figure(table(*rows), "latency")
    assert made.columns == 3
    titles = [panel.title for panel in made.panels]
    assert titles[:6] == [f"uniform ops={n}: read" for n in (1, 2, 3, 4, 5)] + [""]
    assert titles[6:] == [f"uniform ops={n}: write" for n in (1, 2, 3, 4, 5)]


def test_cleaning_over_time() -> None:
    row = result(waf=3.0)
    row["series"]["host_write"] = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 900]  # nothing at the end
    made = figure(table(row), "gc")
    assert [panel.y_label for panel in made.panels] == ["GC pages per host page", "Free blocks"]
    [series] = made.panels[0].series
    assert series.x == pytest.approx([0.05 + i / 10 for i in range(10)])
    assert series.y == [2.0] * 9 + [None]
    assert made.panels[1].series[0].y == list(range(320, 309, -1))


# --- which rows, and what they are called


def test_labels_say_what_tells_rows_apart() -> None:
    rows = [
        result("pagemap"), result("slimftl", options={"shift": 0}), result("slimftl", options={"shift": 4}),
        result("slimftl", options={"shift": 4}, qd=8), result("slimftl", options={"shift": 4}, dram=MIB),
    ]  # fmt: skip
    assert list(curves(figure(table(*rows), "waf"))) == [
        "pagemap, no DRAM limit, qd 1", "slimftl, shift=0, no DRAM limit, qd 1",
        "slimftl, shift=4, no DRAM limit, qd 1", "slimftl, shift=4, no DRAM limit, qd 8",
        "slimftl, shift=4, 1 MiB DRAM, qd 1",
    ]  # fmt: skip
    alone = [result("pagemap", options={"n": 1}), result("slimftl", options={"shift": 4})]
    assert list(curves(figure(table(*alone), "waf"))) == ["pagemap", "slimftl"]  # options that do not differ


def test_the_seed_of_a_workload_is_a_repeat() -> None:
    rows = [result(source=f"zipf:seed={seed},ops=1", waf=waf) for seed, waf in ((1, 1.0), (2, 3.0))]
    rows += [result(source="uniform", waf=5.0), result(source="uniform:seed=2", waf=6.0)]
    made = figure(table(*rows), "waf")
    assert made.panels[0].groups == ["zipf", "uniform"]
    assert made.panels[0].series == [Series("pagemap", [2.0, 5.5], low=[1.0, 5.0], high=[3.0, 6.0])]


def test_options_of_traces_tell_traces_apart_and_no_workloads() -> None:
    """A replay of workloads alone says the defaults, one of both says nothing."""
    clip, wrap = {"fit": "clip", "first": None}, {"fit": "wrap", "first": None}
    rows = [result(source="a.csv", trace=clip), result(source="a.csv", trace=wrap), result(), result(trace=clip)]
    assert list(curves(figure(table(*rows[:2]), "waf"))) == ["pagemap, fit=clip", "pagemap, fit=wrap"]
    assert list(curves(figure(table(*rows[2:]), "waf"))) == ["pagemap"]


def test_geometries_are_told_apart_in_few_words() -> None:
    rows = [result(), result(), result()]
    for row, (lpas, blocks, dies) in zip(rows, ((1024, 20, 4), (2048, 40, 4), (2048, 40, 8)), strict=True):
        row["config"]["geometry"] = {**row["config"]["geometry"], "lpas": lpas, "blocks": blocks, "dies": dies}
    assert list(curves(figure(table(*rows), "waf"))) == ["pagemap, 4 MiB, 4 dies", "pagemap, 8 MiB, 4 dies",
                                                         "pagemap, 8 MiB, 8 dies"]  # fmt: skip


def test_sources_are_told_apart_in_few_words() -> None:
    names = ["zipf:ops=1,theta=0.5", "zipf:ops=1,theta=0.9", "uniform:ops=1", "/a/web.csv.zst",
             "/b/db_of_a_name_that_is_too_long.csv", "/c/x.csv", "/d/x.csv"]  # fmt: skip
    made = figure(table(*(result(source=name) for name in names)), "waf")
    assert made.panels[0].groups == [
        "zipf theta=0.5", "zipf theta=0.9", "uniform", "web", "db_of_a_name_that_is_to…", "/c/x.csv", "/d/x.csv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "labels"),
    [
        ("ftl", "slimftl", ["slimftl"]), ("dram", "1M", ["pagemap"]), ("config.dram", "1048576", ["pagemap"]),
        ("dram", "none", ["slimftl", "slimftl"]), ("shift", "4", ["slimftl"]), ("dies", "4", 3),
        ("source", "uniform:ops=1k", 3),
    ],
)  # fmt: skip
def test_where(name: str, value: str, labels: list[str] | int) -> None:
    rows = table(result(dram=MIB), result("slimftl", options={"shift": 4}), result("slimftl", options={"shift": 0}))
    found = list(curves(figure(rows, "waf", where={name: value})))
    assert len(found) == (labels if isinstance(labels, int) else len(found))
    if not isinstance(labels, int):
        assert {label.partition(",")[0] for label in found} == set(labels)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"what": "nonesuch"}, "--what nonesuch: mapping, dram, waf, "),
        ({"what": "ftl"}, "--what ftl: mapping, "),
        ({"what": "waf", "baseline": "nonesuch"}, "--baseline nonesuch: use one of pagemap, slimftl"),
        ({"what": "latency", "baseline": "pagemap"}, "latency is not relative to anything; mapping, waf, iops can be"),
        ({"what": "waf", "x": "nonesuch"}, "--x nonesuch: these results have nothing of that name; they differ in "),
        ({"what": "waf", "where": {"nonesuch": "1"}}, "--where nonesuch: these results have nothing of that name; "),
        ({"what": "waf", "where": {"ftl": "x"}}, "--where ftl=x: no result has it; use one of pagemap, slimftl"),
        ({"what": "latency", "x": "op"}, "--x op: latency has an axis of its own; mapping, "),
        ({"what": "waf-op"}, "--what waf-op: these results are of one over-provisioning; sweep over op "),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_told(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(FlashfsError) as caught:
        figure(two_by_two(), **arguments)
    assert said in str(caught.value)
    assert (caught.value.exit_code, "\n" in str(caught.value)) == (2, False)


def test_too_much_for_one_picture_is_told() -> None:
    """As many curves as there are FTLs, and a few more; bars need no limit."""
    assert len(SCHEMES) <= _view.MOST_CURVES
    many = table(*(result(options={"name": f"n{n}"}) for n in range(17)))
    with pytest.raises(UsageError, match="17 curves in one picture, 16 at most; --where NAME=VALUE leaves some out"):
        figure(many, "latency")
    assert len(curves(figure(many, "waf"))) == 17
    with pytest.raises(UsageError, match="16 panels, 15 at most"):
        figure(table(*(result(source=f"uniform:ops={n + 1}") for n in range(16))), "latency")


def test_failures_are_no_results() -> None:
    failed = {**results.row(result(waf=9.0)), "error": "too small"}
    rows = results.frame([{**results.row(result(waf=2.0)), "error": None}, failed])
    assert curves(figure(rows, "waf")) == {"pagemap": [2.0]}
    with pytest.raises(UsageError, match="no result to plot: every row is of a failure"):
        figure(results.frame([failed]), "waf")


def test_only_what_there_is() -> None:
    assert available(two_by_two()) == [kind for kind in KINDS if kind != "waf-op"]
    assert available(many()) == list(KINDS)
    bare = result()
    for name in ("series", "histograms", "cache", "wear"):
        del bare[name]
    assert available(table(bare)) == ["mapping", "dram", "waf", "programs", "iops"]
    with pytest.raises(UsageError, match="--what gc: these results have nothing of it"):
        figure(table(bare), "gc")


# --- drawn


def many() -> polars.DataFrame:
    return table(*(result(ftl, source, waf=2.0 + n, dram=dram * MIB, seed=seed, geometry={**GEOMETRY, "blocks": blocks})
                   for n, ftl in enumerate(("pagemap", "slimftl")) for source in ("uniform:ops=1", "zipf:ops=1")
                   for dram in (1, 2, 4) for seed in (1, 2) for blocks in (300, 320)))  # fmt: skip


@pytest.mark.parametrize("kind", thinned(KINDS, 4))
def test_svg(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.svg"
    draw(figure(many(), kind), path)
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}path")) > 20
    assert not list(root.iter("{http://www.w3.org/2000/svg}text"))  # letters are outlines: they look so everywhere
    before = path.read_bytes()
    draw(figure(many(), kind), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", thinned(["waf", "latency", "dram"], 3))
def test_pdf(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.pdf"
    draw(figure(many(), kind), path)
    content = path.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert b"/FontFile2" in content  # TrueType, in the file: what printers and conferences ask for
    assert b"/Type3" not in content
    assert b"/CreationDate" not in content
    draw(figure(many(), kind), path)
    assert path.read_bytes() == content


def chunks(content: bytes) -> dict[bytes, bytes]:
    """Of a PNG, each with a sum that is right."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, out = 8, {}
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + data) == struct.unpack_from(">I", content, at + 8 + length)[0]
        out[kind] = out.get(kind, b"") + data
        at += 12 + length
    return out


def test_png(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    draw(figure(two_by_two(), "waf"), path, width_inches=3)
    found = chunks(path.read_bytes())
    width, height = struct.unpack(">II", found[b"IHDR"][:8])
    assert width == 900
    pixels = zlib.decompress(found[b"IDAT"])
    assert len(pixels) == height * (1 + 4 * width)
    assert len(set(pixels)) > 50  # it is not blank
    before = path.read_bytes()
    draw(figure(two_by_two(), "waf"), path, width_inches=3)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gc", "waf-op")])
def test_where_there_is_next_to_nothing(tmp_path: Path, kind: str) -> None:
    """No time passed, nothing on a logarithmic axis: sound files, and no warning."""
    row = result(waf=0.0)
    row["histograms"]["write"] = {"upper_ns": [0], "count": [5]}
    row["cache"]["hit_ratio"] = 0.0
    row |= {"iops": 0.0, "map_bytes": 0, "dram": {"x": 1, "total": 1}}
    draw(figure(table(row), kind), tmp_path / "p.svg")
    ElementTree.parse(tmp_path / "p.svg")


def test_where_the_host_wrote_nothing() -> None:
    row = result()
    row["series"] = {name: [0, 0] for name in ("virtual_s", "host_write", "gc_program", "free_blocks")}
    with pytest.raises(UsageError, match="--what gc: these results have nothing of it"):
        figure(table(row), "gc")


def test_the_callers_style_is_left_alone(tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red"}):
        draw(figure(two_by_two(), "waf"), tmp_path / "a.svg")
        assert matplotlib.rcParams["font.size"] == 31
    draw(figure(two_by_two(), "waf"), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


# --- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "internal error" not in err
    return code, out, err


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    results.write(tmp_path / "r.parquet", two_by_two().to_dicts())
    return Path("r.parquet")


def test_all_there_is(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    code, out, err = run(capsys, "plot", file)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"r-{kind}.svg" for kind in KINDS if kind != "waf-op"]
    assert sorted(path.name for path in Path().glob("*.svg")) == sorted(out.splitlines())


def test_one_by_name(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    code, out, err = run(capsys, "plot", file, "--what", "waf", "--out", "w.pdf", "--baseline", "pagemap", "--json")
    assert (code, err) == (0, "")
    [made] = json.loads(out)
    assert made["file"] == "w.pdf"
    assert made["panels"][0]["series"][1]["y"] == [1.5, 0.5]
    assert Path("w.pdf").read_bytes().startswith(b"%PDF-")
    code, out, _ = run(capsys, "plot", file, file, "--what", "waf,tail", "--out", "w.png")
    assert (code, out.splitlines()) == (0, ["w-waf.png", "w-tail.png"])


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plot", "--list")
    assert code == 0
    assert all(kind in out for kind in KINDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which results?"),
        (["r.parquet", "--what", "nonesuch"], "--what nonesuch"),
        (["r.parquet", "--out", "x.gif"], "--out x.gif: use a name that ends in .svg, .pdf, .png"),
        (["r.parquet", "--where", "dram"], "--where dram: use NAME=VALUE"),
        (["gone.parquet"], "gone.parquet: no such file"),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], file: Path, arguments: list[str], said: str) -> None:
    code, out, err = run(capsys, "plot", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert [path.name for path in Path().iterdir()] == ["r.parquet"]
