"""One case: a chip, a scheme, a program of host requests, cuts; and the line that says all this.

A program is a text such as ``w3 w4 f t3 w3+4 i r w5``:

    wL    write page L          wL+N  write N pages from L on in one request
    tL    trim page L           tL+N  trim N pages
    f     flush                 i     idle: nothing, but housekeeping may run
    r     clean unmount and mount again

    xc    a page of the newest checkpoint is spoilt, xd its descriptor, xt a page of trims, xb the boot hints,
    xh    the first page of a block with live pages, xp a live page; each with the power gone as well
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flashfs.errors import UsageError
from flashfs.ftl import scheme
from nandimg import PRESETS, Cut, Fault

#: what is left of the image's sectors that changed since the last sync, when the host dies with the power:
#: all or none of them, those of one region alone, the first or the last in the order of writing, the toss of a coin
KEEPS = re.compile(r"all|none|tables|data|(first|last|coin)\.\d+")


#: words that spoil something in flash that no power cut could
SPOILS = ("xc", "xd", "xt", "xb", "xh", "xp")


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that one run needs. ``cuts`` are for one life each: power goes at the first cut's operation, then,
    counted from the next power-up, at the second's, and so on. ``fail`` are operations that the chip reports failed;
    ``faults`` are what else goes wrong (nandimg.faults). ``keeps``, one for each cut, make it a case of the host tier:
    the host dies at each cut, and of what it had not synced that much is left."""

    ftl: str
    program: str
    preset: str = "tiny-8"
    cuts: tuple[Cut, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    fail: tuple[int, ...] = ()
    plp: bool = False
    keeps: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def line(self) -> str:
        """The one line that replays it."""
        parts = [f"ftl={shlex.quote(self.ftl)}", f"preset={self.preset}"]
        parts += [f"opt.{name}={value}" for name, value in self.options]
        parts += ["plp"] if self.plp else []
        parts += [f"fail={','.join(map(str, self.fail))}"] if self.fail else []
        parts += [f"fault={fault}" for fault in self.faults]
        keeps = [f":{keep}" for keep in self.keeps] or [""] * len(self.cuts)
        parts += [f"cut={cut.at}:{cut.shape}{keep}" for cut, keep in zip(self.cuts, keeps, strict=True)]
        return " ".join([*parts, f"program={shlex.quote(self.program)}"])

    @property
    def hurts(self) -> bool:
        """Whether more goes wrong in it than the power."""
        return bool(self.faults) or any(word.startswith("x") for word in self.program.split())

    @classmethod
    def parse(cls, line: str) -> Case:
        """The inverse of ``line``; UsageError names the word that does not fit."""
        case = cls(ftl="pagemap", program="")
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"replay line: {error}; see docs/crash.md") from None
        for word in words:
            key, _, value = word.partition("=")
            try:
                case = _with(case, key, value)
            except (ValueError, KeyError):
                raise UsageError(f"replay line: {word!r} is not understood; see docs/crash.md") from None
        if case.preset not in PRESETS:
            raise UsageError(f"replay line: no preset is called {case.preset!r}")
        if case.keeps and case.hurts:
            raise UsageError("replay line: the host's death and other faults are cases of different tiers")
        if case.keeps and len(case.keeps) != len(case.cuts):
            raise UsageError("replay line: some cuts say what the host's disk kept, some do not; all or none would do")
        scheme(case.ftl)
        pages = PRESETS[case.preset].geometry.lpas
        for _, lpa, n in parse_program(case.program):
            if lpa + n > pages:
                raise UsageError(f"replay line: LPA {lpa + n - 1}: {case.preset} has {pages} pages")
        return case


def _with(case: Case, key: str, value: str) -> Case:
    if key == "cut":
        at, shape, keep, *_ = [*value.split(":", 2), "", ""]
        if keep and not KEEPS.fullmatch(keep):
            raise ValueError(keep)
        if not 0 < int(at) < 2**63:
            raise ValueError(at)
        keeps = (*case.keeps, keep) if keep else case.keeps
        return replace(case, cuts=(*case.cuts, Cut(int(at), shape or "before")), keeps=keeps)
    if key == "fail":
        return replace(case, fail=tuple(int(part) for part in value.split(",")))
    if key == "fault":
        return replace(case, faults=(*case.faults, Fault.parse(value)))
    if key == "plp":
        return replace(case, plp=True)
    if key.startswith("opt."):
        return replace(case, options=(*case.options, (key[4:], value)))
    if key == "ftl":
        return replace(case, ftl=value)
    if key == "preset":
        return replace(case, preset=value)
    if key == "program":
        return replace(case, program=value)
    raise KeyError(key)


def parse_program(text: str) -> Iterator[tuple[str, int, int]]:
    """(operation, LPA, pages) of each word; UsageError names a bad one."""
    for word in text.split():
        operation, where = word[0], word[1:]
        first, plus, count = where.partition("+")
        ranged = operation in "wt" and first.isdigit() and (not plus or count.isdigit())
        if not ranged and word not in ("f", "i", "r", *SPOILS):
            raise UsageError(f"program word {word!r}: wL, wL+N, tL, tL+N, f, i, r, {' or '.join(SPOILS)} would do")
        yield (word, 0, 1) if operation == "x" else (operation, int(first or 0), int(count or 1))


@dataclass(slots=True)
class Failure:
    """What went wrong, and the line that replays it."""

    case: Case
    why: str

    @property
    def replay(self) -> str:
        """The command that does it again."""
        return f"flashfs crash replay {shlex.quote(self.case.line())}"

    def __str__(self) -> str:
        return f"{self.why}\n    {self.replay}"
