"""A recovery by step: appendix C for GeckoFTL, section 5.3 and figure 13, middle, for the rest.

Each step is so many reads of spare areas, reads and programs of pages, one after another: the paper has no dies side by
side. Steps that a battery saves are left out, as the paper leaves them out; saving them took place before the power was
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from flashfs.errors import UsageError
from flashfs.formulas.chip import Chip, ceil
from flashfs.text import meant


@dataclass(frozen=True)
class Step:
    """What is recovered, and what that costs."""

    name: str
    about: str
    spare_reads: int = 0
    reads: int = 0
    programs: int = 0

    @property
    def operations(self) -> int:
        return self.spare_reads + self.reads + self.programs

    def seconds(self, chip: Chip) -> float:
        return (self.spare_reads * chip.spare_ns + self.reads * chip.read_ns + self.programs * chip.program_ns) / 1e9


def _blocks(chip: Chip) -> Step:
    return Step("blocks", "the first spare area of every block: what it holds, and since when", spare_reads=chip.blocks)


def _map(chip: Chip) -> Step:
    return Step("gmd", "spare areas of the translation pages: the newest of each", spare_reads=chip.table_pages)


def _pvb(chip: Chip) -> Step:
    return Step("pvb", "all translation pages: what they name is valid", reads=chip.table_pages)


def _log(chip: Chip) -> Step:
    return Step("pvl", "the whole page validity log: chains, erase stamps, counts", reads=chip.log_pages)


def _bounded(chip: Chip) -> Step:
    """Each of the entries that may be dirty may lie on a translation page of its own."""
    pages = min(ceil(chip.dirty * chip.cached), chip.table_pages)
    return Step("cache", "dirty entries back to their translation pages", reads=pages, programs=pages)


def _runs(chip: Chip) -> Step:
    return Step("runs", "spare areas of Gecko's pages: run directories", spare_reads=chip.gecko_pages)


def _buffer(chip: Chip) -> Step:
    return Step("buffer", "translation pages written since Gecko's last flush, beside the versions before",
                reads=int(2 * chip.gecko_entries))  # fmt: skip


def _counts(chip: Chip) -> Step:
    return Step("bvc", "all of Gecko: live pages of each block", reads=chip.gecko_pages)


def _scan(chip: Chip) -> Step:
    return Step("cache", "spare areas of the newest user pages: entries that may be dirty", spare_reads=2 * chip.cached)


Steps = tuple[Callable[[Chip], Step], ...]

OF: dict[str, Steps] = {
    "dftl": (_blocks, _map),
    "lazyftl": (_blocks, _map, _pvb, _bounded),
    "muftl": (_blocks, _map),
    "ibftl": (_blocks, _map, _log, _bounded),
    "geckoftl": (_blocks, _map, _runs, _buffer, _counts, _scan),
}
BATTERY = frozenset({"dftl", "muftl"})  #: saves the cache, and what of validity is in DRAM


def steps(ftl: str, chip: Chip) -> list[Step]:
    """Of that scheme's recovery, in order; UsageError if there is no such."""
    if ftl not in OF:
        raise UsageError(f"--ftl {ftl}{meant(ftl, OF)}: use {', '.join(OF)}")
    return [step(chip) for step in OF[ftl]]


def seconds(ftl: str, chip: Chip) -> float:
    return sum(one.seconds(chip) for one in steps(ftl, chip))


def brute_force(chip: Chip) -> Step:
    """Section 2: the spare area of every page (footnote 4)."""
    return Step("brute force", "the spare area of every page", spare_reads=chip.pages)


def synchronised(chip: Chip) -> Step:
    """Section 2: every dirty entry of a full cache back to its translation page, before the host is served
    (footnote 5)."""
    pages = min(chip.cached, chip.table_pages)
    return Step("synchronised", "dirty entries back to their translation pages", reads=pages, programs=pages)


# --- beside what was measured


class Measured(Protocol):
    """A step of a recovery as flashfs.engine.recovery.recovery reports it."""

    name: str
    spare_reads: int
    reads: int
    programs: int


def beside(
    ftl: str, chip: Chip, measured: Iterable[Measured], same: dict[str, str]
) -> list[tuple[Step, dict[str, Any]]]:
    """[(a step by its formula, what was measured of it)]. ``same`` says of names that a report has which step of the
    model each belongs to; several may be of one. What no step of the model claims comes last, under a step that costs
    nothing, so that nothing that was measured is out of sight."""
    model = steps(ftl, chip)
    unknown = {name for name in same.values() if name not in {one.name for one in model}}
    if unknown:
        raise UsageError(f"{ftl} has no step {', '.join(sorted(unknown))}; use {', '.join(s.name for s in model)}")
    rest = Step("beside", "what the model does not have")
    found: dict[str, dict[str, Any]] = {}
    for one in measured:
        sums = found.setdefault(same.get(one.name, rest.name), {"spare_reads": 0, "reads": 0, "programs": 0, "of": []})
        for name in ("spare_reads", "reads", "programs"):
            sums[name] += getattr(one, name)
        sums["of"].append(one.name)
    nothing = {"spare_reads": 0, "reads": 0, "programs": 0, "of": []}
    return [(step, found.get(step.name, nothing)) for step in (*model, rest)]
