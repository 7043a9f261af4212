"""What once lost flushed data, or stopped for good: each case of lost.toml is survived."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from flashfs.crash import Case, run_case

CASES = {one["name"]: one["line"] for one in tomllib.loads(Path(__file__).with_name("lost.toml").read_text())["case"]}


@pytest.mark.parametrize("name", CASES)
def test_is_survived(name: str) -> None:
    failure = run_case(Case.parse(CASES[name])).failure
    assert failure is None, failure.why
