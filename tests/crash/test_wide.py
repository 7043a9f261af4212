"""What the tiers meet beyond tiny chips of small pages: parts of pages, copies, budgets, lists that fill up, tables
that split; and that a campaign says what it never met."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from schemes import KINDS, ONE, THREE, limited

from flashfs import cli
from flashfs.cli.crash_common import unmet
from flashfs.crash import Case, Judge, campaign, kill, run_case, tiers
from flashfs.crash.bench import Bench, Outcome, Wrong
from flashfs.crash.campaign import Result
from flashfs.crash.events import ENGINE, FULL_LIST, never_without_damage
from flashfs.crash.every import SMALLEST
from flashfs.crash.forks import Forks
from flashfs.crash.host import HostBench
from flashfs.crash.programs import LARGE, STRIPED, TINY, presets_for, random_setting
from flashfs.device import Device
from flashfs.ftl import scheme
from nandimg import PRESETS

SOME = pytest.mark.parametrize("ftl", KINDS)
#: which differ most: a map in DRAM, one that is rebuilt from pages
TWO = pytest.mark.parametrize("ftl", limited(("pagemap", "geckoftl"), THREE))
SEED = 4
CUTS = 180  #: from which on every rare event of each scheme came up
PAGE = 4096


# --- the tier


@TWO
def test_large_chips(ftl: str) -> None:
    """Nothing is lost; and every rare event of the scheme came up, or its passing would say little."""
    result = campaign.run(ftl, "wide", SEED, CUTS)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= CUTS
    met = result.as_dict()["events"]
    expected = {*scheme(ftl).events, FULL_LIST, "reads from the data cache"}
    if Device.memory(PRESETS["small-64m"].geometry, ftl).ssd.mapping.demand:
        expected.discard("reads from the data cache")  # what a budget leaves is for its map
    rare = {name for name in expected if not met.get(name)}
    if rare:  # on chips so large; small ones have it within as many cuts again
        met = campaign.run(ftl, "random", SEED, 4 * CUTS).as_dict()["events"]
    assert {name for name in rare if not met.get(name)} == set()
    known = {*rare, "reads from the data cache"}
    assert all(name.startswith("pages moved") or name in known for name in result.never_met())


@pytest.mark.parametrize("ftl", ONE)
def test_a_fork_and_its_line_agree(ftl: str) -> None:
    runs: list[tuple[Case, str | None]] = []
    base = tiers.wide_base(ftl, SEED, 1)

    def heard(bench: Bench, outcome: Outcome) -> None:
        runs.append((bench.as_case(), outcome.failure and outcome.failure.why))

    Forks(base, 1, first=len(base.program.split()) - 9, apart=5, hear=heard).run()
    cut = [run for run in runs if run[0].cuts]
    assert len({case.line() for case, _ in cut}) == len(cut) > 3
    for case, why in random.Random(1).sample(cut, 3):
        outcome = run_case(Case.parse(case.line()))
        assert (outcome.failure and outcome.failure.why) == why, case.line()
        assert outcome.cuts_hit == 1


def test_chips_are_larger_than_what_they_are_to_wrap() -> None:
    """From which size on: docs/crash.md."""
    trims, table, hashed = (PRESETS[name].geometry for name in LARGE)
    assert trims.lpas // 2 > (trims.page_bytes - 8) // 16  # single trims that do not merge, more than a list holds
    assert table.lpas > 6 * 256  # groups, of which a leaf of table_bytes=1 holds one or a few
    assert hashed.lpas > 5 * 256  # two of its groups of 256 have one first candidate
    assert {PRESETS[name].geometry.page_bytes for name in TINY} == {512, PAGE}
    assert all(PRESETS[name].geometry.dies > 1 for name in STRIPED)


def test_programs_have_every_kind_of_word() -> None:
    rnd = random.Random(1)
    cases = [random_setting(rnd, "pagemap", preset) for preset in ("tiny-16k", "tiny-16") for _ in range(60)]
    words = " ".join(case.program for case in cases).split()
    for kind in ("w", "t"):
        for sign in (".", ":", "/"):
            assert any(word.startswith(kind) and sign in word for word in words), kind + sign
    assert any(word.startswith("c") and "." in word for word in words)
    assert "R" in words
    assert any(case.dram for case in cases)
    assert all(Case.parse(case.line()).line() == case.line() for case in cases)


# --- parts of pages


@TWO
def test_parts_of_pages_through_cuts(ftl: str) -> None:
    """Each operation of a program cut, whose requests all take pages in part; with and without a data cache."""
    program = "w0+6 f w1.3+2 w2.7+3 t3.1+9 c0.2-4.5+6 w5:1000+4000 R f w1.0+1 R"
    preset = presets_for(ftl, ("tiny-16k", "tiny-600k"))[0]
    for dram in (0, 400_000):
        tally = Forks(Case(ftl, program, preset, options=(("buffer", 1),), dram=dram), tail=2).run()
        assert not tally.failures, str(tally.failures[0])
        assert tally.cuts > 80


def test_a_page_changed_in_part_is_one_version() -> None:
    judge = Judge(2, PAGE)
    old = judge.will_write(0)
    judge.flushed()
    data = judge.will_write_bytes(512, 1024)
    new = old[:512] + data + old[1536:]
    assert judge.newest(0) == new
    assert data != old[512:1536]
    half = old[:512] + data[:512] + old[1024:]
    assert "torn or mixed" in (judge.crashed(0, half) or "")
    assert judge.crashed(0, new) is None
    assert judge.crashed(0, old) is not None


def test_sectors_in_another_place_of_their_page_show() -> None:
    judge = Judge(1, PAGE)
    page = judge.will_write(0)
    assert len({page[at : at + 512] for at in range(0, PAGE, 512)}) == 8


def test_a_copy_and_a_trim_in_part() -> None:
    judge = Judge(4, PAGE)
    page = judge.will_write(0)
    judge.will_copy(100, PAGE - 50, 200)
    assert judge.newest(0) == page[: PAGE - 50] + page[100:150]
    assert judge.newest(1) == page[150:300] + bytes(PAGE - 150)
    judge.will_trim_bytes(0, PAGE + 150)
    assert judge.newest(0) == judge.newest(1) == bytes(PAGE)
    assert judge.crashed(1, bytes(PAGE)) is None


# --- rare events


def test_a_campaign_says_what_it_never_met(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["crash", "--ftl", "leaftl", "--tier", "sweep", "--cuts", "60", "--seed", "1", "--jobs", "1"]
    assert cli.run([*line, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert "translation pages split" in row["never_met"]
    assert not set(row["events"]) & set(row["never_met"])
    assert set(row["events"]) | set(row["never_met"]) == {*ENGINE, FULL_LIST, *scheme("leaftl").events}
    assert cli.run(line) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("leaftl: never met: ")
    assert "translation pages split" in said


def test_nothing_is_said_of_what_a_killed_daemon_met() -> None:
    assert unmet([kill.KillResult("dftl", "kill", 1)]) == []
    assert unmet([kill.KillResult("dftl", "kill", 1), Result("dftl", "sweep", 1)])[0].startswith("dftl: never met: ")


def test_a_translation_page_made_again_is_a_failure_where_none_was_damaged() -> None:
    class Ssd:
        class mapping:
            rebuilds = 1

    assert never_without_damage(scheme("leaftl"), Ssd) == ["a translation page was made again, and no page was damaged"]


# --- the host


@SOME
def test_deaths_are_aimed_at_syncs(ftl: str) -> None:
    """After the last operation before a sync, and right after one, more often than by chance."""
    rnd, at_a_sync, all_of_them = random.Random(4), 0, 0
    for _ in range(12):
        base = random_setting(rnd, ftl, rnd.choice(presets_for(ftl, TINY)[:3]))
        bench = HostBench(base)
        bench.play()
        ends = {end for _, end in bench.windows[0]}
        bench.release()
        cases = [case for case in tiers.aimed(rnd, base) if case.cuts]
        at_a_sync += sum(case.cuts[0].at in ends and case.cuts[0].shape == "after" for case in cases)
        all_of_them += len(cases)
    assert at_a_sync > 0.25 * all_of_them > 5


@SOME
@pytest.mark.parametrize("plp", [False, True])
def test_a_sync_that_fails_ends_a_life(ftl: str, plp: bool) -> None:
    """Whichever it is: nothing more is acknowledged, and what was flushed before is there."""
    for number in range(1, 9):
        said: list[str] = []
        case = Case(ftl, "w0+8 f w3 t4 f w0+8 f w1+3 f w2", presets_for(ftl, SMALLEST)[0],
                    options=(("buffer", 2),), plp=plp,
                    unsynced=(number,))  # fmt: skip
        assert Case.parse(case.line()).unsynced == case.unsynced
        outcome = run_case(case, lambda what, at, said=said: said.append(what))
        assert outcome.failure is None, str(outcome.failure)
        assert sum(what.startswith("a sync failed") for what in said) == 1


def test_a_flush_behind_a_failed_sync_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = HostBench(Case("pagemap", "", unsynced=(1,)))
    try:
        engine: Any = type("Forgetful", (), {"sync_now": lambda self: None})()
        monkeypatch.setattr(bench, "ssd", engine)
        with pytest.raises(Wrong, match="a flush was acknowledged"):
            bench.must_stand_still()
    finally:
        bench.release()


@pytest.mark.parametrize("marks", ["", "+marks"])
def test_all_but_some_operations(marks: str) -> None:
    """``but.1-2``: what the second operation since the sync wrote is lost, and nothing else."""
    case = Case("pagemap", "w0+8 f w1 w2 w3", "tiny-8", options=(("buffer", 0),), keeps=(f"but.1-2{marks}",))
    bench = HostBench(case)
    try:
        bench.format()
        for step in bench.steps:
            bench.step(step.operation, step.lpa, step.n)
        now = bench._sectors()
        left = bench.remains(now)
        data_at = bench.image.header.layout.data_at // 512
        lost = [at for at in range(data_at, len(now)) if (left[at] != now[at]).any()]
        written = [at for at in range(data_at, len(now)) if (bench.durable[at] != now[at]).any()]
        assert len(written) == 3
        assert len(lost) == 1
        assert bytes(now[lost[0]]) == bench.judge.newest(2)
    finally:
        bench.release()
