"""The words of ``--fault``: what goes wrong with the chip under a daemon, and when.

Beside those of ``nandimg.faults`` there is ``cut=N:SHAPE``: the power goes; and ``later``: nothing goes wrong until the
mount's `control` sets faults. Operations are counted from 1, from the start of the daemon, its recovery included, or
from when `control` set the faults: each page of a program, each erase, each write to the NVRAM or the boot area.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from flashfs.errors import UsageError
from nandimg import Chip, Cut, FaultyNand, Nand
from nandimg.faults import KINDS, Fault, dress

LATER = "later"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One life's faults: the operation at which the power goes (None: it stays), and what else goes wrong."""

    cut: Cut | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of which ``parse`` makes this plan."""
        cut = [f"cut={self.cut.at}:{self.cut.shape}"] if self.cut else []
        return [*cut, *map(str, self.faults)]

    def front(self, on_cut: Callable[[int, str], object]) -> Callable[[Chip], Nand]:
        """What `Device.open` puts in front of the chip; ``on_cut`` gets the operation and the shape of the cut."""
        return lambda chip: FaultFront(chip, self, on_cut)


class FaultFront(FaultyNand):
    """The filter in front of the chip of a daemon with ``--fault``. ``plan`` is the one in force."""

    def __init__(self, chip: Chip, plan: FaultPlan, on_cut: Callable[[int, str], object]) -> None:
        super().__init__(dress(chip, plan.faults), (plan.cut,), on_cut=on_cut)
        self.plan = plan

    def change(self, plan: FaultPlan) -> None:
        """Use this plan from now on, with operations counted from here. A block that always failed works again, and the
        bits of a page that flip are drawn anew."""
        self.rearm(dress(self.chip, plan.faults, os.urandom(8).hex()), plan.cut)
        self.plan = plan


def parse(words: Iterable[str]) -> FaultPlan:
    """``["cut=1234:prefix", "fail=10"]`` as a plan; UsageError names the word that does not fit."""
    plan = FaultPlan()
    for word in words:
        try:
            plan = _with(plan, word)
        except ValueError as error:
            raise UsageError(f"--fault {word}: {error}") from None
    return plan


def _with(plan: FaultPlan, word: str) -> FaultPlan:
    """``plan`` with one word more."""
    kind, _, value = word.partition("=")
    if word == LATER:
        return plan
    if kind not in ("cut", *KINDS):
        raise ValueError(f"use one of cut=N, {LATER}, {', '.join(f'{name}=N' for name in KINDS)}")
    if kind != "cut":
        return replace(plan, faults=(*plan.faults, Fault.parse(word)))
    if plan.cut is not None:
        raise ValueError("the power goes once in a life: leave one of the cuts out")
    at, _, shape = value.partition(":")
    if not at.isdecimal() or int(at) < 1:
        raise ValueError("use cut=N or cut=N:SHAPE, with an operation's number from 1 up")
    return replace(plan, cut=Cut(int(at), shape or "before"))
