"""A case fits one line, and that line is the case again."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemes import KINDS

from flashfs import cli
from flashfs.crash import Case, run_case
from flashfs.crash.cases import Failure, Later, parse_program
from flashfs.crash.grammar import Step
from flashfs.crash.programs import presets_for
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from nandimg import PRESETS, Cut
from nandimg._faults import SHAPES

WORDS = st.one_of(
    st.builds(lambda kind, lpa: f"{kind}{lpa}", st.sampled_from("wt"), st.integers(0, 99)),
    st.builds(lambda kind, lpa, n: f"{kind}{lpa}+{n}", st.sampled_from("wt"), st.integers(0, 99), st.integers(1, 9)),
    st.sampled_from("firR"),
    st.sampled_from(("w3.2+9", "t0:1+77", "c0-50+9", "c1.3-90.0+5", "t1+30/2")),
)
CASES = st.builds(
    Case,
    ftl=st.sampled_from(list(SCHEMES)),
    program=st.lists(WORDS).map(" ".join),
    preset=st.sampled_from([name for name in PRESETS if not name.startswith("tiny")]),
    cuts=st.lists(
        st.builds(Cut, st.integers(1, 10**6), st.sampled_from(SHAPES), st.none() | st.integers(0, 10**6))
    ).map(tuple),
    options=st.lists(st.tuples(st.sampled_from(("buffer", "wear_spread")), st.integers(0, 99).map(str))).map(tuple),
    fail=st.lists(st.integers(1, 999)).map(tuple),
    plp=st.booleans(),
    dram=st.integers(0, 10**9),
    unsynced=st.just(()) | st.just((3, 9)),
    later=st.lists(
        st.builds(Later, st.integers(0, 9), st.sampled_from(("buffer", "dram")), st.integers(0, 99).map(str))
        | st.builds(Later, st.integers(0, 9), st.just("plp"), st.sampled_from("01"))
        | st.builds(Later, st.integers(0, 9), st.just("sync"), st.sampled_from(("flush", "none")))
    ).map(tuple),
)


@given(CASES)
def test_the_line_is_the_case(case: Case) -> None:
    line = case.line()
    assert "\n" not in line
    assert Case.parse(line) == case


def test_a_failure_prints_a_command_that_a_shell_reads_back() -> None:
    case = Case("pagemap", "w0 w1+2 f", cuts=(Cut(3, "prefix"),))
    *command, line = shlex.split(str(Failure(case, "lost")).splitlines()[1])
    assert command == ["flashfs", "crash", "replay"]
    assert Case.parse(line) == case


def test_programs() -> None:
    assert list(parse_program("w3 t4+2 f i r R")) == [
        Step("w", 3), Step("t", 4, 2), Step("f"), Step("i"), Step("r"), Step("R"),
    ]  # fmt: skip
    assert list(parse_program("w3.1+9 t0:7+2 c4.1-9.3+8 w1+5/2")) == [
        Step("w", 3, 9, 512, 1), Step("t", 0, 2, 1, 7), Step("c", 4, 8, 512, 1, 9, 3), Step("w", 1, 5, apart=2),
    ]  # fmt: skip
    assert list(parse_program("")) == []


#: words that say nothing
BAD = (
    "w", "x3", "w3+", "w+2", "w-1", "f3", "t1.5x",
    "w0+0", "w1+2/0", "w1.2+3/4", "c1-5", "c1.2-5+1", "W1", "ff",
)


@pytest.mark.parametrize("word", BAD)
def test_a_bad_word_is_named(word: str) -> None:
    with pytest.raises(UsageError, match="program word") as caught:
        list(parse_program(f"w1 {word}"))
    assert repr(word) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ftl=nonesuch program=f", "nonesuch"),
        ("preset=nonesuch program=f", "nonesuch"),
        ("cut=x program=f", "cut=x"),
        ("cut=3:nonesuch program=f", "cut=3:nonesuch"),
        ("fail=1,x program=f", "fail=1,x"),
        ("what=ever program=f", "what=ever"),
        ("program='w1 q'", "'q'"),
        ("preset=tiny-8 program='w6+2 t7+2'", "tiny-8 has 8 pages"),
        ("preset=tiny-16k program='w55.7+2'", "LPA 56: tiny-16k has 56 pages"),
        ("preset=tiny-16k program='c0-54+3'", "LPA 56"),
        ("preset=tiny-16k program='c3.0-4.0+9'", "a copy of LPA 3 onto itself"),
        ("dram=-1 program=f", "dram=-1"),
        ("unsynced=x program=f", "unsynced=x"),
        ("unsynced=1 fault=eio=3 program=f", "different tiers"),
    ],
)
def test_a_bad_line_names_the_word(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        Case.parse(line)
    assert said in str(caught.value)
    assert cli.run(["crash", "replay", line]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("ftl", KINDS)
def test_a_case_is_deterministic(ftl: str) -> None:
    preset = presets_for(ftl, ("tiny-16", "tiny-32", "tiny-48"))[0]
    case = Case(ftl, "w0+4 w1 f w2 t1 r w3 w0+8 f i w5", preset, (Cut(9, "prefix"), Cut(2, "data-only")))
    told: list[list[tuple[str, int]]] = [[], []]
    outcomes = [run_case(case, lambda what, n, into=into: into.append((what, n))) for into in told]
    assert outcomes[0] == outcomes[1]
    assert told[0] == told[1]
    assert outcomes[0].cuts_hit == 2
    assert [what for what, _ in told[0]].count("power cut") == 2


def test_replay_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    line = Case("pagemap", "w0 f w1", cuts=(Cut(5),)).line()
    assert cli.run(["crash", "replay", line]) == 0
    assert capsys.readouterr().out.startswith("survived: 1 cuts")
    assert cli.run(["crash", "replay", "-v", line]) == 0
    out = capsys.readouterr().out
    assert "power cut" in out
    assert "mounted recovered" in out
