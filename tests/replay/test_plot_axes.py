"""Which results are along an axis, beside each other and in panels of their own: none is left out without a word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from made_up import GEOMETRY, result

from flashfs import cli
from flashfs.errors import UsageError
from flashfs.formulas.cleaning import greedy
from flashfs.ftl import SCHEMES
from flashfs.replay import api, grid, results
from flashfs.replay.plots import Figure, Panel, Series, _figures, _rows, figure
from nandimg import Geometry
from nandimg.presets import PRESETS

MIB = 1 << 20


def table(*made: Mapping[str, Any]) -> polars.DataFrame:
    return results.frame([results.row(one) for one in made])


def chip(op: float = 0.25, size: int = 64 * MIB, **shape: Any) -> dict[str, int]:
    """What a sweep over ``op`` or ``size`` makes."""
    return Geometry.sized(size, op, **{"pages_per_block": 64, "dies": 2, "channels": 2, **shape}).as_dict()


def over_op(ftls: Sequence[str], sources: Sequence[str] = ("uniform:ops=1",), **config: Any) -> list[dict[str, Any]]:
    return [result(ftl, source, waf=2 / op + n, geometry=chip(op), **config)
            for source in sources for op in (0.4, 0.15, 0.25) for n, ftl in enumerate(ftls)]  # fmt: skip


def labels(panel: Panel) -> list[str]:
    return [one.label for one in panel.series]


# --- the axis


def test_what_ftls_cause_is_no_axis() -> None:
    """Three sizes of NVRAM made a logarithmic axis, on which FTLs without any had no place."""
    rows = [result(ftl, waf=n + 1.0, geometry={**GEOMETRY, "nvram_bytes": 1000 * n, "blocks": 320 + 64 * (n % 3)})
            for n, ftl in enumerate(SCHEMES)]  # fmt: skip
    made = figure(table(*rows), "waf")
    [panel] = made.panels
    assert panel.form == "bars"
    assert [label.partition(",")[0] for label in labels(panel)] == list(SCHEMES)
    assert [one.y for one in panel.series] == [[n + 1.0] for n in range(len(SCHEMES))]
    assert made.left_out == []


def test_an_option_that_an_ftl_does_not_have_is_no_axis_unless_asked_for() -> None:
    rows = [result("pagemap", waf=1.0)]
    rows += [result("slimftl", waf=2.0 + shift, options={"shift": shift}) for shift in (0, 4, 8)]
    assert labels(figure(table(*rows), "waf").panels[0]) == [
        "pagemap", "slimftl, shift=0", "slimftl, shift=4", "slimftl, shift=8",
    ]  # fmt: skip
    [panel] = figure(table(*rows), "waf", x="shift").panels
    assert (panel.form, panel.x_none) == ("lines", "none")
    assert panel.series == [Series("pagemap", [1.0], [None]), Series("slimftl", [2.0, 6.0, 10.0], [0.0, 4.0, 8.0])]


def test_over_provisioning_comes_first_and_in_per_cent() -> None:
    rows = [row for dram in (1, 2, 3) for row in over_op(["pagemap", "slimftl"], dram=dram * MIB)]
    [panel] = figure(table(*rows), "waf").panels
    assert (panel.form, panel.x_label) == ("lines", "Over-provisioning (%)")
    assert panel.series[0].x == [15.6, 25.0, 40.6]
    assert panel.series[0].y == [2 / 0.15, 8.0, 5.0]
    assert labels(panel)[0] == "pagemap, 1 MiB DRAM"


@pytest.mark.parametrize("key", ["size", "dies", "pages_per_block"])
def test_what_makes_blocks_a_little_more_is_the_axis_itself(key: str) -> None:
    """Whole superblocks change the over-provisioning of each size, which was not asked for."""
    values = {"size": [16 * MIB, 20 * MIB, 32 * MIB], "dies": [2, 5, 20], "pages_per_block": [64, 128, 256]}[key]
    rows = [result(ftl, geometry=chip(**{"op": 0.1, "channels": 1, key: value}))
            for value in values for ftl in ("pagemap", "dftl")]  # fmt: skip
    assert len({_rows._plain(results.row(row))[_rows.OP] for row in rows}) == 3
    [panel] = figure(table(*rows), "waf").panels
    assert (panel.form, panel.series[0].x) == ("lines", values)
    assert labels(panel) == ["pagemap", "dftl"]


def test_a_size_of_nothing_has_its_place() -> None:
    """On a logarithmic axis 0 was nowhere."""
    rows = [result("dftl", waf=1.0 + size, options={"cmt_bytes": size}) for size in (0, 4096, 65536)]
    [panel] = figure(table(*rows), "waf", x="cmt_bytes").panels
    assert (panel.x_scale, panel.series[0].x) == ("linear", [0, 4096, 65536])
    assert figure(table(*rows[1:]), "waf", x="cmt_bytes").panels[0].x_scale == "sizes"


def test_a_0_on_a_logarithmic_axis_is_told() -> None:
    panel = Panel("dots", "", "y", [Series("dftl", [1.0, 0.0])], groups=["a", "b"], y_scale="log")
    with pytest.raises(UsageError, match="dftl has a 0, which has no place on a logarithmic axis"):
        _figures._check(panel, "made up")


def test_every_key_of_a_sweep_is_an_axis() -> None:
    """But for the folder of prepared images, which no result is made of."""
    trace = Path(__file__).parent / "data" / "msr.csv"
    made = api.replay(str(trace), preset="small-64m", ftl=["pagemap", "slimftl"], first=3, opt={"buffer": 0})
    rows = _rows.chosen(made.to_dicts(), {})
    columns = {key: _rows.resolve(rows, key, "--x") for key in grid.AXES if key != "prepared"}
    assert rows[0][columns["preset"]] == "small-64m"
    assert rows[0][columns["size"]] == 64 * MIB
    assert rows[0][columns["oob"]] == PRESETS["small-64m"].geometry.oob_bytes
    assert columns["shift"] == "config.options.shift"  # an FTL's own before the trace's
    assert _rows.resolve([{"config.trace.shift_bytes": 0}], "shift", "--x") == "config.trace.shift_bytes"
    for kind in ("waf", "mapping", "iops", "programs", "wear", "dram"):
        for key in columns:
            assert figure(made, kind, x=key).panels, key


@pytest.mark.parametrize("value", ["0.15", "15.6%", "15.6 %", "0.156", "15%"])
def test_where_op(value: str) -> None:
    """As it was asked for, as it is, and as it is printed."""
    [panel] = figure(table(*over_op(["pagemap"])), "waf", where={"op": value}).panels
    assert [one.y for one in panel.series] == [[2 / 0.15]]


@pytest.mark.parametrize(("name", "value", "n"), [
    ("size", "64M", 1), ("preset", "small-64m", 1), ("oob", "128", 2), ("size", "128M", 1), ("page_size", "4k", 2),
])  # fmt: skip
def test_where_other_keys(name: str, value: str, n: int) -> None:
    shapes = [PRESETS["small-64m"].geometry.as_dict(), chip(size=128 * MIB)]
    shapes[1] |= {"pages_per_block": shapes[0]["pages_per_block"], "nvram_bytes": 4096}
    rows = table(*(result(geometry=shape) for shape in shapes))
    assert len(_rows.chosen(rows.to_dicts(), {name: value})) == n


def test_what_no_result_has_is_told_as_it_is_printed() -> None:
    with pytest.raises(UsageError, match=r"--where op=0\.3: no result has it; use one of 40\.6 %, 15\.6 %, 25 %$"):
        figure(table(*over_op(["pagemap"])), "waf", where={"op": "0.3"})


def test_a_misspelt_key_is_told_in_few_words() -> None:
    """It was answered with the names of 50 columns."""
    rows = table(*over_op(["pagemap", "dftl"], options={f"option_{n}": n for n in range(60)}))
    with pytest.raises(UsageError) as caught:
        figure(rows, "waf", x="ops")
    assert str(caught.value) == (
        "--x ops (did you mean op?): these results have nothing of that name; they differ in ftl, op"
    )
    alone = table(result())
    with pytest.raises(UsageError, match=r"keys are source, ftl, seed, .*, op, "):
        figure(alone, "waf", x="nonesuch")


# --- beside each other, and in panels


def test_bars_need_no_limit() -> None:
    made = figure(table(*(result(ftl, source) for source in ("uniform", "zipf") for ftl in SCHEMES)), "waf")
    assert labels(made.panels[0]) == list(SCHEMES)
    assert made.panels[0].groups == ["uniform", "zipf"]


def test_ftls_are_along_the_axis_if_asked_for() -> None:
    [panel] = figure(table(*over_op(list(SCHEMES))), "waf", x="ftl").panels
    assert (panel.form, panel.groups) == ("bars", list(SCHEMES))
    assert labels(panel) == ["40.6 % OP", "15.6 % OP", "25 % OP"]
    [panel] = figure(table(*(result(ftl) for ftl in SCHEMES)), "iops", x="ftl").panels
    assert (panel.groups, len(panel.series)) == (list(SCHEMES), 1)


@pytest.mark.parametrize("what", ["waf", "programs"])
def test_a_second_variable_has_panels(what: str) -> None:
    """Labels of 39 bars ran into each other."""
    made = figure(table(*over_op(list(SCHEMES))), what, x="source")
    assert [panel.title for panel in made.panels] == ["40.6 % OP", "15.6 % OP", "25 % OP"]
    for panel in made.panels:
        assert (panel.groups if what == "programs" else labels(panel)) == list(SCHEMES)
    made = figure(table(*over_op(["pagemap", "dftl"], ["uniform", "zipf"])), "programs")
    assert [panel.title for panel in made.panels] == [
        f"{source}, {op} % OP" for source in ("uniform", "zipf") for op in (40.6, 15.6, 25)
    ]


def test_an_ftl_without_the_option_is_in_each_panel() -> None:
    rows = [result("pagemap", waf=1.0), result("hpftl", waf=1.5)]
    rows += [result(ftl, waf=2.0 + n, options={"cmt_bytes": 4096 * n}) for n in (1, 2) for ftl in ("dftl", "tpftl")]
    made = figure(table(*rows), "programs")
    assert [(panel.title, panel.groups) for panel in made.panels] == [
        (f"cmt_bytes={size}", ["pagemap", "hpftl", "dftl", "tpftl"]) for size in (4096, 8192)
    ]


@pytest.mark.parametrize("options", [[{"a": 1}, {"a": 2}, {"b": 1}, {"b": 2}], [{"a": 1}, {"a": 2}, {}, {"b": 3}]])
def test_no_result_is_lost_between_panels(options: list[dict[str, int]]) -> None:
    """FTLs with options of their own, of which no FTL has all."""
    rows = [result(ftl, waf=2.0 + n, options=some) for n, some in enumerate(options)
            for ftl in (("p", "q") if n < 2 else ("r", "s"))]  # fmt: skip
    made = figure(table(*rows), "programs")
    shown = {(group.partition(",")[0], y) for panel in made.panels for one in panel.series if one.label == "gc"
             for group, y in zip(panel.groups, one.y, strict=True)}  # fmt: skip
    assert shown == {(row["ftl"], row["waf"] - 1) for row in rows}


def test_stacks_along_a_column_have_a_panel_for_each_ftl() -> None:
    made = figure(table(*over_op(["pagemap", "dftl"])), "programs", x="op")
    assert [(panel.title, panel.groups, panel.x_label) for panel in made.panels] == [
        (ftl, ["40.6 %", "15.6 %", "25 %"], "Over-provisioning (%)") for ftl in ("pagemap", "dftl")
    ]


def test_the_parts_of_repeats_are_their_mean() -> None:
    rows = [result(waf=waf, seed=seed) for seed, waf in enumerate((2.0, 4.0))]
    [panel] = figure(table(*rows), "programs").panels
    assert {one.label: one.y for one in panel.series} == {"host": [1.0], "gc": [2.0]}


def test_sources_are_columns_though_one_has_no_reads() -> None:
    rows = [result(source=source) for source in ("uniform", "zipf")]
    rows[1]["histograms"]["read"] = {"upper_ns": [1000], "count": [1]}
    made = figure(table(*rows), "latency")
    assert [panel.title for panel in made.panels] == ["uniform: read", "zipf: read", "uniform: write", "zipf: write"]
    assert [bool(panel.series) for panel in made.panels] == [False, True, True, True]


# --- what a plot leaves out is reported


def test_a_battery_is_no_other_work() -> None:
    """Beside an FTL without NVRAM one that has some was nowhere, if multiples were asked for."""
    rows = [result("pagemap", waf=2.0), result("dftl", waf=3.0, geometry={**GEOMETRY, "nvram_bytes": 4096})]
    made = figure(table(*rows), "waf", baseline="pagemap")
    assert [(one.label, one.y) for one in made.panels[0].series] == [("pagemap", [1.0]), ("dftl", [1.5])]


def test_a_curve_of_nothing_is_an_error() -> None:
    rows = [result("pagemap", source="zipf"), result("dftl", source="uniform")]
    with pytest.raises(UsageError, match="--what waf: nothing of dftl can be shown; use --where to leave it out"):
        figure(table(*rows), "waf", baseline="pagemap")


def test_who_has_nothing_of_it_is_named() -> None:
    rows = [result("pagemap"), result("leaftl")]
    rows[1]["scheme"] = {"groups_by_levels": [0, 3]}
    made = figure(table(*rows), "scheme.groups_by_levels")
    assert labels(made.panels[0]) == ["leaftl"]
    assert made.left_out == ["pagemap: these results have nothing of it"]


def test_failures_are_counted() -> None:
    """A sweep in which an FTL needs more DRAM than it got: the FTL was in no picture, and that was not reported."""
    rows = [{**results.row(result(ftl, dram=n * MIB)), "error": "too small" if ftl == "leaftl" else None}
            for ftl in ("pagemap", "leaftl") for n in (1, 2)]  # fmt: skip
    made = results.frame(rows)
    assert figure(made, "waf").left_out == ["leaftl: 2 of its replays failed"]
    assert figure(made, "waf", where={"dram": "1M"}).left_out == ["leaftl: 1 of its replays failed"]
    assert figure(made, "waf", where={"ftl": "pagemap"}).left_out == []


# --- wear, and WAF beside the formula


def test_wear() -> None:
    made = figure(table(result("pagemap", waf=2.0), result("dftl", waf=3.0)), "wear")
    assert [(panel.y_label, [one.y for one in panel.series]) for panel in made.panels] == [
        ("Most erases of a block", [[6], [6]]), ("Mean erases per block", [[4.0], [6.0]]),
        ("Most - least erases", [[4], [4]]),
    ]  # fmt: skip
    made = figure(table(*over_op(["pagemap", "dftl"], ["uniform", "zipf"])), "wear")
    assert (len(made.panels), made.columns) == (6, 2)
    assert made.panels[0].series[0].x == [15.6, 25.0, 40.6]


def test_waf_beside_the_formula() -> None:
    made = figure(table(*over_op(["pagemap", "dftl"])), "waf-op")
    *found, formula = made.panels[0].series
    assert [one.label for one in found] == ["pagemap", "dftl"]
    assert (formula.label, formula.reference) == ("greedy, formula", True)
    assert (formula.x[0], formula.x[-1]) == (15.6, 40.6)
    assert formula.y[0] == greedy(64, 1.156)
    assert all(a is not None and b is not None and a > b for a, b in zip(formula.y, formula.y[1:], strict=False))
    with pytest.raises(UsageError, match="--x dram: waf-op is along op; use --what waf"):
        figure(table(*over_op(["pagemap"])), "waf-op", x="dram")


# --- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = over_op(["pagemap", "dftl"])
    del rows[-1]["histograms"]
    results.write(tmp_path / "r.parquet", [results.row(row) for row in rows])
    return Path("r.parquet")


def test_one_that_cannot_be_stops_no_other(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    code, out, err = run(capsys, "plot", file, "--what", "waf,nonesuch,iops,latncy", "--out", "p.svg")
    assert (code, out.splitlines()) == (1, ["p-waf.svg", "p-iops.svg"])
    assert [line[:31] for line in err.splitlines()] == [
        "flashfs: --what nonesuch: mappi", "flashfs: --what latncy (did you",
    ]  # fmt: skip
    assert {path.name for path in Path().glob("*.svg")} == {"p-waf.svg", "p-iops.svg"}
    code, out, err = run(capsys, "plot", file, "--what", "nonesuch", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_an_axis_is_for_all_pictures_that_have_one(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    code, out, err = run(capsys, "plot", file, "--x", "ftl", "--json", "--where", "op=0.15")
    assert (code, err) == (0, "")
    made = {one["what"]: one for one in json.loads(out)}
    assert made["waf"]["panels"][0]["groups"] == ["pagemap", "dftl"]
    assert "latency" in made
    code, out, err = run(capsys, "plot", file, "--x", "opp")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--x opp (did you mean op?)" in err


def test_what_is_left_out_is_on_stderr(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    code, out, err = run(capsys, "plot", file, "--what", "latency", "--where", "op=25%", "--out", "l.svg")
    assert (code, out) == (0, "l.svg\n")
    assert err == "flashfs: l.svg: not in it: dftl: these results have nothing of it\n"
    _, _, err = run(capsys, "plot", file, "--what", "latency,tail,waf", "--where", "op=25%", "--out", "l.svg")
    assert err == "flashfs: l-latency.svg, l-tail.svg: not in it: dftl: these results have nothing of it\n"
    _, _, err = run(capsys, "plot", file, "--what", "latency,tail", "--where", "op=25%", "--out", "l.svg", "--force")
    assert err == "flashfs: each picture: not in it: dftl: these results have nothing of it\n"


def test_the_figure_is_plain(file: Path) -> None:
    made = figure(results.read([file]), "waf")
    assert isinstance(made, Figure)
    assert json.dumps(made.panels[0].series[0].x) == "[15.6, 25.0, 40.6]"
