"""The formulas of GeckoFTL's paper: its printed numbers, and what follows from the formulas alone."""

from __future__ import annotations

import json

import pytest

from flashfs.cli import run
from flashfs.engine.recovery.recovery import Step
from flashfs.errors import UsageError
from flashfs.formulas import FTLS, Chip, dram, recovery, row

PAPERS = Chip()
NUMBERED = ("spare_reads", "reads", "programs")


def test_the_papers_device() -> None:
    """Figure 2: K = 2^22, B = 2^7, P = 2^12; section 2: a table of 1.4 GB, a directory of 1.4 MB; 5: C = 2^19."""
    assert (PAPERS.blocks, PAPERS.cached) == (1 << 22, 1 << 19)
    assert PAPERS.table_bytes == pytest.approx(1.4 * 2**30, rel=0.001)
    assert dram("dftl", PAPERS)["gmd"] == pytest.approx(1.4 * 2**20, rel=0.001)


def test_dram_by_hand() -> None:
    assert dram("lazyftl", PAPERS) == {"pvb": 64 << 20, "gmd": 1_468_006, "cache": 4 << 20}
    assert dram("geckoftl", PAPERS) == {
        "bvc": 8 << 20, "gmd": 1_468_006, "run_directories": 327_680, "gecko_buffers": 4096 * 17, "cache": 4 << 20,
    }  # fmt: skip
    assert dram("muftl", PAPERS) == {"bvc": 8 << 20, "root": 4 * 359, "cache": 4 << 20}  # 367,002 pages, 359 nodes
    assert dram("ibftl", PAPERS)["log_heads"] == dram("ibftl", PAPERS)["log_stamps"] == 16 << 20


def test_a_recovery_by_hand() -> None:
    """Appendix C: K, then TT / P, Gecko's pages, 2 V reads, Gecko's pages again, 2 C."""
    steps = {one.name: one for one in recovery.steps("geckoftl", PAPERS)}
    assert [one.name for one in steps.values()] == ["blocks", "gmd", "runs", "buffer", "bvc", "cache"]
    assert (steps["blocks"].spare_reads, steps["cache"].spare_reads) == (1 << 22, 1 << 20)
    assert (steps["runs"].spare_reads, steps["bvc"].reads, steps["buffer"].reads) == (40_960, 40_960, 409)
    assert recovery.seconds("geckoftl", PAPERS) == pytest.approx(21.09, abs=0.01)
    lazy = {one.name: one for one in recovery.steps("lazyftl", PAPERS)}
    assert lazy["cache"].reads == lazy["cache"].programs == 52_429 and lazy["pvb"].reads == 367_002


def test_sections_2_to_5_print_these_times() -> None:
    assert recovery.brute_force(PAPERS).seconds(PAPERS) / 60 == pytest.approx(26, abs=1)
    assert recovery.synchronised(PAPERS).seconds(PAPERS) / 60 == pytest.approx(7, abs=0.5)


@pytest.mark.parametrize("ftl", FTLS)
def test_what_grows_with_the_device_and_what_does_not(ftl: str) -> None:
    """Twice the flash: each structure and step doubles, or has nothing to do with it, but for a level of Gecko."""
    twice = Chip(capacity=2 * PAPERS.capacity)
    for name, size in dram(ftl, PAPERS).items():
        grown = dram(ftl, twice)[name]
        one_level = PAPERS.page_bytes if name == "gecko_buffers" else 0
        assert grown == pytest.approx(2 * size, rel=0.01) or grown == size + one_level, name
    for one, other in zip(recovery.steps(ftl, PAPERS), recovery.steps(ftl, twice), strict=True):
        for name in NUMBERED:
            n, more = getattr(one, name), getattr(other, name)
            assert more == pytest.approx(2 * n, rel=1e-5) or more == n, (one.name, name)


def test_what_a_bound_is_worth() -> None:
    """All dirty: as section 2 has it. Never more pages than the map has."""
    assert recovery.steps("lazyftl", Chip(dirty=1))[-1].programs == PAPERS.table_pages
    assert recovery.steps("lazyftl", Chip(dirty=0.5))[-1].programs == 1 << 18


def test_more_parts_make_room_for_more_entries() -> None:
    assert Chip(parts=4).gecko_entries == 512 and PAPERS.gecko_entries == pytest.approx(204.8)
    assert Chip(parts=4).gecko_pages == 2 * (4 << 22) // 512


@pytest.mark.parametrize("given", [
    {"capacity": 0}, {"capacity": 1 << 20}, {"capacity": 1 << 80}, {"ratio": 1.0}, {"ratio": float("nan")},
    {"dirty": 1.5}, {"parts": 129}, {"size_ratio": 1}, {"pages_per_block": 12.5}, {"page_bytes": 32},
    {"read_ns": -1}, {"capacity": "2T"},
])  # fmt: skip
def test_devices_that_are_none(given: dict[str, float]) -> None:
    with pytest.raises(UsageError) as told:
        Chip(**given)  # type: ignore[arg-type]
    assert "use " in str(told.value) and "\n" not in str(told.value)


def test_a_row_has_all_of_all_schemes() -> None:
    rows = {ftl: row(ftl, PAPERS) for ftl in FTLS}
    assert len({frozenset(one) for one in rows.values()}) == 1  # a figure may ask any of them for anything
    for ftl, one in rows.items():
        assert one["dram.total"] == sum(dram(ftl, PAPERS).values())
        assert one["recovery.seconds"] == pytest.approx(sum(
            value for name, value in one.items() if name.startswith("recovery.") and name.count(".") == 2
            and name.endswith(".seconds")
        ))  # fmt: skip
    assert rows["muftl"]["dram.pvb"] == rows["dftl"]["recovery.pvl.reads"] == 0


# --- beside what was measured


def test_a_measured_recovery_beside_its_formula() -> None:
    chip = Chip(capacity=1 << 32)
    report = [Step("headers", "", spare_reads=8192), Step("scan", "", spare_reads=300), Step("late", "", spare_reads=5),
              Step("boot", "", reads=2)]  # fmt: skip
    found = recovery.beside("geckoftl", chip, report, {"headers": "blocks", "scan": "cache", "late": "cache"})
    by_name = {step.name: (step, measured) for step, measured in found}
    assert by_name["blocks"][0].spare_reads == by_name["blocks"][1]["spare_reads"] == 8192
    assert by_name["cache"][1] == {"spare_reads": 305, "reads": 0, "programs": 0, "of": ["scan", "late"]}
    assert by_name["beside"][1]["reads"] == 2 and by_name["beside"][0].operations == 0
    assert by_name["runs"][1]["of"] == []
    assert sum(measured["spare_reads"] for _, measured in found) == 8497


def test_a_step_that_the_model_does_not_have() -> None:
    with pytest.raises(UsageError, match="lazyftl has no step runs; use blocks, gmd, pvb, cache"):
        recovery.beside("lazyftl", PAPERS, [], {"headers": "runs"})


# --- the command


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recovery-model", "--capacity", "2T,4T", "--ftl", "geckoftl,dftl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["capacity"] >> 40, one["ftl"], one["battery"]) for one in found] == [
        (2, "geckoftl", False), (2, "dftl", True), (4, "geckoftl", False), (4, "dftl", True),
    ]  # fmt: skip
    assert found[0]["seconds"] == pytest.approx(21.09, abs=0.01)
    assert found[0]["operations"] == sum(sum(step[name] for name in NUMBERED) for step in found[0]["steps"])
    assert found[0]["seconds"] == pytest.approx(sum(step["seconds"] for step in found[0]["steps"]))
    assert found[2]["chip"]["blocks"] == 1 << 23


def test_the_command_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recovery-model", "--capacity", "2T", "--read-us", "50", "--ftl", "lazyftl"]) == 0
    told = capsys.readouterr().out
    assert "2 TiB: 4,194,304 blocks of 128 pages" in told and "18.35" in told  # half of 36.7 s: the bitmap


@pytest.mark.parametrize("arguments", [
    ["--capacity", "9q"], ["--capacity", ","], ["--capacity", "1T,1T"], ["--capacity", "1T", "--ftl", "pagemap"],
    ["--capacity", "1T", "--read-us", "0"], ["--capacity", "1T", "--ratio", "1"], [], ["--capacity", "1M"],
    ["--capacity", "1T", "--parts", "500"], ["--capacity", "1T", "--spare-us", "nan"],
])  # fmt: skip
def test_what_cannot_be_asked_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recovery-model", *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("flashfs: ") and told.err.count("\n") == 1 and told.out == ""
