"""WAF after ``steady`` against the closed form of greedy cleaning of bench/waf.py, and that against another."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from bench import waf  # noqa: E402


def large_blocks(share: float) -> float:
    """Greedy with blocks without end: a victim keeps the share v of its pages for which share x (1 - v) = -ln v."""
    low, high = 1e-12, 1 - 1e-12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if share * (1 - middle) < -math.log(middle) else (low, middle)
    return 1 / (1 - low)


@pytest.mark.parametrize("share", [1.07, 1.2, 1.5, 2.0])
def test_the_form_tends_to_that_of_large_blocks(share: float) -> None:
    near, nearer = (waf.greedy(pages, share) / large_blocks(share) - 1 for pages in (1 << 10, 1 << 16))
    assert abs(nearer) < 0.001
    assert abs(nearer) <= abs(near)


def test_the_form_is_continuous_and_falls() -> None:
    found = [waf.greedy(64, 1.02 + i / 1000) for i in range(2000)]
    assert all(a >= b for a, b in itertools.pairwise(found))
    assert max(a - b for a, b in itertools.pairwise(found[100:])) < 0.1
    assert waf.greedy(4, 1e9) == 1.0  # every victim is empty by then


def test_what_is_committed_is_within_what_is_promised() -> None:
    saved = json.loads((ROOT / "bench" / "results" / "waf.json").read_text())
    assert [one["op"] for one in saved["points"]] == list(waf.OPS)
    assert all(one["steady"] and abs(one["off"]) <= saved["within"] for one in saved["points"])
    page = (ROOT / "docs" / "model.md").read_text()
    for one in saved["points"]:
        assert f"| {one['op']:g} | {one['closed']:,.0f} of {one['blocks']:,} | {one['waf']:.2f} |" in page


@pytest.mark.slow
@pytest.mark.parametrize("op", waf.OPS)
def test_waf_is_that_of_the_form(op: float) -> None:
    one = waf.point(1 << 30, op)
    assert one["steady"]
    assert abs(one["off"]) <= waf.WITHIN


def test_waf_is_that_of_the_form_on_a_small_device() -> None:
    """There the blocks cleaned in a row are more of all, so it is not as near."""
    one = waf.point(1 << 27, 0.8)
    assert one["steady"]
    assert abs(one["off"]) <= 2 * waf.WITHIN
