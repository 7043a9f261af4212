"""DFTL's cache against closed forms, on small devices: bench/dftl_cache.py has the large ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3]))

from bench import dftl_cache as bench

LPAS = 1 << 14


@pytest.mark.parametrize("share", [16, 4, 1])
def test_hit_ratios_are_those_of_the_closed_forms(share: int) -> None:
    """Uniform: the share that is cached, within 1 %. Zipf into a plain LRU: Che's approximation, within 2 %. In order:
    one miss a page."""
    of = {row["workload"]: row for row in bench.cache(LPAS, 40_000, (share,))}
    assert of["uniform"]["hit_ratio"] == pytest.approx(of["uniform"]["expected"], abs=0.01)
    assert of["zipf, plain LRU"]["hit_ratio"] == pytest.approx(of["zipf, plain LRU"]["expected"], abs=0.02)
    assert of["zipf, segmented"]["hit_ratio"] >= of["zipf, plain LRU"]["hit_ratio"] - 0.005
    assert of["64 pages in order"]["hit_ratio"] == (share == 1)
    assert of["64 pages in order"]["loads_a_page"] == (share != 1)


@pytest.mark.parametrize("share", [16, 4])
def test_dirty_entries_go_back_together(share: int) -> None:
    (row,) = bench.batch(LPAS, 60_000, (share,))
    assert row["entries_a_program"] == pytest.approx(row["expected"], rel=0.05)


def test_a_battery_bounds_a_recovery_by_the_last_sync() -> None:
    without, kept = (bench.recovery(0.125, battery, 1 << 13, 200) for battery in (0, 1))
    blocks = next(row["headers"][0] for row in (kept["steps"],))
    assert without["spare_reads"] > 1 << 13
    assert kept["spare_reads"] <= blocks + 200 + 100
    assert kept["reads"] < 40 < without["reads"]
    assert kept["virtual_us"] < without["virtual_us"] / 10
    note: Any = kept["note"]
    assert note.endswith("translation pages")
