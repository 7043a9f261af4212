"""Ten thousand distinct cuts and more for each FTL, in parts that run side by side."""

from __future__ import annotations

import json

import pytest

from flashfs import cli
from flashfs.crash import campaign
from flashfs.ftl import SCHEMES

PARTS = 8
CUTS = 1_300  #: a part; eight parts are 10,400 cuts of an FTL
RANDOM_CUTS = 700


def must_survive(result: campaign.Result, cuts: int) -> None:
    """All cuts happened, and nothing was lost; else the lines that replay the first losses."""
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


@pytest.mark.parametrize("ftl", list(SCHEMES))
@pytest.mark.parametrize("part", range(PARTS))
def test_sweep(ftl: str, part: int) -> None:
    must_survive(campaign.run(ftl, "sweep", part, CUTS), CUTS)


@pytest.mark.parametrize("ftl", list(SCHEMES))
@pytest.mark.parametrize("part", range(4))
def test_random_with_cut_recoveries_and_failures(ftl: str, part: int) -> None:
    must_survive(campaign.run(ftl, "random", part, RANDOM_CUTS), RANDOM_CUTS // 2)  # not every planned cut comes up


@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_every_program_of_two_words(ftl: str) -> None:
    must_survive(campaign.run(ftl, "every", 0, 2), 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_every_program_of_three_words(ftl: str) -> None:
    must_survive(campaign.run(ftl, "every", 0, 3), 10_000)


@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_the_cuts_are_distinct_and_the_parts_do_not_meet(ftl: str) -> None:
    cases = [case for part in range(2) for case in campaign.sweep(ftl, part, CUTS)]
    assert len(set(cases)) == len(cases)
    assert sum(len(case.cuts) for case in cases) >= 2 * CUTS


def test_the_same_seed_makes_the_same_cases() -> None:
    for tier in ("sweep", "random"):
        first, second, other = (list(campaign.TIERS[tier]("pagemap", seed, 100)) for seed in (1, 1, 2))
        assert first == second
        assert first != other


def test_programs_are_all_there_up_to_the_names_of_pages() -> None:
    assert list(campaign.programs(1)) == [["w0"], ["t0"], ["f"], ["i"], ["r"]]
    two = [" ".join(words) for words in campaign.programs(2)]
    assert "w0 w1" in two
    assert "w1 w0" not in two  # the same with other names
    assert len(two) == len(set(two)) == 34
    assert any("w2" in words for words in campaign.programs(3))


def test_two_processes_find_what_one_finds() -> None:
    one = campaign.run("pagemap", "sweep", 5, 600)
    heard: list[int] = []
    two = campaign.run("pagemap", "sweep", 5, 600, jobs=2, progress=heard.append)
    assert (one.cuts, one.cases, one.failures) == (two.cuts, two.cases, two.failures)
    assert heard[-1] == two.cuts


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["crash", "--cuts", "60", "--seed", "7", "--jobs", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["ftl"], row["tier"]) for row in rows] == [(f, t) for f in SCHEMES for t in ("sweep", "random")]
    assert all({"ftl", "tier", "cuts", "failures", "seconds", "seed"} <= set(row) for row in rows)
    assert cli.run(["crash", "--ftl", "pagemap", "--tier", "sweep", "--cuts", "60"]) == 0
    assert "pagemap" in capsys.readouterr().out
    assert cli.run(["crash", "--ftl", "nonesuch"]) == 2
    assert cli.run(["crash", "--tier", "nonesuch"]) == 2
    assert cli.run(["crash", "--kill", "--fs", "nonesuch"]) == 2
