"""A failing case is made smaller, and fails in the same way."""

from __future__ import annotations

import json
import shlex

import plants
import pytest

from flashfs import cli
from flashfs.crash import Case, campaign
from flashfs.crash.shrink import kind_of, shrink, smaller_than, why_of


def test_a_bug_that_was_planted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plants.lost_newest_trim(monkeypatch)
    found = campaign.run("pagemap", "random", 4, 300).failures[0]
    *_, line = shlex.split(found.replay)
    case = Case.parse(line)
    assert cli.run(["crash", "shrink", line, "--seconds", "20", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    smaller = Case.parse(said["line"])
    assert said["words"] < said["words_before"] == len(case.program.split())
    assert len(smaller.program.split()) <= 4
    assert kind_of(said["why"]) == kind_of(found.why)
    assert {name for name, _ in smaller.options} <= {"buffer"} and not smaller.later and not smaller.plp
    assert why_of(smaller) == said["why"]
    assert cli.run(["crash", "shrink", said["line"]]) == 0
    assert "flashfs crash replay 'ftl=pagemap" in capsys.readouterr().out


def test_one_that_does_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["crash", "shrink", "ftl=pagemap preset=tiny-16 program='w0 f'"]) == 2
    assert "this case does not fail" in capsys.readouterr().err
    case = Case.parse("ftl=pagemap preset=tiny-16 program='w0 f'")
    assert shrink(case) == case


def test_what_is_smaller() -> None:
    case = Case.parse(
        "ftl=dftl preset=tiny-24d chip.blocks=22 opt.buffer=4 opt@1.battery=0 plp dram=40000 fault=flip=9:40 "
        "cut=30:after cut=4:oob-only.2 program='w0+9 t3+4/2 c0-20+3 w4:10+70 f'"
    )
    found = list(smaller_than(case))
    assert case not in found
    assert all(Case.parse(one.line()).line() == one.line() for one in found)
    lines = {one.line() for one in found}
    for gone in (
        "chip.blocks=22 ", "opt.buffer=4 ", "opt@1.battery=0 ", "plp ", "dram=40000 ", "cut=30:after ", " w4:10+70",
    ):  # fmt: skip
        assert case.line().replace(gone, "", 1) in lines, gone
    assert any("t3+2/2" in line for line in lines)
    assert any("cut=15:after" in line for line in lines)
