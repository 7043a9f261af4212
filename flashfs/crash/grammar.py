"""The words of a program: what a host asks of a device, in a text such as ``w3 w4 f t3 w3+4 i r w5``.

    wL  wL+N       write page L; N pages from L on, in one request
    wL+N/S         N requests of one page each: L, L + S, L + 2S and so on
    wL.S+N         N sectors of 512 bytes, from sector S of page L on; wL:B+N: N bytes, from byte B of page L on
    tL ...         trim, in all these forms
    cL-M+N         copy N pages from L on to M on; cL.S-M.S+N sectors, cL:B-M:B+N bytes
    pL-M+N         remap, in all these forms; the ranges may overlap.   mL-M+N   move: a remap that empties L
    eL-M+N         write at M what L holds, in all these forms: duplicate content
    R              read everything: it must be what was written last
    f              flush                 i     idle: no request, but housekeeping may run
    r              clean unmount and mount again

    xc    a page of the newest checkpoint is spoilt, xd its descriptor, xt a page of trims, xb the boot hints,
    xh    the first page of a block with live pages, xp a live page, xn a live page of the map or of validity,
    xm    many live pages at once, and the newest checkpoint; after each of these the power goes
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from flashfs.errors import UsageError

SECTOR = 512
UNITS = {"": 0, ".": SECTOR, ":": 1}
CARRIES = ("c", "p", "m", "e")  # words with a source and a target

#: words that damage the flash in ways that no power cut does
SPOILS = ("xc", "xd", "xt", "xb", "xh", "xp", "xm", "xn")
BARE = ("f", "i", "r", "R", *SPOILS)

_PLACE = r"(?P<lpa>\d+)(?:(?P<unit>[.:])(?P<at>\d+))?"
_REQUEST = re.compile(rf"(?P<op>[wt]){_PLACE}(?:\+(?P<n>\d+))?(?:/(?P<apart>\d+))?")
_COPY = re.compile(rf"(?P<op>[cpme]){_PLACE}-(?P<to>\d+)(?:(?P<to_unit>[.:])(?P<to_at>\d+))?\+(?P<n>\d+)")


class Step(NamedTuple):
    """One word. ``n`` pages from ``lpa`` on; with a ``unit`` of 512 or 1 bytes, ``n`` units from unit ``at`` of the
    page on. The target of a copy or remap is ``to``, from unit ``to_at``. ``apart``: ``n`` requests of one page each,
    so many pages apart.
    """

    operation: str
    lpa: int = 0
    n: int = 1
    unit: int = 0
    at: int = 0
    to: int = 0
    to_at: int = 0
    apart: int = 0

    @property
    def whole(self) -> bool:
        """Whether it is one request for whole pages, or none: (operation, LPA, pages) describes it fully."""
        return not (self.unit or self.apart or self.operation in CARRIES)

    def spans(self, page_bytes: int) -> Iterator[tuple[int, int]]:
        """(offset, bytes) of each of its requests; of a copy, the source."""
        if self.apart:
            yield from (((self.lpa + i * self.apart) * page_bytes, page_bytes) for i in range(self.n))
        elif self.operation in ("w", "t", *CARRIES):
            yield self.lpa * page_bytes + self.at * self.unit, self.n * (self.unit or page_bytes)

    def target(self, page_bytes: int) -> int:
        """The byte offset of a copy's target."""
        return self.to * page_bytes + self.to_at * self.unit

    def overlaps(self, page_bytes: int) -> bool:
        """Whether it is a copy whose source and target overlap, which has no defined result."""
        if self.operation != "c":
            return False
        return any(abs(self.target(page_bytes) - offset) < size for offset, size in self.spans(page_bytes))

    def end(self, page_bytes: int) -> int:
        """The offset after the last byte that it touches."""
        ends = [offset + size for offset, size in self.spans(page_bytes)]
        if self.operation in CARRIES:
            ends += [self.target(page_bytes) + size for _, size in self.spans(page_bytes)]
        return max(ends, default=0)

    def pages(self, page_bytes: int) -> set[int]:
        """The LPAs that it changes, whole or in part."""
        spans = [] if self.operation != "m" and self.operation in CARRIES else list(self.spans(page_bytes))
        if self.operation in CARRIES:
            spans += [(self.target(page_bytes), size) for _, size in self.spans(page_bytes)]
        return {lpa for offset, size in spans for lpa in range(offset // page_bytes, -(-(offset + size) // page_bytes))}


def parse_program(text: str) -> Iterator[Step]:
    """The step of each word; UsageError names a bad word."""
    for word in text.split():
        if word in BARE:
            yield Step(word)
            continue
        step = _parse(word)
        if step is None:
            raise UsageError(
                f"program word {word!r}: use wL, wL+N, wL+N/S, wL.S+N, wL:B+N, the same with t, cL-M+N, the same with "
                f"p, m and e, R, f, i, r, {' or '.join(SPOILS)}"
            )
        yield step


@lru_cache(1 << 13)
def _parse(word: str) -> Step | None:
    """The step of a word that names pages; None if it is malformed."""
    found = _REQUEST.fullmatch(word) or _COPY.fullmatch(word)
    if found is None:
        return None
    part = {name: value for name, value in found.groupdict().items() if value is not None}
    number = {name: int(part.get(name, 0)) for name in ("lpa", "at", "to", "to_at", "apart")}
    step = Step(part["op"], n=int(part.get("n", 1)), unit=UNITS[part.get("unit", "")], **number)
    bad_comb = "apart" in part and (step.apart == 0 or step.unit)
    bad_copy = step.operation in CARRIES and part.get("unit") != part.get("to_unit")
    return None if step.n == 0 or bad_comb or bad_copy else step
