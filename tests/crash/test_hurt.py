"""Tier faults: more goes wrong than the power, and a judge who knows what may be lost by it and what may not."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from schemes import EACH, ONE, kinds_of, limited

from flashfs.crash import Case, campaign, run_case
from flashfs.crash.bench import Wrong
from flashfs.crash.cases import SPOILS
from flashfs.crash.fault_bench import HurtBench, HurtJudge
from flashfs.crash.programs import fitting
from flashfs.crash.tiers import DECAYING, FAULT_KINDS, hurt
from flashfs.engine.recovery import recovery
from nandimg._fault_filters import Misdirection

CUTS = 80  #: a scheme; some thousand operations of the flash each
SEED = 20261124
ALL = pytest.mark.parametrize("ftl", EACH)
#: small programs, each with the fault that it is about
WORN = f"ftl={{}} preset=tiny-16 fault=wear=3 program='{'w0+40 f ' * 12}'"
#: a page that takes the place of another one of its block, and the power gone before a read there
WITHIN = (
    "ftl=pagemap preset=tiny-16 opt.buffer=4 fault=misdirect=14 cut=16:prefix "
    "program='w30 w20 w31 w28 w43 w2 w20+4 f w28 i w15+2 w1 w2 f f f'"
)
#: a pad of the metadata log, programmed over the first page of a block of the host's: that is no block of the log now
MASKED = (
    "ftl=leaftl preset=tiny-20p opt.buffer=4 opt.wear_spread=2 opt.pad=open fault=misdirect=17 fault=wear=6 "
    "cut=46:prefix program='w28 f t22+1 w25+3 w38 t38+2 w46 f f w38 t22+4 f w19 w52 t38+2 w2 w42+1 w55 w10 w38 w22 w10 "
    "w38 w45'"
)
#: a page of trims, programmed over the first page of a block of the host's: the trims count, the block stays the host's
MASKED_BY_TRIMS = (
    "ftl=leaftl preset=tiny-16 opt.buffer=1 opt.gamma=7 fault=misdirect=33 cut=15:prefix-random program='f w37 w13+3 f "
    "w5+1 w12 w19 w19 w13 f w54 w19 w21 f t12+4 f w32+2 w46 t13+3 f w33 w16+1 w43 w19 w12 w13+4 w35+2 w30+1 w20 w13 "
    "t26+2 w19+3 t31+3 f w12 i w18 t19+1 w11 w54'"
)
#: a page of another stream, programmed over the first page of a block, of a scheme with translation pages: a recovery
#: reads from it whose the block is
MASKED_BY_THE_MAP = (
    "ftl=lazyftl preset=tiny-20p opt.buffer=0 opt.fence=0 fault=misdirect=35 program='w3 t46+3 i i w22 w22 w23 f w1 i "
    "w29 w53 r t52+4 t46+4 w22 t22+3 t14+2 f w49+4 r i w53 t49+2'"
)
#: the same of a device that was full
MASKED_AGAIN = (
    "ftl=lazyftl preset=tiny-20p opt.buffer=2 opt.checkpoint_every=4 opt.dirty=2 opt.fence=0 fault=enospc=43 "
    "fault=misdirect=30 cut=18:prefix-old cut=28:prefix program='w0+56 w0+56 w0+54 f w32+2 w53+2 w14+1 xb w38+2 w2+5 "
    "w44+5 w43+4 t38 w46+4 w11+6 w46+2 w42+1 w25+2 w47+2 w2+1 w4+3 w20+2 w25+4 w14+1 w33+5 f w43+4 w35+5 w42+1 w1+1 "
    "w55+1 w18+3 w19+2 w46+2 w21+3 w21+1 t46 t9 w47+5 w19+3 w4+3 w41+4 w41+1 w37+2 w6+5 w22+2 w55+1 w46+2 w42+6 i "
    "w19+6 w47+3 w34+6 w32+3 w30+2 w6+6 w31+1 w2+3 w25+6 w22+3 w47+6 w54+2 w45+2 w51+2'"
)
#: Logarithmic Gecko is rebuilt from the mapping, and no live page is in a block that is open
UNCLAIMED = (
    "ftl=geckoftl preset=tiny-24d opt.buffer=2 opt.checkpoint_every=9 opt.protected=0 opt.held=5 fault=misdirect=22 "
    "cut=26:before cut=3:before program='r w60 w58 w5 w32 i w59 xh w59 w31 r w58 f w32 w43 w54 w42 w68 w58 t39+2 r "
    "w29 w32 w42 w72 w32 w55 i i w58+2 w38 w11 w32 w36 f f i w42 w58 w78 r f w28 w20 w42 w70+3 w76 w58 w6 w58 w54 w32"
    " w32 i f w37 w30 w4 xt w42 f r w65 f w42 w32 i w67 w58 w77 w61 w68 w42 w42 w79 w64 f w67 w11 w49 r w32 w25+1 "
    "t8+2 w32 w41 t39+1 w16 f i w74 w55'"
)
#: a translation page, programmed over a run of Gecko: neither can say what the other was
BOTH_AT_ONCE = (
    "ftl=geckoftl preset=tiny-24d opt.buffer=2 opt.cmt_bytes=0 opt.fence=1 fault=enospc=41 fault=misdirect=41 "
    "cut=55:prefix-random cut=10:prefix-old program='w68 w50 w39 f w15 t68+3 w29 t19+1 i w53 w3 i f w13 w50 w50 w18+3"
    " w0 w73+3 f w68 w0 w32+4 i t21+2 w69 t18+3 t62+1 w27 r w8 w0 i w25+2 r f w60 f w30 w68'"
)
#: the host's disk is full between two merges of runs, and then there is a checkpoint
BETWEEN_MERGES = (
    "ftl=geckoftl preset=tiny-24d opt.buffer=0 opt.checkpoint_every=9 opt.multiway=0 opt.held=2 fault=enospc=26 "
    "cut=61:prefix-old cut=13:after program='w32+1 f f w31 w59 w23 w8 w38 i w3 t38+2 w10 w38 w25 f w58 w24 w38 t38+2 "
    "w25 f i i w19 w38 r r f r w38 w38 w0 f w12 f w19 t25+3 w25 w72 w50+1 w45 f i i r xt w15 w24+3 w71 w23 r w19+3 "
    "w38 i w25 f t38+4 t47+2 f w45 w25 w48 f w38+2 f w45 w38 i t58+2 f t4+2 w25 w38 i w56 t25+3 w77 w51 w34 w38 w38 "
    "w52 r w25+4 w32+3 f w1 w38 w53 w60 w7+4'"
)
#: an erase that was cut, and reads as done; and the next one, which is claimed done and was not
DECEIVED = (
    "ftl=ibftl preset=tiny-24d opt.buffer=4 opt.checkpoint_every=4 opt.dirty=10 plp dram=38292 opt.fence=0 "
    "fault=silent=5 "
    "cut=13:unstable program='w67 t73+4 i f f w53 w53+3 w22 f t18+1 i t14+2 f w21+1 t38+2 w34 w73+1 i t67+3 f w8+2 "
    "t7+2 w18 w24'"
)
#: a program that was claimed and not done, then cleaning of a full device: a copy is reported once, not twice
REPORTED_ONCE = (
    "ftl=geckoftl preset=tiny-24d opt.buffer=0 opt.moved=0 opt.multiway=1 opt.entries=8 opt.held=1 fault=silent=30 "
    "cut=4:unstable cut=44:oob-only program='w0+80 w0+80 w0+23 w14+4 w44+4 w3+3 f w69+2 w56+5 w59+3 w21+1 w63+3 w60+5"
    " w48+1 w49+1 w15+1 w65+5 w59+3 w78+1 w28+1 w39+3 w7+2 w20+2 w63+1 w51+6 w52+3 w63+2 w15+3 w12+2 w43+3 w50+3 "
    "w59+2 w27+5 w38+1 w26+3 w4+6 w51+4 w49+3 w12+4 w76+3 w42+1 i w12+2 w52+3 w44+3 w5+3 w44+6 w27+6 t61 w13+1 i "
    "w24+1 i w1+5 w21+3 i w37+5 w70+6 w2+3 w12+1 w75+2 w62+2 w32+3 w72+4 w75+3 w1+6 w31+3 w77+3 w54+3 t45 w31+3 w15+4"
    " w20+2 w5+2 w43+2 w38+6 w48+6 w24+1 xc w32+5 w17+6 w36+2 w29+1 w22+2 w58+4 w48+4 w25+2 w66+3 w0+4 w76+2 w68+2 "
    "w36+1 w64+1 w14+2 w22+5 w61+6 w43+6 w28+6 w27+6 w51+4 w19+1 w77+1 w16+6 i w53+4 w1+2 w16+1 w52+4 w15+6 w21+5 "
    "w32+5 w48+1 w9+1 w74+3 w76+3 w61+6 w45+1 w27+2 w75+2 w25+4 w58+3 w3+2 w30+4 w63+5 w15+6 t37 w10+5 w22+3 w62+2 "
    "w16+1 w4+3 w28+5 w32+3 w15+5 w55+4 w28+1 w47+2 w60+4 w38+2 w5+3 w10+2 w9+2 w74+1 w40+6 w48+1 w62+1 w61+5 w67+6 "
    "t22 w46+5 w60+2 w31+2 w60+4 w69+2 w52+1 w4+2 i w58+6 w26+3 w60+1 w5+4 w5+5 w10+3 w29+3 w70+6 w2+2 f w75+3 w19+4 "
    "w49+6 w13+5 w79+1 w41+6 w11+4 w57+2 w45+2 w69+2 w55+5 w22+5 w48+4 w53+3 w23+6 w8+5 w33+1 w44+4 w14+5 t2 xh w6+2 "
    "w30+1 i w50+6 w42+1 w78+1 w49+4 w78+2 w73+4 w3+3 w12+3 w41+5 w23+6 f w26+5 w31+6 w75+4 w69+2 w29+4 w11+6 w64+2 "
    "w1+3 w50+2 w1+5 w7+1 w28+6 w1+3 w3+2 w19+2 t36 w67+5 w76+4 w29+3 w47+5 w75+2 w14+4 w25+1 w21+1 t40 w28+1 w74+1 "
    "w34+6 w4+2 w0+6 w31+1 w43+3 w36+1 w42+1 w76+3 w17+4 w36+4 w71+5 w65+5 w5+4 t42 w21+5 w46+1 w70+2 w50+2 w60+4 "
    "w78+1 w31+5 w38+5 w22+5 w6+1 w56+3 w28+3'"
)
DYING = "ftl={} preset=tiny-16 fault=eio=40+ cut=90:prefix program='w0+30 f w3+9 t8 w0+30 f w0+9 f w9 f'"


@ALL
def test_whatever_goes_wrong(ftl: str) -> None:
    result = campaign.run(ftl, "faults", SEED, CUTS)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= CUTS


@pytest.mark.parametrize("ftl", ONE)
def test_a_line_is_the_case_and_the_case_is_deterministic(ftl: str) -> None:
    for unit in range(3):
        for case in hurt(ftl, 1, unit):
            again = Case.parse(case.line())
            assert again.line() == case.line()
            assert run_case(again) == run_case(case)


def test_everything_on_the_menu_comes_up() -> None:
    cases = [case for unit in range(20) for case in hurt("pagemap", 1, unit)]
    assert {fault.kind for case in cases for fault in case.faults} == set(FAULT_KINDS)
    assert {word for case in cases for word in case.program.split() if word.startswith("x")} == set(SPOILS)
    assert {len(case.cuts) for case in cases} >= {0, 1, 2}


def test_some_chips_decay_between_long_requests() -> None:
    """Of each size that has room for it; some without a cut, some with one."""
    cases = [case for unit in range(20) for case in hurt("geckoftl", 1, unit) if len(case.program.split()) > 20]
    long = [case for case in cases if case.program.startswith(f"w0+{case.geometry.lpas} w0+{case.geometry.lpas} f")]
    assert len(long) > 60
    assert {case.preset for case in long} >= set(DECAYING)
    assert {len(case.cuts) for case in long} >= {0, 1}
    assert any(case.plp for case in long)
    assert all(sum(word.startswith("x") for word in case.program.split()) < 30 for case in long)


def test_a_chip_that_claims_an_erase_twice_deceives_anybody() -> None:
    bench, why = played(DECEIVED)
    assert why is None
    assert bench.shut


@pytest.mark.parametrize(
    ("line", "heard"),
    [
        (UNCLAIMED, "all of it is made again from the mapping"),
        (BOTH_AT_ONCE, "nor which pages live"),
        (BETWEEN_MERGES, ""),
        (REPORTED_ONCE, ""),
    ],
)
def test_validity_in_flash(line: str, heard: str) -> None:
    bench, why = played(line)
    assert why is None
    assert any(heard in alarm for alarm in bench.alarms) or not heard


@pytest.mark.parametrize("line", [MASKED, MASKED_BY_TRIMS, MASKED_BY_THE_MAP, MASKED_AGAIN])
def test_a_block_whose_first_page_was_programmed_over_is_what_its_other_pages_say(line: str) -> None:
    bench, why = played(line)
    assert why is None
    assert any("its first page was " in alarm for alarm in bench.alarms)  # for another block, or another page


def played(line: str) -> tuple[HurtBench, str | None]:
    """The bench after its case was played, and what was wrong."""
    bench = HurtBench(Case.parse(line))
    try:
        failure = bench.play().failure
    finally:
        bench.release()
    return bench, failure and failure.why


@pytest.mark.parametrize("ftl", kinds_of(fitting("tiny-16")))
def test_a_chip_that_wears_out_ends_the_program(ftl: str) -> None:
    """What was flushed can still be read; that is all that is asked then."""
    bench, why = played(WORN.format(ftl))
    assert why is None
    assert bench.worn_out


@pytest.mark.parametrize("ftl", kinds_of(fitting("tiny-16")))
def test_the_image_is_mounted_again_when_its_disk_works_again(ftl: str) -> None:
    said: list[str] = []
    outcome = run_case(Case.parse(DYING.format(ftl)), lambda what, at: said.append(what))
    assert outcome.failure is None
    assert any(line.startswith("refused: ") for line in said)
    assert any(line.startswith("mounted ") for line in said)


def test_a_program_on_another_page_of_its_block_shows_by_its_number() -> None:
    """All pages of a block say the same of when it was opened: it is the page's own number that tells."""
    bench, why = played(WITHIN)
    assert why is None
    assert [(block, place[0]) for one in bench.filters() if isinstance(one, Misdirection)
            for _, block, _, *place in one.struck] == [(14, 14)]
    assert any("a page that was flushed cannot be read" in alarm for alarm in bench.alarms)


# --- the judge


def test_the_judge_knows_older_versions_from_others() -> None:
    judge = HurtJudge(4, 64)
    first, second = judge.will_write(1), judge.will_write(1)
    judge.flushed()
    other = judge.will_write(2)
    assert judge.allows(1, second)
    assert not judge.allows(1, first)
    assert not judge.take_older(1, other)
    assert not judge.take_older(1, first[:32] + second[32:])
    assert judge.take_older(1, first)
    assert judge.allows(1, first)
    assert not judge.allows(1, second)


def silent(patch: pytest.MonkeyPatch) -> None:
    """A recovery that reports nothing of what it found."""

    class Planted(recovery.Recovery):  # type: ignore[misc, name-defined]
        def run(self) -> Any:
            report = super().run()
            self.found.alarms.clear()
            return report

    patch.setattr(recovery, "Recovery", Planted)


def zeros(patch: pytest.MonkeyPatch) -> None:
    """A page that cannot be read reads as a hole."""
    read_page = HurtBench.read_page
    patch.setattr(HurtBench, "read_page", lambda bench, lpa: read_page(bench, lpa) or bytes(bench.geometry.page_bytes))


def test_no_more_lpas_suffer_than_pages_of_the_host_were_damaged() -> None:
    bench = HurtBench(Case.parse("ftl=pagemap preset=tiny-16 fault=silent=900 program=w0+9"))
    bench.spoilt += [1]
    bench.costs(4, "now")
    bench.costs(4, "again")
    with pytest.raises(Wrong, match="LPA 5: 2 LPAs suffered from damage to 1 pages of the host"):
        bench.costs(5, "then")
    for kinds, most in ([1, 1], 2), ([1, 2], None), ([4], None), ([], 0):
        bench.spoilt = kinds
        assert bench.bound() == most


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [("silent=30", [1]), ("misdirect=30", [1, 1]), ("flip=30:40", [1]), ("flip=30:4", []), ("fail=30", [])],
)
def test_what_a_fault_has_damaged_is_known(fault: str, kinds: list[int]) -> None:
    bench = HurtBench(Case.parse(f"ftl=pagemap preset=tiny-16 opt.buffer=0 fault={fault} program='w0+40 f'"))
    assert bench.play().failure is None
    assert [oob[6] for one in bench.filters() for _, _, oob in getattr(one, "harmed", ())] == kinds
    assert bench.bound() == len(kinds)


@pytest.mark.parametrize("ftl", limited(("pagemap", "dftl")))
@pytest.mark.parametrize("plant", [silent, zeros])
def test_damage_in_silence_is_a_failure(monkeypatch: pytest.MonkeyPatch, ftl: str, plant: Any) -> None:
    """Few of the cases show it: those whose damage the device met, and whose loss was not noticed before."""
    plant(monkeypatch)
    assert any(campaign.run(ftl, "faults", SEED + i, CUTS).failed for i in range(8))


def test_its_failures_have_lines_that_a_shell_reads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros(monkeypatch)
    failure = campaign.run("pagemap", "faults", SEED, CUTS).failures[0]
    command = shlex.split(failure.replay)
    assert command[:3] == ["flashfs", "crash", "replay"]
    outcome = run_case(Case.parse(command[3]))
    assert outcome.failure is not None
    assert outcome.failure.why == failure.why
