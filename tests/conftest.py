"""What holds for every test."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

MANY = 200  # descriptors: a chip in memory has one, and its memory
left = 0  # of them after the last time: whatever it is that holds these


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Devices that a test dropped without closing them are cycles (parts know their engine): away with them."""
    global left
    if open_now() > left + MANY:
        gc.collect()
        left = open_now()


def open_now() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
