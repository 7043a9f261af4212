"""The host itself dies: of the image's writes since its last sync any subset reached the disk, in any order."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flashfs import cli
from flashfs.crash import Case, campaign, run_case
from flashfs.crash.cases import KEEPS
from flashfs.crash.host import HostBench
from flashfs.crash.programs import fitting
from flashfs.crash.tiers import dying
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES

SHARE = 12  #: one death of the host for so many cuts of tier sweep


@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_any_subset_of_unsynced_sectors(ftl: str) -> None:
    deaths = SCHEMES[ftl].ci_cuts // SHARE
    result = campaign.run(ftl, "host", 0, deaths)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= deaths


@pytest.mark.parametrize("ftl", list(SCHEMES))
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
