"""The fault menu: one word for each fault, in a replay line and as an option of a mount.

    fail=N      the program or erase at operation N is reported failed       fail=N+    its block then always fails
    silent=N    operation N is reported done, but is skipped
    misdirect=N the program at operation N lands on another page
    flip=N:B    the page programmed at operation N reads with B wrong bits (8 are corrected)
    flip=N:B:stuck, flip=N:B:pass     ... even after an erase; ... until one read has failed
    wear=E      blocks survive about E erases
    eio=N, enospc=N                   the image's disk fails at operation N  eio=N+     and from then on
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from nandimg._chip import Chip
from nandimg._fault_filters import BitErrors, Failures, HostErrors, Misdirection, Silence, WearOut
from nandimg._nand import Nand

KINDS = ("fail", "silent", "misdirect", "flip", "wear", "eio", "enospc")
STICKY = ("fail", "eio", "enospc")
#: faults after which a page may be lost for good, unlike after a power cut: the device must only detect it
DAMAGING = ("silent", "misdirect", "flip")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``at`` is an operation's number (a number of erases for ``wear``); with ``sticky`` the fault persists
    from there on; ``bits`` and ``mode`` belong to ``flip``."""

    kind: str
    at: int
    sticky: bool = False
    bits: int = 0
    mode: str = "fade"

    def __str__(self) -> str:
        tail = "+" * self.sticky
        if self.kind == "flip":
            tail = f":{self.bits}" + f":{self.mode}" * (self.mode != "fade")
        return f"{self.kind}={self.at}{tail}"

    @property
    def damaging(self) -> bool:
        """Whether it may lose data that no device can recover."""
        return self.kind in DAMAGING

    @classmethod
    def parse(cls, word: str) -> Fault:
        """The inverse of ``str``; ValueError says what to use."""
        kind, _, value = word.partition("=")
        problem = f"fault {word!r}: use one of {', '.join(f'{name}=N' for name in KINDS)}, with N from 1 up"
        if kind not in KINDS:
            raise ValueError(problem)
        sticky = value.endswith("+")
        number, *rest = value.rstrip("+").split(":")
        if not number.isdigit() or int(number) < 1 or (sticky and kind not in STICKY):
            raise ValueError(problem)
        if kind != "flip":
            if rest:
                raise ValueError(problem)
            return cls(kind, int(number), sticky)
        if not rest or not rest[0].isdigit() or rest[1:] not in ([], ["fade"], ["stuck"], ["pass"]):
            raise ValueError(f"fault {word!r}: use flip=N:BITS, flip=N:BITS:stuck or flip=N:BITS:pass")
        return cls(kind, int(number), False, int(rest[0]), rest[1] if rest[1:] else "fade")


def dress(chip: Chip | Nand, faults: tuple[Fault, ...] | list[Fault], seed: object = 0) -> Nand:
    """Put a filter for each fault in front of the chip, the first one nearest to it; returns the outermost."""
    nand: Nand = chip
    for fault in faults:
        at = (fault.at,)
        if fault.kind == "fail":
            nand = Failures(nand, at, fault.sticky)
        elif fault.kind == "silent":
            nand = Silence(nand, at)
        elif fault.kind == "misdirect":
            nand = Misdirection(nand, at, seed)
        elif fault.kind == "flip":
            nand = BitErrors(nand, {fault.at: fault.bits}, mode=fault.mode)
        elif fault.kind == "wear":
            nand = WearOut(nand, fault.at, seed)
        else:
            nand = HostErrors(nand, at, getattr(errno, fault.kind.upper()), fault.sticky)
    return nand
