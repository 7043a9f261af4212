"""One case: a chip, a scheme, a program of host requests, cuts; and the replay line that encodes all this.

A program is a text such as ``w3 w4 f t3 w3+4 i r w5``; its words are in flashfs/crash/grammar.py.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from flashfs.crash.grammar import SPOILS, parse_program
from flashfs.errors import UsageError
from flashfs.fit import sized
from flashfs.ftl import Scheme, scheme
from flashfs.sizing.defaults import DEFAULT_FTL
from nandimg import PRESETS, Cut, Fault, Geometry, GeometryError

__all__ = ["KEEPS", "SPOILS", "Case", "Failure", "parse_program"]

#: which of the image's sectors that changed since the last sync are on disk after the host dies with the power: all,
#: none, those of one region alone, the first or the last in the order of writing, all but those of operations A to B,
#: a random choice (coin); ``+marks``: what the chip wrote to its block table after that sync is on disk too
KEEPS = re.compile(r"(all|none|tables|data|(first|last|coin)\.\d+|but\.\d+-\d+)(\+marks)?")
DRAM_MOST = 1 << 40
#: ends the message for a bad line
LINE = "a line looks like: ftl=slimftl preset=tiny-16 cut=5:prefix program='w3 w4 f t3'"
#: in place of a preset's name: the chip that `flashfs create --size` makes, of 1 to 64 MiB
CREATED = re.compile("create-([1-9]|[1-5][0-9]|6[0-4])M")
#: fields of the geometry that may differ from the preset's
CHIP = ("blocks", "lpas", "pages_per_block", "paired_pages", "dies")
#: settings that are no options but may also change at each mount
OTHERS = {"plp": re.compile("[01]"), "dram": re.compile(r"\d{1,12}"), "sync": re.compile("flush|none")}


class Later(NamedTuple):
    """A setting that changes from the ``mount``-th mount on (0: when it was bound; interrupted recoveries count): an
    option, or ``plp`` (0 or 1), ``dram`` (bytes; 0: no budget) or ``sync`` (flush or none)."""

    mount: int
    name: str
    value: str

    def check(self, of: Scheme) -> None:
        """UsageError unless the setting exists, may change between mounts, and may have this value."""
        options = {option.name: option for option in of.all_options()}
        if self.name in OTHERS:
            if not OTHERS[self.name].fullmatch(self.value):
                raise UsageError(f"replay line: opt@{self.mount}.{self.name}={self.value}: that is no {self.name}")
        elif self.name not in options or options[self.name].fixed:
            raise UsageError(f"replay line: opt@{self.mount}.{self.name}: {of.name} has no such option that may change")
        else:
            options[self.name].parse(self.value)


def geometry_named(name: str) -> Geometry:
    """The geometry of a preset, or of a chip that was created by its size; KeyError for any other name."""
    return PRESETS[name].geometry if name in PRESETS else created(name)


@lru_cache
def created(name: str) -> Geometry:
    """The geometry of a chip whose name matches CREATED; KeyError for any other name."""
    found = CREATED.fullmatch(name)
    if found is None:
        raise KeyError(name)
    return sized(int(found[1]) << 20, {"nvram_bytes": 1 << 16})


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that one run needs. ``cuts`` are for one life each: power goes at the first cut's operation, then,
    counted from the next power-up, at the second's, and so on. ``fail`` are operations that the chip reports failed;
    ``faults`` are what else goes wrong (nandimg.faults). ``keeps``, one for each cut, make it a case of the host tier:
    the host dies at each cut, and ``keeps`` says how much of the unsynced data is on disk. The syncs numbered
    ``unsynced``, counted over all lives, fail, and the host dies after each. ``dram`` is a budget in bytes, 0 for none.
    ``later``: what changes from mount to mount. ``chip``: geometry fields that replace the preset's. ``fills``: the
    least run of pages of one fill that a checkpoint leaves out; 0: the engine's default."""

    ftl: str
    program: str
    preset: str = "tiny-8"
    cuts: tuple[Cut, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    fail: tuple[int, ...] = ()
    plp: bool = False
    keeps: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    dram: int = 0
    unsynced: tuple[int, ...] = ()
    later: tuple[Later, ...] = ()
    chip: tuple[tuple[str, int], ...] = ()
    fills: int = 0

    @property
    def geometry(self) -> Geometry:
        """The preset's geometry with the fields of ``chip``."""
        return replace(geometry_named(self.preset), **dict(self.chip))

    def settings(self) -> list[str]:
        """name=value of each option at the first mount, and the names of what else differs from the usual."""
        given = dict(self.options)
        of = [f"{one.name}={given.get(one.name, one.default)}" for one in scheme(self.ftl).all_options()]
        chip = [f"chip.{name}" for name, _ in self.chip]
        later = [f"later.{one.name}" for one in self.later]
        return [*of, *chip, *dict.fromkeys(later), *["plp"] * self.plp, *["dram"] * bool(self.dram),
                *["fills"] * bool(self.fills)]

    def line(self) -> str:
        """The replay line."""
        parts = [f"ftl={shlex.quote(self.ftl)}", f"preset={self.preset}"]
        parts += [f"chip.{name}={value}" for name, value in self.chip]
        parts += [f"opt.{name}={value}" for name, value in self.options]
        parts += [f"opt@{mount}.{name}={value}" for mount, name, value in self.later]
        parts += ["plp"] if self.plp else []
        parts += [f"dram={self.dram}"] if self.dram else []
        parts += [f"fills={self.fills}"] if self.fills else []
        parts += [f"fail={','.join(map(str, self.fail))}"] if self.fail else []
        parts += [f"unsynced={','.join(map(str, self.unsynced))}"] if self.unsynced else []
        parts += [f"fault={fault}" for fault in self.faults]
        keeps = [f":{keep}" for keep in self.keeps] or [""] * len(self.cuts)
        parts += [f"cut={shown(cut)}{keep}" for cut, keep in zip(self.cuts, keeps, strict=True)]
        return " ".join([*parts, f"program={shlex.quote(self.program)}"])

    @property
    def hurts(self) -> bool:
        """Whether it has faults other than power cuts."""
        return bool(self.faults) or any(word.startswith("x") for word in self.program.split())

    @property
    def on_disk(self) -> bool:
        """Whether it is a case of the host tier, whose chip is a file."""
        return bool(self.keeps or self.unsynced)

    @classmethod
    def parse(cls, line: str) -> Case:
        """The inverse of ``line``; UsageError names the word that does not fit."""
        case, has_program = cls(ftl=DEFAULT_FTL, program=""), False
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"replay line: {error}; {LINE}") from None
        for word in words:
            key, _, value = word.partition("=")
            has_program = has_program or key == "program"
            try:
                case = _with(case, key, value)
            except (ValueError, KeyError):
                raise UsageError(f"replay line: {word!r} is not understood; {LINE}") from None
        if not has_program:
            raise UsageError(f"replay line: it has no program; {LINE}")
        if case.preset not in PRESETS and not CREATED.fullmatch(case.preset):
            raise UsageError(f"replay line: no preset is called {case.preset!r}")
        if case.on_disk and case.hurts:
            raise UsageError("replay line: the host's death and other faults are cases of different tiers")
        if case.keeps and len(case.keeps) != len(case.cuts):
            raise UsageError("replay line: some cuts say what the host's disk kept, some do not; use all or none")
        of = scheme(case.ftl)
        for one in case.later:
            one.check(of)
        try:
            geometry = case.geometry
        except GeometryError as error:
            raise UsageError(f"replay line: {error}") from None
        for step in parse_program(case.program):
            if step.overlaps(geometry.page_bytes):
                raise UsageError(f"replay line: a copy of LPA {step.lpa} onto itself")
            if step.end(geometry.page_bytes) > geometry.logical_bytes:
                last = (step.end(geometry.page_bytes) - 1) // geometry.page_bytes
                raise UsageError(f"replay line: LPA {last}: {case.preset} has {geometry.lpas} pages")
        return case


def shown(cut: Cut) -> str:
    """A cut as a replay line has it: AT:SHAPE, or AT:SHAPE.WORDS if it limits the NVRAM words that are kept."""
    return f"{cut.at}:{cut.shape}" + (f".{cut.words}" if cut.words is not None else "")


def _with(case: Case, key: str, value: str) -> Case:
    if key == "cut":
        at, shape, keep, *_ = [*value.split(":", 2), "", ""]
        if keep and not KEEPS.fullmatch(keep):
            raise ValueError(keep)
        if not 0 < int(at) < 2**63:
            raise ValueError(at)
        keeps = (*case.keeps, keep) if keep else case.keeps
        shape, dot, kept = shape.partition(".")
        cut = Cut(int(at), shape or "before", int(kept) if dot else None)
        return replace(case, cuts=(*case.cuts, cut), keeps=keeps)
    if key in ("fail", "unsynced"):
        numbers = tuple(int(part) for part in value.split(","))
        return replace(case, fail=numbers) if key == "fail" else replace(case, unsynced=numbers)
    if key == "dram":
        if not 0 <= int(value) <= DRAM_MOST:
            raise ValueError(value)
        return replace(case, dram=int(value))
    if key == "fills":
        if not 0 <= int(value) < 2**32:
            raise ValueError(value)
        return replace(case, fills=int(value))
    if key == "fault":
        return replace(case, faults=(*case.faults, Fault.parse(value)))
    if key == "plp":
        return replace(case, plp=True)
    if key.startswith("opt@"):
        mount, _, name = key[4:].partition(".")
        if not (0 <= int(mount) < 2**31 and name):
            raise ValueError(key)
        return replace(case, later=(*case.later, Later(int(mount), name, value)))
    if key.startswith("opt."):
        return replace(case, options=(*case.options, (key[4:], value)))
    if key.startswith("chip."):
        if key[5:] not in CHIP:
            raise KeyError(key)
        return replace(case, chip=(*case.chip, (key[5:], int(value))))
    if key == "ftl":
        return replace(case, ftl=value)
    if key == "preset":
        return replace(case, preset=value)
    if key == "program":
        return replace(case, program=value)
    raise KeyError(key)


@dataclass(slots=True)
class Failure:
    """What went wrong, and the line that replays it."""

    case: Case
    why: str

    @property
    def replay(self) -> str:
        """The command that replays it."""
        return f"flashfs crash replay {shlex.quote(self.case.line())}"

    def __str__(self) -> str:
        return f"{self.why}\n    {self.replay}"
