"""Some thousand distinct cuts for each FTL, as many as it asks for, in parts that run side by side; and what makes them
quick. `make campaign` makes a million."""

from __future__ import annotations

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import plants
import pytest
from schemes import EACH, KINDS, STANDS_FOR, limited, rotated

from flashfs import cli
from flashfs.crash import Case, campaign, every, run_case, tiers
from flashfs.crash.forks import Forks
from flashfs.crash.programs import without_battery
from flashfs.errors import BindError, FlashfsError, UsageError
from flashfs.ftl import SCHEMES

CUTS = 320  #: a part
SCATTERED = 130  #: of tier random
#: `make test` has time for one part of a sweep: it finds what random cuts find too, but where a battery keeps the map
PARTS = [
    pytest.param(ftl, part, marks=() if part == 0 and ftl in STANDS_FOR else pytest.mark.slow)
    for ftl, one in SCHEMES.items()
    for part in range(-(-one.ci_cuts // CUTS))
]
ALL = pytest.mark.parametrize("ftl", EACH)
SOME = pytest.mark.parametrize("ftl", KINDS)
#: the tool is tested here, not the scheme: one whose map is in DRAM, one that has NVRAM and shares pages
SLOW = pytest.mark.slow
TWO = pytest.mark.parametrize("ftl", limited(("pagemap", "remapssd")))


def small(ftl: str, preset: str) -> str:
    """That chip, or the smallest that the FTL fits."""
    return tiers.presets_for(ftl, (preset, *every.SMALLEST))[0]


def must_survive(result: campaign.Result, cuts: int) -> None:
    """All cuts happened, and nothing was lost; else the lines that replay the first losses."""
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


@pytest.mark.parametrize(("ftl", "part"), PARTS)
def test_sweep(ftl: str, part: int) -> None:
    must_survive(campaign.run(ftl, "sweep", part, CUTS), CUTS)


@ALL
@pytest.mark.parametrize("cuts", [SCATTERED, pytest.param(6 * SCATTERED, marks=pytest.mark.slow)])
def test_random_with_cut_recoveries_and_failures(ftl: str, cuts: int) -> None:
    must_survive(campaign.run(ftl, "random", 0, cuts), cuts)


@pytest.mark.parametrize("ftl", ["pagemap"])  # the programs of two words begin with these
def test_every_program_of_one_word(ftl: str) -> None:
    result = campaign.run(ftl, "every", 0, 1)
    must_survive(result, 1_500)
    assert result.next == campaign.units_count("every", ftl, 1)


@SLOW
@ALL
def test_every_program_of_two_words(ftl: str) -> None:
    must_survive(campaign.run(ftl, "every", 0, 2), 6_000)


@pytest.mark.parametrize("ftl", limited(("pagemap", "leaftl", "remapssd")))
def test_scenes_are_where_they_say(ftl: str) -> None:
    """One word more brings each event about; of the chip that is almost worn out a block or two more are too many."""
    found = every.found_scenes(ftl)
    for scene in found:
        words = scene.past.program.split()
        if scene.before != every.WORN:
            one_more = [every.firsts(scene.case(ftl, (word,))) for word in (*every.words_for(ftl), *scene.own)]
            for event in scene.before.split("; "):
                assert any(seen.get(event) == len(words) for seen in one_more), event
        assert run_case(scene.case(ftl, ())).failure is None
    assert {"pages moved by cleaning", "pages of trims", every.WORN} <= {
        event for scene in found for event in scene.before.split("; ")
    }


@pytest.mark.parametrize("ftl", ["pagemap"])  # the programs of two words begin with these
def test_every_program_of_one_word_with_every_recovery_cut(ftl: str) -> None:
    must_survive(campaign.run(ftl, "every", 0, 1, depth=2), 2_000)


@pytest.mark.slow
@ALL
def test_programs_of_two_words_with_every_recovery_cut(ftl: str) -> None:
    """Each twelfth; `make campaign` has all of them, which is ten minutes for some FTLs."""
    result = campaign.Result(ftl, "every", 0)
    for number, unit in enumerate(tiers.units("every", ftl, 0, 2, 2)):
        if number % 12 == list(SCHEMES).index(ftl) % 12:
            result.add(number, unit.run())
    must_survive(result, 1_000)


# --- a fork is the run that its line makes


def forked(case: Case, **how: Any) -> list[tuple[Case, str | None]]:
    """Each run that forking made of a case, and why it failed."""
    seen: list[tuple[Case, str | None]] = []
    Forks(case, hear=lambda b, out: seen.append((b.as_case(), out.failure and out.failure.why)), **how).run()
    return seen


#: how deep, and whether the engine is spoilt: all for one scheme, one for each other, in turn: forks are no scheme's
HOW = ((1, False), (2, True), (1, True), (2, False))
PLAIN, *OTHERS = SCHEMES
FORKS = [
    *(pytest.param(PLAIN, *how, marks=() if i < 2 else SLOW) for i, how in enumerate(HOW)),
    *(pytest.param(ftl, *HOW[i % len(HOW)], marks=SLOW) for i, ftl in enumerate(OTHERS)),
]


@pytest.mark.parametrize(("ftl", "depth", "spoilt"), FORKS)
def test_a_fork_and_its_line_agree(monkeypatch: pytest.MonkeyPatch, ftl: str, spoilt: bool, depth: int) -> None:
    """Failure for failure, word for word: on the engine as it is, and on one whose recovery forgets the trims."""
    if spoilt:
        plants.lost_newest_trim(monkeypatch)
    rnd = random.Random(f"{ftl} {depth}")
    failed = 0
    for unit in range(12):
        if unit >= 4 // depth and (failed or not spoilt):  # what is spoilt may show late
            break
        base = tiers.sweep_base(ftl, 5, unit)
        base = replace(base, options=tuple({**dict(base.options), **without_battery(ftl)}.items()))
        runs = forked(
            base, tail=tiers.TAIL, depth=depth, rare=True, first=len(base.program.split()) - 6 if depth > 1 else 0
        )
        assert len({case.line() for case, _ in runs}) == len(runs), "two forks have one line"
        broken = [run for run in runs if run[1]]
        for case, why in [*rnd.sample(runs, min(20, len(runs))), *rnd.sample(broken, min(10, len(broken)))]:
            parsed = Case.parse(case.line())
            outcome = run_case(parsed)
            assert (outcome.failure.why if outcome.failure else None) == why, case.line()
            assert outcome.cuts_hit == len(case.cuts), case.line()
            failed += why is not None
    assert (failed > 0) is spoilt


@TWO
def test_a_fork_with_failing_operations_agrees(ftl: str) -> None:
    base = Case(ftl, "w0+9 w3+9 f t1 w4+20 w2+20 f w0+30 w7+9 f", small(ftl, "tiny-16"), fail=(9, 40))
    runs = forked(base, rare=True)
    assert len(runs) > 300
    for case, why in random.Random(1).sample(runs, 80):
        outcome = run_case(Case.parse(case.line()))
        assert (outcome.failure.why if outcome.failure else None) == why is None


@SOME
def test_all_operations_are_cut_in_all_shapes(ftl: str) -> None:
    base = Case(ftl, "w0 w1 f t0 f r w2 f", small(ftl, "tiny-8"))
    operations = run_case(base).operations[-1]
    cuts = [case.cuts[0] for case, _ in forked(base) if case.cuts]
    assert len(set(cuts)) == len(cuts)
    at = {cut.at for cut in cuts}
    assert at >= set(range(1, operations + 1))  # and those of the look at the end, where reading may write
    assert len(cuts) == 5 * len(at)


@SOME
def test_stores_to_the_nvram_are_cut_behind_any_word(ftl: str) -> None:
    base = Case(ftl, "w0+3 w3.2+1 f w1+2 t1 w4+5 f w0", small(ftl, "tiny-16"), options=(("buffer", 4),), plp=True)
    runs = [(case, why) for case, why in forked(base, rare=True) if case.cuts and case.cuts[0].words is not None]
    assert len(runs) > 10
    assert len({case.cuts[0].words for case, _ in runs}) > 5
    for case, why in runs:
        outcome = run_case(Case.parse(case.line()))
        assert (outcome.failure.why if outcome.failure else None) == why is None
        assert outcome.cuts_hit == 1


@TWO
def test_the_cuts_are_distinct_and_the_parts_do_not_meet(ftl: str) -> None:
    bases = [tiers.sweep_base(ftl, part, unit) for part in range(6) for unit in range(20)]
    assert len(set(bases)) == len(bases)


# --- the order of units


def test_the_same_seed_makes_the_same_cases() -> None:
    for make in (tiers.scattered, tiers.dying):
        first, second, other = (list(make("pagemap", seed, 3)) for seed in (1, 1, 2))
        assert first == second
        assert first != other
    assert tiers.sweep_base("pagemap", 1, 5) == tiers.sweep_base("pagemap", 1, 5) != tiers.sweep_base("pagemap", 2, 5)


def test_programs_are_all_there_up_to_the_names_of_pages() -> None:
    assert list(every.programs(1)) == [(), ("w0",), ("t0",), ("f",), ("i",), ("r",)]
    two = [" ".join(words) for words in every.programs(2)]
    assert "w0 w1" in two
    assert "w1 w0" not in two  # the same with other names
    assert len(two) == len(set(two)) == 35
    assert list(every.programs(3))[: len(two)] == list(every.programs(2))
    assert [sum(1 for _ in every.programs(n)) for n in range(5)] == [every.programs_count(n) for n in range(5)]
    assert [every.programs_count(n) for n in range(5)] == [1, 6, 35, 228, 1661]


def test_the_programs_of_a_scheme_that_remaps() -> None:
    """The words of the others, and each page remapped from each other one; a move of one at least."""
    remapping = next(name for name in SCHEMES if SCHEMES[name].remaps)
    words = every.words_for(remapping)
    assert set(every.words_for("pagemap")) == set(every.EVERY_WORDS) < set(words)
    assert list(every.programs(1, words)) == [*every.programs(1), ("p0-1+1",), ("m0-1+1",)]
    two = {" ".join(program) for program in every.programs(2, words)}
    assert {"w0 p0-1+1", "p0-1+1 p1-0+1", "p0-1+1 p0-2+1", "m0-1+1 w2", "w0 m0-1+1", "w0 p1-0+1"} < two
    assert not two & {"p1-0+1", "p0-2+1", "w0 p2-0+1", "m1-0+1 w0"}
    assert [sum(1 for _ in every.programs(n, words)) for n in range(4)] == [
        every.programs_count(n, words) for n in range(4)
    ]
    scenes = every.scenes(remapping, 1)
    counts = [sum(1 for _ in every.programs(2, words, scene.own)) for scene in scenes]
    assert {*counts} > {len(two)}  # those with a word of their own have more
    assert tiers.units_count("every", remapping, 2) == sum(counts)


def test_units_go_on_from_any_number() -> None:
    for tier in tiers.TIERS:
        row = tiers.units(tier, "pagemap", 1, 2)
        first = [next(row) for _ in range(9)]
        again = tiers.units(tier, "pagemap", 1, 2, start=5)
        assert [next(again) for _ in range(4)] == first[5:]


@pytest.mark.parametrize("tier", ["random", *(pytest.param(tier, marks=SLOW) for tier in ("every", "sweep", "host"))])
def test_two_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    """In the same order too: on an engine that fails now and then, the same failures."""
    plants.lost_newest_trim(monkeypatch)
    bound = 1 if tier == "every" else 100
    heard: list[int] = []
    one = campaign.run("pagemap", tier, 5, bound)
    two = campaign.run("pagemap", tier, 5, bound, jobs=2, progress=lambda result: heard.append(result.cuts))
    assert (one.cuts, one.cases, one.failed, one.failures, one.next) == (
        two.cuts, two.cases, two.failed, two.failures, two.next
    )  # fmt: skip
    assert heard == sorted(heard)
    assert heard[-1] == two.cuts


def test_a_campaign_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "state"
    whole = campaign.run("slimftl", "sweep", 9, 1_000)

    def stop(result: campaign.Result) -> None:
        if result.next == 1:
            raise KeyboardInterrupt

    state = campaign.State(file)
    with pytest.raises(KeyboardInterrupt):
        campaign.run("slimftl", "sweep", 9, 1_000, progress=stop, save=lambda result: state.save(result, 1))
    again = campaign.State(file)
    assert again.seed == 9
    begun = again.find("slimftl", "sweep", 9, 1)
    assert begun.next == 1
    assert 0 < begun.cuts < whole.cuts
    rest = campaign.run("slimftl", "sweep", 9, 1_000, start=begun)
    assert (rest.cuts, rest.cases, rest.next) == (whole.cuts, whole.cases, whole.next)
    assert campaign.State(tmp_path / "other").find("slimftl", "sweep", 9, 1).next == 0


def test_a_state_keeps_failures(tmp_path: Path) -> None:
    result = campaign.Result("pagemap", "every", 1, 10, 11, 1.5, [campaign.Noted("lost", "flashfs ...", 7)], 3, 9)
    campaign.State(tmp_path / "state").save(result, 2)
    assert campaign.State(tmp_path / "state").find("pagemap", "every", 1, 2) == result
    assert campaign.State(tmp_path / "state").find("pagemap", "every", 1, 1).cuts == 0


def test_no_state_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "state").write_text('{"seed": 1}')
    with pytest.raises(UsageError, match=r"state.*no state of a campaign"):
        campaign.State(tmp_path / "state")


def test_a_worker_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that crashes the process takes a unit with it; the campaign says which, and does not wait for it."""
    import os

    monkeypatch.setattr(tiers.Unit, "run", lambda unit: os._exit(3) if unit.number == 2 else tiers.Tally(1))
    with pytest.raises(FlashfsError, match="worker process died"):
        campaign.run("pagemap", "sweep", 1, 100, jobs=2)


# --- the command


@pytest.mark.parametrize("names", [["pagemap", "hpftl"], pytest.param([], marks=pytest.mark.slow)])
def test_the_command(capsys: pytest.CaptureFixture[str], names: list[str]) -> None:
    some = ["--ftl", ",".join(names)] if names else []
    assert cli.run(["crash", *some, "--cuts", "60", "--seed", "7", "--jobs", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["ftl"], row["tier"]) for row in rows] == [
        (ftl, tier) for ftl in names or SCHEMES for tier in ("sweep", "wide", "random", "host", "faults")
    ]
    for row in rows:
        assert row["cuts"] >= (6 if row["tier"] == "wide" else 60)
        assert row["failures"] == []
        assert row["seed"] == 7
        assert row["seconds"] > 0


def test_the_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["crash", "--ftl", "pagemap", "--tier", "sweep", "--jobs", "1", "--json", "--state", str(tmp_path / "state")]
    assert cli.run([*line, "--cuts", "200", "--seed", "4"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert cli.run([*line, "--cuts", "200"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == first
    assert cli.run([*line, "--cuts", "600"]) == 0
    more = json.loads(capsys.readouterr().out)[0]
    assert more["seed"] == 4
    assert more["next"] > first["next"]
    assert more["cuts"] == campaign.run("pagemap", "sweep", 4, 600).cuts


def test_a_seed_is_drawn_and_said_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new one each time; a file has those that each FTL survived, and none that it did not."""
    file = tmp_path / "survived"
    line = ["crash", "--ftl", "pagemap", "--tier", "random", "--cuts", "30", "--jobs", "1", "--survived", str(file)]
    seeds = set()
    for _ in range(2):
        assert cli.run(line) == 0
        seeds.add(int(capsys.readouterr().err.removeprefix("seed ")))
    assert len(seeds) == 2
    rows = [json.loads(row) for row in file.read_text().splitlines()]
    assert {row["seed"] for row in rows} == seeds
    assert all(row["cuts"] >= 30 and (row["ftl"], row["tier"]) == ("pagemap", "random") for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        plants.lost_newest_trim(patch)
        assert cli.run([*line, "--cuts", "500", "--seed", "11"]) == 1
    assert len(file.read_text().splitlines()) == 2
    assert capsys.readouterr().err == ""


def test_the_command_ends_in_time_and_keeps_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "found"
    line = ["crash", "--ftl", "pagemap,slimftl", "--tier", "random,sweep", "--seconds", "1", "--jobs", "1"]
    assert cli.run([*line, "--found", str(file), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert 1 <= len(rows) <= 4 and all(row["cuts"] for row in rows)
    assert file.read_text() == ""
    plants.lost_newest_trim(monkeypatch)
    for seconds in ("1", "10", "100"):  # a busy machine may have done too little
        line[line.index("--seconds") + 1] = seconds
        file.unlink()
        if cli.run([*line, "--seed", "1", "--found", str(file), "--json"]) == 1:
            break
        assert capsys.readouterr().out
    rows = json.loads(capsys.readouterr().out)
    kept = [json.loads(text) for text in file.read_text().splitlines()]
    assert [one["replay"] for one in kept] == [loss["replay"] for row in rows for loss in row["failures"]]
    assert {one["seed"] for one in kept} == {1}
    for more in (["--cuts", "5"], ["--state", str(tmp_path / "state")]):
        assert cli.run(["crash", "--seconds", "1", *more]) == 2
        assert "--seconds: it goes without --cuts and --state" in capsys.readouterr().err


def test_the_command_begins_with_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    all_of_them = tiers.units_count("every", "pagemap", 1)
    assert all_of_them is not None
    begin = str(all_of_them - 2)
    assert cli.run(["crash", "--ftl", "pagemap", "--every", "--length", "1", "--from", begin, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["next"] == all_of_them


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tier", "nonesuch"], "--tier nonesuch: use sweep, wide, every, random, host, faults"),
        (["--tier", "kill"], "--tier kill: use `flashfs crash kill`"),
        (["--ftl", "nonesuch"], "nonesuch"),
        (["--ftl", "pagemap,all"], "--ftl pagemap,all: use names with commas between them, each once, or all"),
        (["--ftl", ","], "--ftl ,: use names"),
        (["--from", "3", "--state", "x"], "--state and --from"),
        (["--survived", "/nonesuch/file"], "--survived /nonesuch/file: No such file"),
    ],
)
def test_bad_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["crash", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_failure_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plants.lost_newest_trim(monkeypatch)
    line = ["crash", "--ftl", "pagemap", "--tier", "sweep", "--cuts", "300", "--seed", "11", "--jobs", "1"]
    assert cli.run([*line, "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[0]
    assert row["failed"] >= len(row["failures"]) > 0
    assert all(failure["replay"].startswith("flashfs crash replay '") for failure in row["failures"])
    assert cli.run(line) == 1
    assert row["failures"][0]["replay"] in capsys.readouterr().out


# --- a scheme that is not ours


def test_a_foreign_scheme_goes_through_every_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name it is found: in worker processes, and in the lines of its failures."""
    name = "some.package:Odd Name"
    monkeypatch.setitem(SCHEMES, name, replace(SCHEMES["pagemap"], name=name))
    for tier in tiers.TIERS:
        bound = 0 if tier == "every" else 6 if tier == "wide" else 30
        result = campaign.run(name, tier, 1, bound, jobs=2 if tier == "host" else 1)
        must_survive(result, bound)
    plants.lost_newest_trim(monkeypatch)
    failure = campaign.run(name, "random", 1, 100, jobs=2).failures[0]
    *command, line = shlex.split(failure.replay)
    assert command == ["flashfs", "crash", "replay"]
    again = run_case(Case.parse(line)).failure
    assert again is not None
    assert again.why == failure.why


def test_a_chip_that_is_too_small_for_a_scheme_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pagemap = SCHEMES["pagemap"]

    def build(ssd: Any, options: dict[str, Any]) -> Any:
        if ssd.nand.blocks < 16:
            raise BindError("greedy: it wants sixteen blocks")
        return pagemap.build(ssd, options)

    monkeypatch.setitem(SCHEMES, "wide", replace(pagemap, name="wide", build=build))
    assert tiers.presets_for("wide") == ("tiny-16", "tiny-24d", "tiny-20p", "tiny-16k")
    assert {scene.past.preset for scene in every.scenes("wide", 2)} <= {"tiny-16", "tiny-32"}
    assert "tiny-8" not in {scene.past.preset for scene in every.scenes("wide", 1)}
    must_survive(campaign.run("wide", "sweep", 1, 300), 300)
    with pytest.raises(FlashfsError, match="wide runs on none of tiny-8: greedy"):
        tiers.presets_for("wide", ("tiny-8",))


@pytest.mark.parametrize("ftl", rotated(3, 3))
def test_the_page_says_how_many_programs_every_has(ftl: str) -> None:
    """docs/crash.md, "Every program"."""
    row = (len(every.scenes(ftl, 1)), *(tiers.units_count("every", ftl, words) for words in (1, 2, 3)))
    page = (Path(__file__).parents[2] / "docs" / "crash.md").read_text()
    assert f"| `{ftl}` | " + " | ".join(f"{n:,}" for n in row) + " |" in page
