"""bench/maps.py: maps at equal DRAM, on a small device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench import common
from bench import maps as bench

SIZE = 512 << 20


@pytest.fixture(scope="module")
def work() -> bench.Work:
    return bench.workload("uniform:write=0.5", 3_000, SIZE)


def test_all_have_the_same_dram_and_ground(work: bench.Work) -> None:
    rows = list(bench.at_equal_dram(work, bench.FTLS, (8, 1), "in order"))
    assert [row["ftl"] for row in rows] == 2 * list(bench.FTLS)
    for share in (8, 1):
        assert len({row["dram"] for row in rows if row["share"] == share}) == 1
    grounds = [{**row["ground"], "stripe": None, "moved": row["ground"]["moved"] or 0} for row in rows
               if "needs" not in row]  # fmt: skip
    assert all(one == grounds[0] for one in grounds) and grounds[0]["buffer"] == bench.BUFFER
    assert not any(row.get("complaints") for row in rows)
    of = {row["ftl"]: row for row in rows if row["share"] == 1}
    assert all("needs" not in row for row in of.values())  # a table of 8 bytes is room for each of them
    assert of["pagemap"]["reads_a_page"] == 0 and of["pagemap"]["hit"] == 1
    for ftl in ("dftl", "sftl", "tpftl", "learnedftl"):
        assert of[ftl]["hit"] >= 0 and of[ftl]["hit"] + (of[ftl]["modelled"] or 0) <= 1
    assert of["dftl"]["reads_a_page"] > of["sftl"]["reads_a_page"]  # what 29 bytes an entry leave out


def test_what_does_not_start_says_what_it_needs(work: bench.Work) -> None:
    (row,) = bench.at_equal_dram(work, ["pagemap"], [8], "in order")
    fixed = bench.beside(work)
    assert int(row["needs"]) == fixed + 4 * work.setup.geometry.lpas > row["dram"]


def test_a_scattered_device_has_a_larger_map(work: bench.Work) -> None:
    of = {state: next(bench.at_equal_dram(work, ["leaftl"], [1], state)) for state in bench.STATES}
    assert of["scattered"]["map_bytes"] > 2 * of["in order"]["map_bytes"]


def test_the_whole_map_in_each_form() -> None:
    row = bench.whole(bench.workload("sequential:write=1,size=64k", 8_000, SIZE))
    assert row["mapped"] > 7_000 and row["dftl"] == 8 * row["mapped"]
    assert row["leaftl"] < row["sftl"] < row["dftl"] / 20


def test_of_reads_and_writes_together() -> None:
    made = {
        "latency_us": {"read": {"n": 99, "mean": 1.0}, "write": {"n": 1, "mean": 101.0}},
        "histograms": {
            "read": {"upper_ns": [1000], "count": [99]},
            "write": {"upper_ns": [1000, 101_000], "count": [0, 1]},
        },
    }
    assert bench.latency(made) == (2.0, 1.0, 101.0)


def test_traces_that_are_not_there_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    assert not list(bench.works(tmp_path, "msr", 1000, said.append))
    assert [line.partition(":")[0] for line in said] == ["msr_hm_1_writes_33k", "msr_rsrch_1"]


def test_the_page_says_what_is_kept() -> None:
    found = json.loads((common.RESULTS / "maps.json").read_text())
    page = bench.DOC.read_text()
    assert bench.written(page, found) == page
