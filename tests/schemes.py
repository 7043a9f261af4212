"""Which schemes a test meets in ``make test``. The others have the mark ``slow``: ``make test-all`` runs them all.

- ``EACH``: all of them. For what a scheme answers for itself: contents, golden counts, accounting, one campaign.
- ``KINDS``: one scheme for each code path of the engine. For what a scheme can change only by the parts that it chose.
- ``rotated(i, n)``: ``n`` schemes from the i-th on. For what no scheme can change (the write buffer, a mount's SEEK):
  tests with different ``i`` meet different schemes, so each scheme is met somewhere.
- ``with_one_more(i)``: the page map, and one scheme by rotation.
- ``thinned(cases, n)``: each n-th of a product of cases, so that every value of each is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from flashfs.ftl import SCHEMES

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

NAMES = tuple(SCHEMES)
EACH = list(NAMES)
#: {scheme: what of the engine it stands for}; test_schemes.py holds it against the classes that each scheme is made of
STANDS_FOR = {
    "pagemap": "a map and a bitmap in DRAM",
    "dftl": "a map in flash, entries cached; a battery keeps the cache and the bitmap",
    "muftl": "a map behind a tree of directory pages; a bitmap in flash, kept by a battery",
    "ibftl": "the same tree, rebuilt from pages; a log of dead pages in flash",
    "geckoftl": "a map and validity rebuilt from pages; metadata cleaned aside",
    "learnedftl": "a cache of two levels; superblocks cleaned as groups",
    "remapssd": "pages that several LPAs share; NVRAM of its own",
}


def limited(fast: Iterable[str], names: Iterable[str] = NAMES) -> list[ParameterSet]:
    """All ``names``; those that are not ``fast`` are slow."""
    chosen = set(fast)
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.slow) for name in names]


def thinned(cases: Iterable[Any], n: int, first: int = 0) -> list[ParameterSet]:
    """All ``cases``, values or tuples of them; each n-th runs in ``make test``, the others are slow."""
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=() if i % n == first else pytest.mark.slow)
        for i, one in enumerate(cases)
    ]


KINDS = limited(STANDS_FOR)
THREE = ("pagemap", "dftl", "geckoftl")  #: a map in DRAM, in flash with a battery, rebuilt from pages
FEW = limited(THREE)
ONE = limited(["pagemap"], THREE)  #: for what is true of the tool that runs a scheme, not of the scheme


def bounded(few: dict[str, int], many: dict[str, int]) -> list[ParameterSet]:
    """(tier, how much of it) for ``make test``, and slow, (tier, more)."""
    slow = [pytest.param(tier, bound, marks=pytest.mark.slow) for tier, bound in many.items()]
    return [*(pytest.param(tier, bound) for tier, bound in few.items()), *slow]


def turn(i: int, n: int, names: tuple[str, ...] = NAMES) -> list[str]:
    """``n`` of the names, the i-th first. Steps of five: neighbours in ``i`` share as few as can be."""
    return [names[(5 * i + k * (len(names) // n or 1)) % len(names)] for k in range(n)]


def rotated(i: int, n: int = 1, names: tuple[str, ...] = NAMES) -> list[ParameterSet]:
    return limited(turn(i, n, names), names)


def with_one_more(i: int) -> list[ParameterSet]:
    others = tuple(name for name in NAMES if name != "pagemap")
    return limited(("pagemap", *turn(i, 1, others)))


def kinds_of(names: Iterable[str]) -> list[ParameterSet]:
    """``names``, of which those that stand for a part of the engine run in ``make test``; one at least."""
    every = tuple(names)
    fast = [name for name in every if name in STANDS_FOR]
    return limited(fast or every[:1], every)


def those(has: Callable[[str], bool]) -> tuple[str, ...]:
    """The schemes with a trait that they state themselves."""
    return tuple(name for name in NAMES if has(name))
