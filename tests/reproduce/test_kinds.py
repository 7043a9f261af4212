"""Figures that are not of replays: of formulas, of recoveries, and of what a tool measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from figures import written

from flashfs import formulas
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import recovery_runs, sweep
from flashfs.replay.workers import Here, Processes
from flashfs.reproduce import make, records, verdict

FORMULAS = """
title = "DRAM"
source = "a paper, figure 1"
of = "formulas"
value = "dram.total / base.dram.total"
baseline = "lazyftl"
y = "DRAM"

[all]
pages_per_block = 256

[small]
says = "a device"

[paper]
capacity = 4_398_046_511_104

[[series]]
name = "lazyftl"
ftl = "lazyftl"

[[series]]
name = "geckoftl"
ftl = "geckoftl"

[[at]]
name = "as it is"

[[at]]
name = "half"
ratio = 0.5
value = "recovery.seconds"

[[expect]]
series = "geckoftl"
x = "as it is"
mark = "A"
at_most = 0.2
"""


def test_a_figure_of_formulas(tmp_path: Path) -> None:
    figure = written(tmp_path, FORMULAS)
    made = make.make(figure, "small", tmp_path / "out", Here())
    values = {(line.series, line.x): line.ours for line in made.lines}
    assert values["lazyftl", "as it is"] == 1 and 0.1 < (values["geckoftl", "as it is"] or 0) < 0.2
    half = formulas.Chip(pages_per_block=256, ratio=0.5)
    assert values["geckoftl", "half"] == pytest.approx(formulas.recovery.seconds("geckoftl", half))
    assert made.options == {"all": "pages_per_block=256", "at half": "ratio=0.5"} and not made.complaints
    again = make.make(figure, "small", tmp_path / "again", Here())
    for name in ("tiny-1.json", "tiny-1.parquet", "tiny-1.svg"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert again.plain() == made.plain()
    paper = make.computed(figure, "paper", ["geckoftl"])
    assert [one.chip.capacity for one in paper if one.ftl == "geckoftl"] == [1 << 42] * 2
    assert {one.ftl for one in paper} == {"lazyftl", "geckoftl"}  # the baseline comes along


@pytest.mark.parametrize(("old", "new", "why"), [
    ('ftl = "geckoftl"', 'ftl = "pagemap"', "ftl = 'pagemap': use dftl, lazyftl"),
    ("ratio = 0.5", "ratio = 2", "use shares below 1"),
    ("ratio = 0.5", 'ratio = "half"', "ratio = 'half': use a number"),
])  # fmt: skip
def test_a_device_of_formulas_that_is_none(tmp_path: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(UsageError) as told:
        make.computed(written(tmp_path, FORMULAS.replace(old, new, 1)), "small", None)
    assert why in str(told.value) and "tiny-1: " in str(told.value)


RECOVERIES = """
title = "Recoveries"
source = "a paper, appendix C"
of = "recoveries"
value = "max(recovered.headers.spare_reads_by_cut) / recovery.blocks.spare_reads"
y = "Spare reads / K"

[all]
preset = "tiny-1536"
precondition = "fill"
source = "uniform:write=1,size=512,qd=1,ops=4k"

[small]
says = "a tiny device"

[paper]
says = "the same"

[[series]]
name = "headers"
ftl = "geckoftl"

[[series]]
name = "seconds"
ftl = "geckoftl"
value = "mean(recovered.seconds_by_cut) / recovery.seconds"

[[series]]
name = "no formulas"
ftl = "pagemap"
value = "mean(recovered.all.spare_reads_by_cut)"

[[at]]
name = "as it is"

[[expect]]
series = "headers"
x = "*"
mark = "A"
paper = 1
within = 0
"""


def test_a_figure_of_recoveries(tmp_path: Path) -> None:
    """Each point is cut and mounted several times; what that took stands beside the formulas of that device."""
    figure = written(tmp_path, RECOVERIES)
    made = make.make(figure, "small", tmp_path / "out", Here())
    values = {line.series: line.ours for line in made.lines}
    assert not made.failed and verdict.summary(made.lines) == "reproduced (1 of 1)"
    assert (values["seconds"] or 0) > 0 and (values["no formulas"] or 0) > 0
    points = sweep.Place.at(tmp_path / "out" / "recoveries").points
    every = [json.loads(one.read_text())["result"] for one in points.iterdir()]
    (result,) = [one for one in every if one["ftl"] == "geckoftl"]
    cuts = result["requests_by_cut"]
    assert len(cuts) == recovery_runs.CUTS and cuts == sorted(set(cuts)) and cuts[0] > 0 and cuts[-1] <= 4000
    assert result["input"]["requests"] == cuts[-1]  # what comes after the last one is not played
    for step in result["recovered"].values():
        assert all(len(took) == len(cuts) for took in step.values())
    total = [sum(step["spare_reads_by_cut"][at] for name, step in result["recovered"].items() if name != "all")
             for at in range(len(cuts))]  # fmt: skip
    assert total == result["recovered"]["all"]["spare_reads_by_cut"] and min(total) > 0
    again = make.make(figure, "small", tmp_path / "again", Processes(2))
    assert again.plain() == made.plain()
    for name in ("tiny-1.json", "tiny-1.parquet", "tiny-1.svg"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_recoveries_need_to_know_where_to_cut(tmp_path: Path) -> None:
    made = make.make(written(tmp_path, RECOVERIES.replace("ops=4k", "ops=3")), "small", tmp_path / "out", Here())
    assert len(made.failed) == 2 and "use a workload of 8 requests at least" in made.failed[0]
    assert [line.met for line in made.lines if line.mark] == [None]


RECORDS = """
title = "Training"
source = "a paper, figure 17"
of = "records"
value = "us"
y = "us"

[all]
file = "mine.json"

[small]
says = "a tiny device"

[paper]
says = "the same"

[[series]]
name = "training"
ftl = "learnedftl"

[[series]]
name = "twice"
ftl = "tpftl"
value = "us * 2"

[[at]]
name = 10
row = { valid = 10 }

[[at]]
name = 100
row = { valid = 100 }

[[expect]]
series = "training"
mark = "S"
rising = true
"""
MEASURED = {
    "tool": "bench/mine.py", "machine": {"cpu": "a processor", "python": "3.11.7"},
    "rows": [{"valid": 10, "us": 1.5}, {"valid": 100, "us": 5.0}],
}  # fmt: skip


def test_a_figure_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool measured is only read, so it is the same each time; where it was measured is reported."""
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    figure = written(tmp_path, RECORDS)
    told: list[str] = []
    gone = make.make(figure, "small", tmp_path / "out", Here(), tell=told.append)
    assert told[0] == "tiny-1: 10 needs bench/results/mine.json, of a tree of sources" and len(told) == 4
    assert [line.met for line in gone.lines if line.mark] == [None] and "results" not in gone.files
    (tmp_path / "mine.json").write_text(json.dumps(MEASURED))
    made = make.make(figure, "small", tmp_path / "out", Here())
    values = {(line.series, line.x): line.ours for line in made.lines if not line.mark}
    assert values == {("training", "10"): 1.5, ("training", "100"): 5, ("twice", "10"): 3, ("twice", "100"): 10}
    assert verdict.summary(made.lines) == "reproduced (1 of 1)"
    assert made.complaints == [
        "mine.json: measured by bench/mine.py on one core of a processor, Python 3.11.7"]  # fmt: skip
    assert made.options == {"all": "file=mine.json", "at 10": "valid=10", "at 100": "valid=100"}
    make.make(figure, "small", tmp_path / "again", Here())
    for name in ("tiny-1.json", "tiny-1.parquet", "tiny-1.svg"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    some = make.make(figure, "small", tmp_path / "some", Here(), ftls=["tpftl"])
    assert {line.series for line in some.lines if line.ours is not None} == {"twice"}


@pytest.mark.parametrize(("old", "new", "why"), [
    ("row = { valid = 100 }", "row = { valid = 99 }", "training, 100: row = {'valid': 99}: 0 rows of mine.json match"),
    ("row = { valid = 100 }", "", "and row = { COLUMN = VALUE }"),
    ('file = "mine.json"', "file = 3", "file = NAME, of bench/results"),
])  # fmt: skip
def test_a_record_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    (tmp_path / "mine.json").write_text(json.dumps(MEASURED))
    with pytest.raises(UsageError) as told:
        make.make(written(tmp_path, RECORDS.replace(old, new, 1)), "small", tmp_path / "out", Here())
    assert why in str(told.value) and "tiny-1: " in str(told.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": [{"valid": 10}]}'])
def test_records_that_no_tool_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(FlashfsError, match="no results with tool, machine and rows"):
        make.make(written(tmp_path, RECORDS), "small", tmp_path / "out", Here())
