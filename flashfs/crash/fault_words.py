"""The words of ``--fault``: what goes wrong with the chip under a daemon, and when.

Operations are counted from 1 since the daemon began, its recovery first: each page of a program, each erase, each write
to the NVRAM or the boot area.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from flashfs.errors import UsageError
from nandimg import Chip, Cut, FaultyNand, Nand
from nandimg._faults import SHAPES


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One life's faults: the operation at which the power goes (None: it stays), and those that the chip reports as
    failed."""

    cut: Cut | None = None
    failing: tuple[int, ...] = ()

    def front(self, on_cut: Callable[[int, str], object]) -> Callable[[Chip], Nand]:
        """What `Device.open` puts in front of the chip; ``on_cut`` gets the operation and the shape of the cut."""
        return lambda chip: FaultyNand(chip, (self.cut,), self.failing, on_cut=on_cut)


def parse(words: Iterable[str]) -> FaultPlan:
    """``["cut=1234:prefix", "fail=10,20"]`` as a plan; UsageError names the word that does not fit."""
    plan = FaultPlan()
    for word in words:
        try:
            plan = _with(plan, word)
        except ValueError as error:
            raise UsageError(f"--fault {word}: {error}") from None
    return plan


def _with(plan: FaultPlan, word: str) -> FaultPlan:
    """``plan`` with one word more; the one place that knows the words."""
    kind, _, value = word.partition("=")
    if kind == "cut":
        if plan.cut is not None:
            raise ValueError("the power goes once in a life: leave one of the cuts out")
        at, _, shape = value.partition(":")
        return replace(plan, cut=Cut(_operation(at), shape or "before"))
    if kind == "fail":
        return replace(plan, failing=(*plan.failing, *map(_operation, value.split(","))))
    raise ValueError(f"cut=N, cut=N:SHAPE ({', '.join(SHAPES)}) or fail=N,N would do")


def _operation(text: str) -> int:
    """The number of an operation, from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text or 'nothing'} is no operation's number: a whole number from 1 up would do")
    return int(text)
