"""Figures of papers: what they may say, what is made of a result, what may be claimed of it, the same bits twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from figures import TINY, written

from flashfs.cli import run
from flashfs.errors import UsageError
from flashfs.replay.workers import Here, Processes
from flashfs.reproduce import figure as files
from flashfs.reproduce import make, records, verdict
from flashfs.reproduce.expression import Expression

ROW = {
    "waf": 3.0, "nand.erase": 10, "none": None, "scheme.hist": "[1, 2, 1]", "host.write": 0, "full": [0, 4],
    "nand.by_cause.program.gc": 6,
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [
    ("waf", 3.0), ("waf / base.waf", 1.5), ("1 - waf * 2 + -1", -6.0), ("nand.by_cause.program.gc", 6),
    ("log(8, 2)", 3.0),
    ("nand.by_cause.program.wear", 0), ("none", None), ("nowhere.at.all", None), ("waf / host.write", None),
    ("share(scheme.hist, 0, 2)", 0.75), ("mean_index(scheme.hist)", 1.0), ("quantile_index(scheme.hist, 0.99)", 2.0),
    ("total(full)", 4.0), ("mean(full)", 2.0), ("max(full)", 4.0),
    ("max(waf, 7)", 7.0), ("base.nowhere", None), ("quantile_index(full, 0.1)", 1.0),
])  # fmt: skip
def test_expressions(text: str, expected: float | None) -> None:
    assert Expression(text)(ROW, {"waf": 2.0}) == expected


def test_an_expression_asks_for_the_baseline() -> None:
    assert Expression("1 / base.waf").relative and not Expression("waf / 2").relative
    assert Expression("waf / base.waf")(ROW, None) is None


@pytest.mark.parametrize("text", ["__import__('os')", "waf ** 2", "waf if 1 else 2", "open(waf)", "", "waf[0]", "'a'",
                                  "(lambda: 1)()", "waf and 1", "True"])  # fmt: skip
def test_no_expression_is_python(text: str) -> None:
    with pytest.raises(UsageError):
        Expression(text)


def test_a_list_is_no_number() -> None:
    with pytest.raises(UsageError, match="lists are for functions"):
        Expression("scheme.hist / 2")(ROW, None)


@pytest.mark.parametrize(("old", "new", "why"), [
    ('form = "lines"', 'form = "pie"', "use bars or lines"),
    ('baseline = "pagemap"', 'baseline = "dftl"', "use pagemap, slimftl, not yet"),
    ('baseline = "pagemap"\n', "", "base. needs a baseline"),
    ('value = "waf / base.waf"', 'value = "waf("', "+ - * / and share"),
    ('title = "WAF"\n', "", "title: it must be a text"),
    ('y = "WAF / page map"', 'y = "WAF"\nz = 1', "z: no such key"),
    ("[all.opt]", "[all.opts]", "all.opts: no such key"),
    ("name = 2", "name = 1", "a name is there twice"),
    ("name = 2", 'name = "mean"', "and none of *, mean, most, least"),
    ("name = 2", 'name = "most"', "and none of *, mean, most, least"),
    ('ftl = "slimftl"', 'size = "1G"', "series slimftl: use ftl = NAME"),
    ('mark = "N"\nat_least', 'mark = "S"\nat_least', "mark S knows the shape only"),
    ('mark = "N"\nat_least', 'mark = "X"\nat_least', "use N, A, P, S"),
    ("at_least = 0.5", "at_least = 0.5\nat_most = 3", "one of within"),
    ("at_least = 0.5", "", "one of within"),
    ("at_least = 0.5", 'at_least = "much"', "they must be numbers"),
    ("paper = 3\n", "", "they must be numbers"),
    ('series = ["not yet", "pagemap", "slimftl"]', 'series = "pagemap"', "several for order"),
    ("x = 1\n", "x = 7\n", "x = '7': use 1, 2, *, mean, most, least"),
    ('level = 0.5', 'level = 0.5\nx = "most"', "level is a rule along x"),
    ("seed = 2", 'seed = 2\nsource = "a"\ntrace = "b"', "source and trace: use one of them"),
    ('form = "lines"', 'of = "guesses"', "use replays or recoveries or formulas or records"),
    ('form = "lines"', 'of = "formulas"', "all.preset: no such key"),
    ("level = 0.5", "meet = 3", "meet is of two series, and not of 3"),
    ('mark = "S"\nlevel = 0.5', 'mark = "S"\nx = 1\nrising = true', "several for order, level, meet"),
    ('series = "slimftl"\nx = "mean"\nmark = "N"\nat_least = 0.5',
     'series = "slimftl"\nx = 1\nmark = "S"\nrising = true', "rising is a rule along x"),
    ("[all]", "[all", "no TOML"),
])  # fmt: skip
def test_a_figure_that_cannot_be_is_told_in_a_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in TINY
    with pytest.raises(UsageError) as told:
        written(tmp_path, TINY.replace(old, new, 1))
    assert why in str(told.value) and "tiny-1.toml: " in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("buffer = 64", "gamma = 4", "opt.gamma: none of pagemap, slimftl has it"),
    ("seed = 2", "dies = [1, 2]", "small-64m"),
    ("seed = 2", "seed = [2, 3]", "2 points: use one"),
    ("seed = 2", 'source = "zipff"', "no such file; workloads are"),
])  # fmt: skip
def test_a_point_that_cannot_be_is_told_before_anything_runs(tmp_path: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(UsageError) as told:
        make.cells(written(tmp_path, TINY.replace(old, new, 1)), "small", None, None, print)
    assert why in str(told.value) and "tiny-1: " in str(told.value)


@pytest.mark.parametrize(("rule", "ours", "met"), [
    ({"paper": 2.0, "within": 0.1}, 2.19, True), ({"paper": 2.0, "within": 0.1}, 1.79, False),
    ({"at_least": 2.0}, 2.0, True), ({"at_least": 2.0}, 1.99, False),
    ({"at_most": 2.0}, 2.0, True), ({"at_most": 2.0}, 2.01, False),
])  # fmt: skip
@pytest.mark.parametrize("mark", ["N", "A", "P"])
def test_numbers(tmp_path: Path, rule: dict[str, float], ours: float, met: bool, mark: str) -> None:
    text = TINY[: TINY.index("[[expect]]")] + f'[[expect]]\nseries = "slimftl"\nx = 1\nmark = "{mark}"\n'
    made = written(tmp_path, text + "\n".join(f"{key} = {value}" for key, value in rule.items()))
    (line,) = [one for one in verdict.lines(made, {("slimftl", "1"): ours}, {}) if one.mark]
    assert line.met is met and line.verdict.startswith((verdict.MET if met else verdict.NOT_MET)[mark])
    assert line.ratio == ours / 2.0


@pytest.mark.parametrize(("rule", "values", "met"), [
    ("falling = true", (3.0, 2.0), True), ("falling = true", (2.0, 2.1), False), ("falling = 0.1", (2.0, 2.1), False),
    ("falling = 0.1", (2.0, 1.9), False), ("falling = 0.1", (2.0, 1.8), True),
    ("rising = true", (2.0, 3.0), True), ("rising = true", (3.0, 2.0), False), ("rising = true", (2.0, 2.0), False),
    ("flat = 0.1", (2.0, 2.19), True), ("flat = 0.1", (2.0, 2.3), False),
])  # fmt: skip
def test_shapes(tmp_path: Path, rule: str, values: tuple[float, float], met: bool) -> None:
    text = TINY[: TINY.index("[[expect]]")] + f'[[expect]]\nseries = "slimftl"\nmark = "S"\n{rule}\n'
    found = {("slimftl", str(at + 1)): value for at, value in enumerate(values)}
    line = verdict.lines(written(tmp_path, text), found, {})[-1]
    assert line.met is met and line.verdict == ("shape holds" if met else "another shape")
    assert line.paper is None and line.ours is None and line.ratio is None


def test_no_verdict_claims_more_than_its_mark() -> None:
    assert set(verdict.MET) == set(files.MARKS) == set(verdict.NOT_MET)
    assert "printed" not in verdict.MET["S"] + verdict.MET["P"] + verdict.MET["A"]


@pytest.mark.parametrize(("value", "mean"), [("waf / base.waf", 2.0), ("waf", 2.5)])
def test_means(tmp_path: Path, value: str, mean: float) -> None:
    figure = written(tmp_path, TINY.replace('value = "waf / base.waf"', f'value = "{value}"'))
    found = {("slimftl", "1"): 1.0, ("slimftl", "2"): 4.0}
    (line,) = [one for one in verdict.lines(figure, found, {}) if one.x == "mean"]
    assert line.ours == pytest.approx(mean) and line.met
    found["slimftl", "2"] = None
    assert [one.met for one in verdict.lines(figure, found, {}) if one.x == "mean"] == [None]


@pytest.mark.parametrize(("series", "x", "ours"), [
    ('"slimftl"', "most", 4.0), ('"slimftl"', "least", 1.0), ('["slimftl", "pagemap"]', "mean", 1.0),
    ('["slimftl", "pagemap"]', "most", 2.0), ('["pagemap", "slimftl"]', "1", 2.0), ('["pagemap", "slimftl"]', "2", 0.5),
    ('["not yet", "pagemap", "slimftl"]', "least", 0.75), ('["not yet", "pagemap", "slimftl"]', "1", 3.0),
])  # fmt: skip
def test_numbers_of_quotients_and_over_x(tmp_path: Path, series: str, x: str, ours: float) -> None:
    """A quotient is of the least of the others; its mean is geometric, whatever the value is."""
    figure = written(tmp_path, TINY[: TINY.index("[[expect]]")].replace("waf / base.waf", "waf") + (
        f'[[expect]]\nseries = {series}\nx = "{x}"\nmark = "N"\npaper = {ours}\nwithin = 0.01\n'))  # fmt: skip
    found: dict[tuple[str, str], float | None] = {
        ("pagemap", "1"): 2.0, ("pagemap", "2"): 2.0, ("slimftl", "1"): 1.0, ("slimftl", "2"): 4.0,
        ("not yet", "1"): 3.0, ("not yet", "2"): 1.5,
    }  # fmt: skip
    line = verdict.lines(figure, found, {})[-1]
    assert line.ours == pytest.approx(ours) and line.met and line.x == x
    assert line.series == {1: "slimftl", 2: "slimftl / pagemap", 3: "not yet / least of pagemap, slimftl"}.get(
        len(figure.expect[0].series)) or line.series == "pagemap / slimftl"  # fmt: skip
    found["pagemap", "1"] = found["slimftl", "1"] = None
    gone = verdict.lines(figure, found, {})[-1]
    assert gone.met is (True if x == "2" else None) and gone.key == line.key
    waiting = verdict.lines(figure, {}, {"pagemap": "waits for nosuchftl"})[-1]
    assert waiting.met is None and waiting.verdict == ("waits for nosuchftl" if "pagemap" in series else "not measured")


def test_a_quotient_at_each_x(tmp_path: Path) -> None:
    figure = written(tmp_path, TINY[: TINY.index("[[expect]]")] + (
        '[[expect]]\nseries = ["slimftl", "pagemap"]\nmark = "N"\nat_most = 1\n'))  # fmt: skip
    found = {("pagemap", "1"): 2.0, ("pagemap", "2"): 0.0, ("slimftl", "1"): 1.0, ("slimftl", "2"): 4.0}
    assert [(line.x, line.ours, line.met) for line in verdict.lines(figure, found, {})[-2:]] == [
        ("1", 0.5, True), ("2", None, None)]  # fmt: skip
    assert len(verdict.lines(figure, {}, {})) == 1


def test_an_order(tmp_path: Path) -> None:
    figure = written(tmp_path, TINY.replace("level = 0.5", "order = 0.5"))
    values = {("pagemap", "1"): 1.0, ("pagemap", "2"): 1.0, ("slimftl", "1"): 3.3, ("slimftl", "2"): 0.7}
    line = verdict.lines(figure, values, {"not yet": "waits for nosuchftl"})[-1]
    assert line.met is True and line.verdict == "shape holds, of 2"
    for spoilt in ({("slimftl", "2"): 0.6}, {("slimftl", "1"): 3.1}):  # too far off at one x; too little on average
        again = verdict.lines(figure, values | spoilt, {"not yet": "waits for nosuchftl"})[-1]
        assert again.met is False
    values["slimftl", "2"] = 0.6
    assert verdict.lines(figure, values, {"not yet": "waits for nosuchftl"})[-1].met is False
    del values["slimftl", "1"], values["slimftl", "2"]
    assert verdict.lines(figure, values, {"not yet": "waits for nosuchftl"})[-1].met is None


def test_an_order_at_one_x(tmp_path: Path) -> None:
    text = TINY[: TINY.index("[[expect]]")] + (
        '[[expect]]\nseries = ["pagemap", "slimftl"]\nx = 2\nmark = "S"\norder = true\n')  # fmt: skip
    values = {("pagemap", "1"): 9.0, ("pagemap", "2"): 1.0, ("slimftl", "1"): 1.0, ("slimftl", "2"): 1.01}
    line = verdict.lines(written(tmp_path, text), values, {})[-1]
    assert line.met is True and line.x == "2"  # what is at 1 does not count
    for none in (1.01, 1.1):  # no effect, and one the other way
        values["pagemap", "2"] = none
        assert verdict.lines(written(tmp_path, text), values, {})[-1].met is False
    assert verdict.lines(written(tmp_path, text), {}, {})[-1].met is None


@pytest.mark.parametrize(("zeros", "other", "met"), [(0.0, 0.5, True), (0.0, 0.0, False), (0.5, 0.0, False)])
def test_an_order_of_counts_that_may_be_0(tmp_path: Path, zeros: float, other: float, met: bool) -> None:
    text = TINY[: TINY.index("[[expect]]")] + '[[expect]]\nseries = ["pagemap", "slimftl"]\nmark = "S"\norder = 0.1\n'
    values = {("pagemap", "1"): zeros, ("pagemap", "2"): zeros, ("slimftl", "1"): 0.0, ("slimftl", "2"): other}
    assert verdict.lines(written(tmp_path, text), values, {})[-1].met is (met if zeros == 0 else False)


@pytest.mark.parametrize(("values", "met"), [((1.0, 1.1, 1.0, 1.0), True), ((1.0, 1.0, 1.12, 1.0), False)])
def test_series_that_are_level(tmp_path: Path, values: tuple[float, ...], met: bool) -> None:
    """At each x, whichever is the largest."""
    text = TINY[: TINY.index("[[expect]]")] + '[[expect]]\nseries = ["pagemap", "slimftl"]\nmark = "S"\nlevel = 0.1\n'
    found = dict(zip([("pagemap", "1"), ("pagemap", "2"), ("slimftl", "1"), ("slimftl", "2")], values, strict=True))
    line = verdict.lines(written(tmp_path, text), found, {})[-1]
    assert line.met is met and line.series == "pagemap == slimftl"


@pytest.mark.parametrize(("rule", "met"), [("falling = true", False), ('falling = true\namong = [2, 3]', True)])
def test_along_some_x(tmp_path: Path, rule: str, met: bool) -> None:
    text = TINY[: TINY.index("[[expect]]")] + '[[at]]\nname = 3\nsource = "uniform:ops=8k"\n'
    text += f'[[expect]]\nseries = "slimftl"\nmark = "S"\n{rule}\n'
    found = {("slimftl", "1"): 1.0, ("slimftl", "2"): 3.0, ("slimftl", "3"): 2.0}
    assert verdict.lines(written(tmp_path, text), found, {})[-1].met is met


def test_a_mean_over_some_x(tmp_path: Path) -> None:
    text = TINY[: TINY.index("[[expect]]")] + (
        '[[expect]]\nseries = "slimftl"\nx = "mean"\namong = [2]\nmark = "N"\npaper = 4\nwithin = 0.01\n')  # fmt: skip
    found = {("slimftl", "1"): 1.0, ("slimftl", "2"): 4.0}
    line = verdict.lines(written(tmp_path, text), found, {})[-1]
    assert line.met and line.ours == pytest.approx(4.0)
    for wrong in (text.replace('x = "mean"', "x = 1"), text.replace("among = [2]", "among = [9]")):
        with pytest.raises(UsageError, match=r"among = .*: use names of x"):
            written(tmp_path, wrong)


@pytest.mark.parametrize(("other", "ours"), [
    ([8.0, 8.0], 2.0), ([8.0, 7.0], 1.0), ([8.0, 10.0], None), ([1.0, 2.0], None), ([1.0, 1.0], None),
    ([3.0, 3.0], None),
])  # fmt: skip
def test_where_two_lines_meet(tmp_path: Path, other: list[float], ours: float | None) -> None:
    """The first rises by 2 a doubling, to 4 at 2. Lines that part, or met before, do not meet any more."""
    text = TINY[: TINY.index("[[expect]]")] + (
        '[[expect]]\nseries = ["pagemap", "slimftl"]\nmark = "N"\nmeet = 1.5\n')  # fmt: skip
    values: dict[tuple[str, str], float | None] = {("pagemap", "1"): 2.0, ("pagemap", "2"): 4.0}
    values |= {("slimftl", str(at + 1)): value for at, value in enumerate(other)}
    line = verdict.lines(written(tmp_path, text), values, {})[-1]
    assert line.ours == (None if ours is None else pytest.approx(ours)) and line.paper == 1.5
    assert line.met is (ours is None or ours >= 1.5) and "doublings of x" in line.verdict
    values["slimftl", "2"] = None
    assert verdict.lines(written(tmp_path, text), values, {})[-1].met is None


def test_lines_take_numbers(tmp_path: Path) -> None:
    text = TINY[: TINY.index("[[expect]]")].replace("name = 2", 'name = "two"') + (
        '[[expect]]\nseries = ["pagemap", "slimftl"]\nmark = "N"\nmeet = 1.5\n')  # fmt: skip
    with pytest.raises(UsageError, match="at x = 'two' there is no logarithm"):
        written(tmp_path, text)


def test_two_lines_of_one_key_have_to_hold_both(tmp_path: Path) -> None:
    figure = written(tmp_path, TINY + '[[expect]]\nseries = "slimftl"\nx = "mean"\nmark = "N"\nat_least = 99\n')
    made = make.make(figure, "small", tmp_path / "out", Here())
    assert [line.met for line in made.lines if line.x == "mean"] == [True, False]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "tiny-1.json").write_text(Path(made.files["table"]).read_text())
    assert make.kept(figure, "small")["slimftl | mean | at_least"] is False
    assert not make.make(figure, "small", tmp_path / "out", Here()).lost


def test_the_same_bits_twice(tmp_path: Path) -> None:
    figure = written(tmp_path)
    first = make.make(figure, "small", tmp_path / "a", Here())
    again = make.make(figure, "small", tmp_path / "a", Here())  # only read
    other = make.make(figure, "small", tmp_path / "b", Processes(2))
    assert len(list((tmp_path / "a" / "sweep" / "points").iterdir())) == 4
    for made in (again, other):
        assert made.plain() == first.plain()
        for name in ("json", "parquet", "svg"):
            mine, theirs = tmp_path / "a" / f"tiny-1.{name}", Path(made.files["table"]).with_suffix(f".{name}")
            assert mine.read_bytes() == theirs.read_bytes(), name
    assert not first.failed and not first.complaints
    assert verdict.summary(first.lines) == "reproduced (4 of 4), waits for nosuchftl"
    assert first.options["all"].startswith("buffer=64, dies=4, host=67108864")
    assert "slimftl" not in first.options and first.options["at 2"] == "source=uniform:ops=8k,seed=2"


def test_what_held_and_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = written(tmp_path)
    out = tmp_path / "out"
    command = ["reproduce", "tiny", "1", "--figures", str(figure.file.parent), "--out", str(out)]
    assert run(command) == 0
    kept = tmp_path / "results"
    kept.mkdir()
    (kept / "tiny-1.json").write_text((out / "tiny-1.json").read_text())
    assert run(command) == 0  # it holds still
    written(tmp_path, TINY.replace("at_least = 0.5", "at_least = 50"))
    assert run([*command, "--json"]) == 1
    told = capsys.readouterr()
    assert "tiny-1: slimftl, mean: not as printed, at least; it held before" in told.err
    assert json.loads(told.out[told.out.index("\n[\n") :])[0]["lost"] == ["slimftl | mean | at_least"]
    assert run(["reproduce", "--figures", str(figure.file.parent), "--json"]) == 0
    listed = {(one["paper"], one["figure"]): one["kept"] for one in json.loads(capsys.readouterr().out)}
    assert listed["tiny", "1"] == "reproduced (4 of 4), waits for nosuchftl, small"


def test_each_scale_is_kept_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = written(tmp_path, TINY.replace('source = "uniform:ops=32k"', 'source = "uniform:ops=9k"'))
    kept = tmp_path / "results"
    kept.mkdir()
    small = make.make(figure, "small", tmp_path / "out", Here())
    (kept / make.kept_name(figure, "small")).write_text(Path(small.files["table"]).read_text())
    assert make.kept(figure, "paper") == {} and make.kept_file(figure, "paper") is None
    paper = make.make(figure, "paper", tmp_path / "out", Here())
    (kept / make.kept_name(figure, "paper")).write_text(Path(paper.files["table"]).read_text())
    assert {path.name for path in kept.iterdir()} == {"tiny-1.json", "tiny-1.paper.json"}
    assert make.kept(figure, "small") and make.kept(figure, "paper").keys() == make.kept(figure, "small").keys()
    listing = ["reproduce", "--figures", str(figure.file.parent), "--scale", "paper", "--json"]
    assert run(listing) == 0
    listed = {(one["paper"], one["figure"]): one["kept"] for one in json.loads(capsys.readouterr().out)}
    assert listed["tiny", "1"] == "reproduced (4 of 4), waits for nosuchftl, paper"


def test_other_ground_is_told(tmp_path: Path) -> None:
    text = TINY.replace('ftl = "slimftl"', 'ftl = "slimftl"\nopt = { buffer = 8 }')
    every, _ = make.cells(written(tmp_path, text), "small", None, None, print)
    assert make.unequal(every) == ["buffer 64: pagemap; buffer 8: slimftl"]
    about_that = written(tmp_path, text.replace('form = "lines"', 'form = "lines"\ncompares = ["buffer"]'))
    assert make.unequal(every, about_that.compares) == []
    with pytest.raises(UsageError, match="compares = 'buffer': use a list of names"):
        written(tmp_path, text.replace('form = "lines"', 'form = "lines"\ncompares = "buffer"'))


def test_every_option_is_told(tmp_path: Path) -> None:
    text = TINY.replace("seed = 2", "seed = 2\nopt = { shift = 4 }").replace(
        'ftl = "slimftl"', 'ftl = "slimftl"\nopt = { buffer = 8 }'
    )
    every, _ = make.cells(written(tmp_path, text), "small", None, None, print)
    said = make.options(every)
    assert said["slimftl"] == "buffer=8" and said["pagemap"] == "buffer=64"
    assert said["slimftl at 2"] == "shift=4" and "pagemap at 2" not in said


def test_some_of_the_schemes(tmp_path: Path) -> None:
    figure = written(tmp_path)
    every, waits = make.cells(figure, "paper", ["pagemap"], None, print)
    assert {cell.series.name for cell in every} == {"pagemap"} and waits == {"not yet": "waits for nosuchftl"}
    assert every[0].setup.source == "uniform:ops=32k,seed=1"
    with pytest.raises(UsageError, match="--ftl dftl: tiny-1 has pagemap, slimftl, nosuchftl"):
        make.cells(figure, "small", ["dftl"], None, print)


def test_traces_are_asked_for(tmp_path: Path) -> None:
    figure = written(tmp_path, TINY.replace("seed = 2", 'trace = "mine*.trace"\nfit = "clip"'))
    told: list[str] = []
    every, _ = make.cells(figure, "small", None, None, told.append)
    assert {cell.x.name for cell in every} == {"1"} and told[0] == "tiny-1: 2 needs --traces DIR with mine*.trace"
    source = Path(__file__).parents[2] / "examples" / "traces" / "varmail-fio.trace"
    (tmp_path / "mine-1.trace").symlink_to(source)
    every, _ = make.cells(figure, "small", None, tmp_path, told.append)
    assert {cell.x.name for cell in every} == {"1", "2"}


def test_requests_that_were_left_out_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.trace").write_text("".join(f"{at * 999} 0 {at << 17} 8 0\n" for at in range(0, 4000, 2)))
    figure = written(tmp_path, TINY.replace("seed = 2", 'trace = "mine.trace"\nfit = "clip"\nformat = "mqsim"\nqd = 1'))
    made = make.make(figure, "small", tmp_path / "out", Here(), ftls=["pagemap"], traces=tmp_path)
    assert len(made.complaints) == 1 and made.complaints[0].startswith("2: 1,999 lines rejected: beyond the device")


@pytest.mark.parametrize("arguments", [["--scale", "large"], ["nopaper"], ["slimftl", "99"], ["--traces", "/nowhere"],
                                       ["--figures", "/nowhere"]])  # fmt: skip
def test_what_cannot_be_asked_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", *arguments]) == 2
    err = capsys.readouterr().err
    assert "; use " in err or ": use " in err or "no such folder" in err


OURS = files.find([files.OURS])


@pytest.mark.parametrize(
    ("name", "scale"),  # `make test` runs a fifth of the figures, small
    [
        pytest.param(name, scale, marks=() if i % 5 == 0 and scale == "small" else pytest.mark.slow)
        for i, name in enumerate(OURS)
        for scale in files.SCALES
    ],
)
def test_each_of_ours_can_be_replayed(name: str, scale: str) -> None:
    figure = OURS[name]
    assert figure.says[scale] and figure.minutes[scale] > 0
    if figure.of == "formulas":
        assert make.computed(figure, scale, None)
        return
    if figure.of == "records":
        assert len(records.of(figure, scale, None, print)[0]) == len(figure.series) * len(figure.xs)
        return
    some = None if scale == "small" else figure.ftls[:1]  # sources of that size take their time, and are the same
    every, waits = make.cells(figure, scale, some, None, lambda line: None)
    assert every or waits
    allowed = [line for line in make.unequal(every, figure.compares) if not line.startswith("stripe ")]
    assert not allowed  # one ground for all, but for the page map's stripe, which is shown with both


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("scale", files.SCALES)
def test_each_of_ours_is_kept(name: str, scale: str) -> None:
    """At the small scale all are."""
    kept = make.kept_file(OURS[name], scale)
    if kept is None and scale == "paper":
        return
    assert kept is not None and kept["scale"] == scale and not kept["failed"] and not kept["lost"]
    assert make.judged(OURS[name], scale) == kept, "tools/reproduce.py --judge"
    names = {one.name for one in (*OURS[name].series, *OURS[name].xs)}
    names |= {verdict.named(one) for one in OURS[name].expect if one.rule in files.NUMBERED}
    told = [row["series"] for row in kept["rows"] if row["x"] != verdict.ALONG]
    assert {name for one in told for name in re.split(" <= | == ", one)} <= names  # of this figure, as it is now


ROOT = Path(__file__).parents[2]


def test_the_page_shows_a_figure_that_can_be_replayed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text()
    figure = written(tmp_path, page.partition("```toml\n")[2].partition("```")[0], "mine-3")
    every, _ = make.cells(figure, "small", None, None, print)
    assert [cell.setup.source for cell in every] == ["uniform:ops=20k,seed=1"] * 2
    assert {rule for one in figure.expect for rule in [one.rule]} == {"within", "order"}


def test_the_page_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import reproduce  # the tool

    page = (ROOT / "docs" / "reproduce.md").read_text()
    assert reproduce.with_table(page, OURS) == page


@pytest.mark.parametrize("name", OURS)
def test_no_shape_of_ours_holds_where_nothing_differs(name: str) -> None:
    """An order, a rise or a fall that holds without an effect says nothing of the scheme."""
    figure = OURS[name]
    found = {(one.name, x.name): 1.0 for one in figure.series for x in figure.xs}
    held = [line.key for line in verdict.lines(figure, found, {})
            if line.met and line.rule in ("order", "rising", "falling")]  # fmt: skip
    assert not held


QUOTIENT = """
[[expect]]
series = ["slimftl", "pagemap"]
mark = "N"
paper = 1.078
within = {within}
"""


@pytest.mark.parametrize(("within", "taken"), [(0.1, False), (0.0724, False), (0.07, True)])
def test_a_tolerance_is_smaller_than_its_effect(within: float, taken: bool, tmp_path: Path) -> None:
    """Or a quotient of 1, no effect at all, would be as printed."""
    text = TINY + QUOTIENT.format(within=within)
    if taken:
        assert written(tmp_path, text).expect[-1].bound == within
        return
    with pytest.raises(UsageError, match=r"within = .* of 1.078: the tolerance is as large as the effect; use less"):
        written(tmp_path, text)


def test_what_is_lost_has_a_reason(tmp_path: Path) -> None:
    """Then it is listed no more."""
    figure = written(tmp_path, TINY + '[[expect]]\nseries = "slimftl"\nx = "mean"\nmark = "N"\nat_least = 99\n')
    made = make.make(figure, "small", tmp_path / "out", Here())
    key = "slimftl | mean | at_least"
    held = {**made.plain(), "rows": [{**row, "met": True} for row in made.plain()["rows"]], "lost": []}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "tiny-1.json").write_text(json.dumps(held))
    again = make.judged(figure, "small")
    assert [line.key for line in make.make(figure, "small", tmp_path / "out", Here()).lost] == [key]
    assert again is not None and again["lost"] == [key] and again["rows"] == made.plain()["rows"]
    figure = written(tmp_path, figure.file.read_text() + f'[lost]\n"{key}" = "nobody has 99"\n')
    again = make.judged(figure, "small")
    assert again is not None and again["lost"] == [] and again["summary"].startswith("partly")
    assert make.make(figure, "small", tmp_path / "out", Here()).lost == []
