"""The host itself dies: of the image's writes since its last sync any subset reached the disk, in any order."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from schemes import FEW, ONE

from flashfs import cli
from flashfs.crash import Case, campaign, run_case
from flashfs.crash.cases import KEEPS
from flashfs.crash.host import HostBench
from flashfs.crash.programs import STRIPED, fitting
from flashfs.crash.tiers import dying
from flashfs.errors import UsageError

DEATHS = 120  #: a part


#: a block that was erased and written again, of which the disk kept the last pages, and the first as they were before
#: that erase: SlimFTL took the old ones for its virtual block's, and lost a page that was flushed
ERASE_LOST = (
    "ftl=slimftl preset=tiny-100d opt.buffer=2 opt.hash=mix opt.candidates=shifted opt.crowded=thesis opt.lanes=1 "
    "dram=29557 cut=4763:after:but.46-121 program='w0+251 "
    "w0+251 w0+103 f w14+6 w130+5 w93+5 w73+2 w235+1 w96+1 w246+2 f w43+6 w101+3 w95+4 w127+6 t204 w124+2 w21+2 "
    "w63+6 w100+2 t109 w242+6 w91+2 w246+2 w137+1 w34+6 w112+3 w244+6 i w231+3 w2+6 w160+3 w239+1 w133+5 w225+3 "
    "w134+2 w69+4 w144+5 w224+1 w82+2 w87+6 w38+6 w59+2 i w73+1 w149+1 w155+4 w31+3 w232+2 w159+1 w250+1 w88+1 "
    "w75+4 w133+2 w138+2 i w120+6 w124+5 w103+2 w153+2 i w38+2 w84+2 w60+4 w55+4 i w160+1 w243+6 w63+2 w103+2 "
    "w152+6 w158+4 w114+5 w226+3 w185+3 w205+4 w21+3 w100+5 i w225+3 w200+6 i w36+2 w179+4 w184+3 w146+2 w37+2 "
    "t30 w24+2 w157+6 w196+4 t232 w28+6 f w53+3 w14+5 i w222+1 w157+5 w216+6 w90+4 w104+4 w192+3 w74+5 w194+1 "
    "w65+4 w99+2 i w212+1 i w130+4 w181+4 w63+6 w78+5 w155+4 w138+1 w167+2 w210+1 w151+5 w96+2 w192+1 w99+2 "
    "w124+1 w74+2 w111+4 w64+1 w243+4 w235+4 w43+5 w73+3 w68+4 w185+6 w93+1 w179+1 w27+4 w45+5 w10+5 w171+1 "
    "w133+2 w83+2 w246+4 i w21+2 w192+1 w225+3 w209+5 w199+3 w21+6 w230+1 w249+1 w148+4 w213+3 w203+2 w215+2 "
    "w135+6 w126+6 w165+6 w142+3 w77+1 w202+5 f w34+5 w42+6 w10+2 w91+1 w42+3 i w239+3 w102+3 w169+1 w14+4 w159+6 "
    "w87+4 w205+5 w35+6 t164 w133+4 w35+2 w167+4 w177+5 w83+6 w198+3 w94+3 w224+2 w249+2 w205+4 w173+1 w238+5 "
    "w52+2 w87+5 w235+5'"
)
#: a block whose erase failed, and the disk kept none of it but that its first page is gone
FAILED_ERASE_LOST = (
    "ftl=slimftl preset=tiny-16k opt.buffer=1 fail=24 cut=27:after:but.7-8+marks program='w39.7+10 w16 w15 w43 "
    "w23 c28.2-17.7+1 w9 w11 w38 r w10 t9+2 R w37 w37+1 w15+1 w9+4 w15 t37+1 w13.0+8 w8 w19 r c1.5-45.1+4'"
)


@pytest.mark.parametrize("line", [ERASE_LOST, FAILED_ERASE_LOST], ids=["erase", "failed-erase"])
def test_an_erase_that_the_disk_lost(line: str) -> None:
    outcome = run_case(Case.parse(line))
    assert outcome.failure is None, str(outcome.failure)
    assert outcome.cuts_hit == 1


@pytest.mark.parametrize("ftl", ["pagemap", "slimftl"])
def test_an_erase_in_the_same_window_is_aimed_at(ftl: str) -> None:
    """What was before an erase is lost and the erase is not, or the other way round. No block is erased before what it
    held at the last sync is durable elsewhere."""
    bases = [base for unit in range(6) for base in dying(ftl, 1, unit) if base.preset in STRIPED]
    found = 0
    for base in bases:
        bench = HostBench(replace(base, cuts=(), keeps=(), unsynced=()))
        bench.play()
        found += sum(erase.at > erase.synced + 1 for life in bench.erased for erase in life)
        assert not [erase for life in bench.erased for erase in life if erase.early]
        bench.release()
    assert found > 10


@pytest.mark.parametrize("ftl", FEW)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 5))])
def test_any_subset_of_unsynced_sectors(ftl: str, part: int) -> None:
    result = campaign.run(ftl, "host", part, DEATHS)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= DEATHS


@pytest.mark.parametrize("ftl", ONE)
def test_a_line_is_the_case_and_the_case_is_deterministic(ftl: str) -> None:
    for case in dying(ftl, 1, 0):
        assert Case.parse(case.line()).line() == case.line()
        outcomes = [run_case(Case.parse(case.line())) for _ in range(2)]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0].failure is None


def test_all_ways_to_die_come_up() -> None:
    cases = [case for unit in range(8) for case in dying("pagemap", 1, unit)]
    keeps = {re.split(r"[.+]", keep)[0] for case in cases for keep in case.keeps}
    assert keeps == {"all", "none", "tables", "data", "first", "last", "but", "coin"}
    assert any(keep.endswith("+marks") for case in cases for keep in case.keeps)
    assert any(case.unsynced for case in cases)
    assert all(KEEPS.fullmatch(keep) for case in dying("pagemap", 1, 0) for keep in case.keeps)


PROGRAM = "w0+8 f w1 w2 w3 w4"


def left_by(keep: str) -> HostBench:
    """A device whose host died four operations after a flush."""
    case = Case("pagemap", PROGRAM, "tiny-8", options=(("buffer", 0),), keeps=(keep,))
    whole = HostBench(Case("pagemap", PROGRAM, "tiny-8", options=(("buffer", 0),), keeps=(keep,)))
    whole.format()
    for step in whole.steps:
        whole.step(step.operation, step.lpa, step.n)
    assert case.keeps == whole.case.keeps
    return whole


@pytest.mark.parametrize("keep", ["all", "none", "tables", "data", "first.2", "last.2", "coin.3"])
def test_what_is_kept(keep: str) -> None:
    """Sector for sector: what the file was at the sync, or is now, and which of the two by the rule's name."""
    bench = left_by(keep)
    try:
        now, durable = bench._sectors(), bench.durable
        left = bench.remains(now)
        changed = np.flatnonzero((now != durable).any(axis=1))
        kept = [int(at) for at in changed if (left[at] == now[at]).all()]
        lost = [int(at) for at in changed if (left[at] == durable[at]).all()]
        data_at = bench.image.header.layout.data_at // 512
        assert len(changed) >= 5
        if keep == "all":
            assert kept == list(changed)
        elif keep == "none":
            assert lost == list(changed)
        elif keep == "tables":
            assert kept == [at for at in changed if at < data_at]
        elif keep == "data":
            assert kept == [at for at in changed if at >= data_at]
        elif keep == "coin.3":
            assert 0 < len(kept) < len(changed)
        else:
            assert list(bench.marks) == [2]
            pages = [at for at in changed if at >= data_at]
            assert len(set(kept) & set(pages)) == 2
            assert (min if keep == "first.2" else max)(pages) in kept
    finally:
        bench.release()


def test_marks_that_follow_a_sync_are_not_durable_with_it() -> None:
    """The block table says after a sync what the sync made durable; nothing has synced that yet."""
    bench = left_by("none")
    try:
        table = 12288 // 512
        bench.ssd.sync_now()
        assert (bench._sectors()[table] != bench.durable[table]).any()
    finally:
        bench.release()


def test_a_replay(capsys: pytest.CaptureFixture[str]) -> None:
    line = "ftl=slimftl cut=9:prefix:coin.5 cut=2:after:last.1 program='w0+8 f w1 w2 f w3'"
    assert cli.run(["crash", "replay", line]) == 0
    assert capsys.readouterr().out.startswith("survived: 2 cuts")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cut=9:prefix:some program=f", "cut=9:prefix:some"),
        ("cut=9:prefix:coin program=f", "cut=9:prefix:coin"),
        ("cut=9:prefix:all cut=2:after program=f", "some cuts say what the host's disk kept"),
    ],
)
def test_a_bad_line_names_the_word(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Case.parse(line)
    assert said in str(caught.value)


@pytest.mark.parametrize("ftl", fitting("tiny-8"))
def test_a_protected_buffer_outlives_the_host_too(ftl: str) -> None:
    line = f"ftl={ftl} preset=tiny-8 opt.buffer=1 plp cut=7:after:last.1 program='w0 f w1 w2'"
    failure = run_case(Case.parse(line)).failure
    assert failure is None, str(failure)
