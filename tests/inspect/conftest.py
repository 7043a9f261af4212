"""A browser for the tests of the HTML page, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, installed


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a module; skips by name where no browser is installed."""
    if installed() is None:
        pytest.skip("needs a browser (package chromium)")
    with Browser() as one:
        yield one
