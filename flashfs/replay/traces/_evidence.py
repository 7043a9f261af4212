"""Judges from the numbers of a sample which units they are in, and how certain that is.

Three things distinguish units. *Alignment*: bytes are multiples of 512, sectors mostly of 8, and neither holds for
larger units. *Runs*: hosts continue reading and writing where they left off, so in the right units many requests begin
where another ended, and in wrong units hardly any do. *Plausibility*: no request has 0 bytes or more than a GiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashfs.replay.request_source import Int64s

if TYPE_CHECKING:
    from flashfs.replay.traces._format import Format

SURE_LINES = 8  #: fewer lines say nothing about units
HARD, SOFT, RARE, WEAK, AGAINST = 0.05, 0.3, 0.5, 0.65, 0.1  #: factors on the score, by the kind of doubt
CERTAIN, OTHERWISE = 0.9, 0.05  #: a reading is certain from this score on, if no other has more than the second
NEARLY_ALL, MOSTLY, HALF = 0.99, 0.9, 0.5
BYTES_MAX = 1 << 30  #: of a request
EXTENT_MAX = 1 << 47  #: of a disk: 128 TiB
HITS, TIMES = 8, 4  #: so many requests that continue another, and so many times those in the other units, decide
NEAR = 64  #: how many requests back ``Sample.continued`` looks
FEW_SIZES = 4  #: with fewer different sizes, common factors may be chance
UNITS = {1: "bytes", 512: "sectors", 4096: "pages of 4 KiB"}


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a sample: the flag that asks for it, how well it fits (0 to 1), and why it does or does not."""

    flag: str
    score: float
    why: str
    format: Format | None = None  #: None: only a flag makes flashfs read it so
    form: float = 0.0  #: share of the sample that has the form, regardless of its numbers


@dataclass(frozen=True, slots=True)
class Sample:
    """Offsets and lengths as a file has them, and the unit (disk) of each request."""

    address: Int64s
    size: Int64s
    unit: Sequence[object]

    def continued(self, offset_unit: int, length_unit: int, *, apart: bool = True) -> int:
        """How many requests begin where one of the NEAR before ended; of the same disk, if ``apart``. Over larger
        distances, wrong units match too in a regular pattern."""
        units = self.unit if apart else [None] * len(self.unit)
        ended: dict[tuple[object, int], int] = {}
        hits = 0
        rows = zip(units, self.address.tolist(), self.size.tolist(), strict=True)
        for at, (unit, address, size) in enumerate(rows):
            hits += at - ended.get((unit, address * offset_unit), -NEAR - 1) <= NEAR
            ended[unit, address * offset_unit + size * length_unit] = at
        return hits


def share(which: np.ndarray) -> float:
    return float(np.mean(which)) if len(which) else 0.0


def doubts(sample: Sample, offset_unit: int, length_unit: int) -> list[tuple[float, str]]:
    """(factor on the score, reason) for each doubt about these units."""
    address, size = sample.address, sample.size
    if len(address) < SURE_LINES:
        return [(SOFT, f"{len(address)} lines are too few to show the units")]
    out = []
    few = len(np.unique(size)) < FEW_SIZES
    for what, numbers, unit in (("offsets", address, offset_unit), ("sizes", size, length_unit)):
        coarse = share(numbers % 512 == 0)
        if unit == 1 and coarse < NEARLY_ALL:
            out.append((HARD, f"as bytes, {1 - coarse:.0%} of the {what} are no multiples of 512"))
        if unit == 512 and coarse >= NEARLY_ALL:
            out.append((SOFT, f"as sectors, all {what} are multiples of 256 KiB, as if they were bytes"))
        if unit == 4096 and share(numbers % 8 == 0) >= HALF:
            chance = what == "sizes" and few and int(size.min()) > 8 and int(size.max()) <= 256
            left = WEAK if chance else SOFT
            out.append((left, f"as pages, {share(numbers % 8 == 0):.0%} of the {what} are multiples of 8"))
    aligned = share(address * offset_unit % 4096 == 0)
    if length_unit == 512 and aligned >= MOSTLY and share(size % 8 != 0) >= HALF:
        out.append((WEAK, "as sectors, sizes are no multiples of 4 KiB where offsets are"))
    if offset_unit == length_unit == 512 and few and aligned < HALF and share(size % 8 == 0) >= MOSTLY:
        out.append((RARE, "as sectors, offsets are no multiples of 4 KiB where sizes are"))
    if length_unit == 1 and int(size.max()) < 4096:
        out.append((SOFT, "as bytes, no request is of 4 KiB"))
    if length_unit == 4096 and offset_unit == 512 and aligned < HALF:
        out.append((SOFT, "sizes would be whole pages at offsets that are not"))
    if offset_unit == 4096 and length_unit < 4096:
        out.append((RARE, "offsets in pages and sizes in less are rare"))
    if offset_unit == 1 and length_unit == 4096:
        out.append((RARE, "offsets in bytes and sizes in pages are rare"))
    if (large := share(size * length_unit > BYTES_MAX)) > 0.01:
        out.append((HARD, f"{large:.0%} of the requests would be longer than 1 GiB"))
    if int(address.max()) * offset_unit > EXTENT_MAX:
        out.append((SOFT, "the disk would be larger than 128 TiB"))
    return out


def runs_against(sample: Sample, offset_unit: int, length_unit: int) -> str | None:
    """The reason against these units if requests continue each other in other, plausible units and not in these."""
    hits, n = sample.continued(offset_unit, length_unit), len(sample.address)
    enough = min(HITS, max(3, n // 6))
    for other in ((1, 1), (1, 512), (512, 1), (512, 4096), (1, 4096), (4096, 512), (4096, 1)):
        doubtful = math.prod(left for left, _ in doubts(sample, *other)) < SOFT
        if other[0] * length_unit == other[1] * offset_unit or doubtful:
            continue
        more = sample.continued(*other)
        if more >= enough and more > TIMES * hits + (enough == HITS):
            return (
                f"{hits / n:.0%} of the requests begin where another ended, {more / n:.0%} with offsets in "
                f"{UNITS[other[0]]} and sizes in {UNITS[other[1]]}"
            )
    return None


def weigh(sample: Sample, offset_unit: int, length_unit: int) -> tuple[float, list[str]]:
    """(score from 0 to 1, the reasons against) for these units."""
    score, why = 1.0, []
    for left, reason in doubts(sample, offset_unit, length_unit):
        score *= left
        why.append(reason)
    if len(sample.address) >= SURE_LINES and (reason_against := runs_against(sample, offset_unit, length_unit)):
        score *= AGAINST
        why.append(reason_against)
    return score, why


def certainty(best: Reading, others: Iterable[Reading]) -> str:
    """``certain`` or ``likely``, and why, in a line; with the next best reading, if it is possible at all."""
    second = max(others, key=lambda one: one.score, default=Reading("", 0.0, ""))
    if best.score >= CERTAIN and second.score <= OTHERWISE:
        return f"certain: {best.why}"
    beside = f"; next, {second.flag}: {second.why}" if second.score > OTHERWISE else ""
    return f"likely: {best.why}{beside}"
