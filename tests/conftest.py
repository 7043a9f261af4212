"""What holds for every test."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

MANY = 200  # descriptors: a chip in memory has one, and its memory


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Devices that a test dropped without closing them are cycles (parts know their engine): away with them."""
    if sum(1 for _ in Path("/proc/self/fd").iterdir()) > MANY:
        gc.collect()
