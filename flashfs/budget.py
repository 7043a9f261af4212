"""A device in a budget of DRAM: what of default size is made smaller, and when the budget is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flashfs._core import Ssd
from flashfs.errors import BindError
from flashfs.text import shown

BUFFER = "write_buffer"  #: its name in the ledger
MOVES = "gc_buffer"  #: in it are the bytes of the ledger that are not counted
BUFFER_LEAST = 1  #: pages


@dataclass(frozen=True, slots=True)
class Cut:
    """A structure of the ledger that is smaller than by default, in bytes."""

    structure: str
    default: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.structure} {shown(self.bytes)} instead of {shown(self.default)}"


def packed(ssd: Ssd) -> dict[str, int]:
    """{structure: bytes} of the ledger, as a controller packs them."""
    return {name: size for name, (size, _) in ssd.dram().items()}


def fit(ssd: Ssd, dram: int | None, ftl: str, *, buffer_given: bool, unused: int = 0) -> list[Cut]:
    """Fit tables and write buffer into ``dram`` bytes (None: no budget), before the device is used.

    A cache whose size was not given gets what the budget leaves. If the budget is smaller than all defaults together,
    cache and write buffer shrink, each in proportion to its default size; a buffer of a ``buffer_given`` size does
    not. ``unused`` bytes of the ledger are not counted. Returns what was made smaller. BindError for a budget below the
    least that works, with that least.
    """
    if dram is None:
        return []
    before = packed(ssd)
    room = dram + unused
    if sum(before.values()) + max(0, ssd.mapping.least_share()) > room:
        least = _shrink(ssd, room, before, buffer_given)
        if least > room:
            tables = packed(ssd)
            tables[MOVES] = tables.get(MOVES, 0) - unused
            raise BindError(_refusal(dram, ftl, least - unused, tables))
    ssd.mapping.limit_tables(room - sum(packed(ssd).values()))
    return _cuts(before, packed(ssd))


def _shrink(ssd: Ssd, room: int, before: Mapping[str, int], buffer_given: bool) -> int:
    """Cache and buffer as small as they can be; then the buffer gets its part of what that leaves of ``room`` bytes.
    Returns the least that works."""
    default, share = ssd.buffer.slots, ssd.mapping.least_share()
    if share < 0:
        ssd.mapping.limit_tables(share)
    if not buffer_given and default > BUFFER_LEAST:
        ssd.shrink_buffer(BUFFER_LEAST)
    least = sum(packed(ssd).values()) + max(0, ssd.mapping.least_share())
    if ssd.buffer.slots < default and least < room:
        cache = -share if share < 0 else before[BUFFER] * (share > 0)  # a map that is partly in flash has no default
        more = (room - least) * default // (before[BUFFER] + cache)
        ssd.shrink_buffer(min(default, BUFFER_LEAST + more))
    return least


def note(ftl: str, dram: int, cuts: Iterable[Cut]) -> list[str]:
    """One line if the budget made something smaller than it is by default, else none."""
    said = ", ".join(map(str, cuts))
    return [f"{ftl}: --dram {shown(dram)}: {said}"] if said else []


def _cuts(before: Mapping[str, int], after: Mapping[str, int]) -> list[Cut]:
    return [Cut(name, size, after[name]) for name, size in before.items() if after.get(name, size) < size]


def _refusal(dram: int, ftl: str, least: int, tables: Mapping[str, int]) -> str:
    largest = max(tables, key=lambda name: tables[name])
    return (f"--dram {dram} is {shown(dram)}: {ftl} needs {least} bytes here at least ({shown(least)}), "
            f"{tables[largest]} of them for {largest}")  # fmt: skip
