"""What holds for every test."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked ``share(n)`` one in n is for `make test`, the others are slow. Which: those whose
    places in their lists of parameters sum up to a multiple of n, so that each FTL meets each other parameter's share.
    Of a test that is asked for by the name of one case, that case is run."""
    lists: dict[tuple[Path, str, str], dict[str, int]] = {}
    for item in items:
        mark, spec = item.get_closest_marker("share"), getattr(item, "callspec", None)
        if mark is None or spec is None:
            continue
        places = 0
        for name, value in spec.params.items():
            known = lists.setdefault((item.path, getattr(item, "originalname", ""), name), {})
            places += known.setdefault(repr(value), len(known))
        if places % mark.args[0]:
            item.add_marker(pytest.mark.slow)


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
