"""What once lost flushed data, or stopped for good: each case of lost.toml is survived."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from unnumbered import without_page_numbers

from flashfs.crash import Case, run_case

CASES = {one["name"]: one["line"] for one in tomllib.loads(Path(__file__).with_name("lost.toml").read_text())["case"]}
#: only the number of the page tells
WITHIN = "a superseded translation page, moved onto the newest version of it in the same block"


@pytest.mark.parametrize("name", CASES)
def test_is_survived(name: str) -> None:
    failure = run_case(Case.parse(CASES[name])).failure
    assert failure is None, failure.why


@pytest.mark.parametrize("name", [name for name, line in CASES.items() if "misdirect" in line and name != WITHIN])
def test_is_survived_where_pages_have_no_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an image of before, where only the order of blocks tells."""
    without_page_numbers(monkeypatch)
    failure = run_case(Case.parse(CASES[name])).failure
    assert failure is None, failure.why
