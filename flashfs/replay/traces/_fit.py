"""How a trace of one device is laid on another.

| mode | what happens to an address |
| --- | --- |
| `clip` | nothing; a request that does not lie on the device is rejected |
| `wrap` | modulo the device; a request that would cross its end is moved back |
| `scale` | times device / trace: the whole span of the trace fits, and neighbours may overlap |
| `pack` | grains (a MiB by default) that no read or write touches are left out, the order of the others is kept |

`scale` and `pack` need an extra pass over the whole trace first. No mode changes where in its 4 KiB a request begins,
so aligned requests stay aligned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from flashfs.replay.footprint import expand, merged
from flashfs.replay.request_source import FLUSH, GRAIN, REMAP, TRIM, Int64s, TraceError
from flashfs.replay.traces._format import Lot

MODES = ("clip", "wrap", "scale", "pack")
MIB_SHIFT = 20
LIMIT = 1 << 62  #: bytes that all units together may span
HELD_MAX = 1 << 20  #: grains collected before duplicates are removed
BEYOND, BEFORE = "beyond the device", "before the device"
TOO_LONG = "longer than the device"
NOWHERE = "trims of space that nothing else touches"


@dataclass(slots=True)
class Extent:
    """Where the requests of a trace lie. Its units are laid in a row, each from a whole MiB on."""

    base: Int64s = field(default_factory=lambda: np.zeros(1, np.int64))  #: of each unit, bytes
    end: int = 0  #: bytes
    touched: Int64s = field(default_factory=lambda: np.empty(0, np.int64))  #: grains with reads or writes, rising
    shift: int = MIB_SHIFT  #: log2 of the bytes of a grain

    @staticmethod
    def of(lots: Iterable[Lot], shift: int) -> Extent:
        """The extent of all lots, in which every unit begins at 0. Grains have 2^shift bytes, at most a MiB. TraceError
        if the units span more than LIMIT."""
        units: dict[int, Unit] = {}
        for lot in lots:
            numbers = [0] if lot.unit is None else np.unique(lot.unit).tolist()
            for number in numbers:
                part = lot if lot.unit is None else lot.take(lot.unit == number)
                if len(part.op):
                    units.setdefault(number, Unit()).add(part, shift)
        if not units:
            return Extent()
        ends = [units[number].end if number in units else 0 for number in range(max(units) + 1)]
        room = [-(-end >> MIB_SHIFT) << MIB_SHIFT for end in ends]
        base = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(room, np.int64))])
        if sum(room) > LIMIT:
            raise TraceError("the units of the trace do not fit one after the other within 2^62 bytes: choose one")
        touched = [units[number].all_touched() + (base[number] >> shift) for number in sorted(units)]
        return Extent(base[:-1], int(base[len(ends) - 1]) + ends[-1], np.concatenate(touched), shift)


class Unit:
    """Where the requests of one unit lie."""

    def __init__(self) -> None:
        self.end = 0
        self.touched: list[Int64s] = []
        self.held = 0

    def add(self, lot: Lot, shift: int) -> None:
        self.end = max(self.end, int((lot.offset + lot.length).max()))
        if lot.source is not None:
            self.end = max(self.end, int((lot.source + lot.length)[lot.op == REMAP].max(initial=0)))
        self.touched.append(runs_of(lot, shift))
        self.held += len(self.touched[-1])
        if self.held > HELD_MAX:
            self.touched = [np.unique(np.concatenate(self.touched))]
            self.held = len(self.touched[0]) // 2

    def all_touched(self) -> Int64s:
        """The grains, rising."""
        return np.unique(np.concatenate(self.touched))


def runs_of(lot: Lot, shift: int) -> Int64s:
    """The grains of 2^shift bytes that reads, writes and remaps touch, each once, rising."""
    data = (lot.op != TRIM) & (lot.op != FLUSH)
    first, end = lot.offset[data], lot.offset[data] + lot.length[data]
    if lot.source is not None:
        remaps = lot.op == REMAP
        first = np.concatenate([first, lot.source[remaps]])
        end = np.concatenate([end, lot.source[remaps] + lot.length[remaps]])
    return expand(*merged(first >> shift, ((end - 1) >> shift) + 1)) if len(first) else np.empty(0, np.int64)


class Fit:
    """Lays requests in one mode on a device of ``device_bytes`` (a multiple of 4 KiB)."""

    def __init__(self, mode: str, device_bytes: int, extent: Extent) -> None:
        self.mode = mode
        self.device = device_bytes
        self.extent = extent

    def place(self, lot: Lot) -> list[tuple[str, np.ndarray]]:
        """Move the requests of ``lot`` in place. Returns (reason, array of bool) for those that have no place."""
        data = lot.op != FLUSH
        if self.mode == "pack":
            nowhere = self._pack(lot)
        else:
            nowhere = np.zeros(len(lot.op), bool)
            if self.mode == "wrap":
                lot.offset %= self.device
                if lot.source is not None:
                    lot.source %= self.device
            elif self.mode == "scale" and self.extent.end > self.device:
                self._scale(lot)
        if self.mode in ("wrap", "scale"):
            long = data & (lot.length > self.device)
            self._move_back(lot.offset, lot.length)
            if lot.source is not None:
                self._move_back(lot.source, lot.length)
            return [(TOO_LONG, long)]
        # The sum cannot overflow: requests end before 2^63
        beyond = lot.offset + lot.length > self.device
        if lot.source is not None:
            beyond |= (lot.op == REMAP) & (lot.source + lot.length > self.device)
        return [(NOWHERE, nowhere), (BEYOND, data & ~nowhere & beyond)]

    def _scale(self, lot: Lot) -> None:
        """Scale whole 4 KiB in doubles: exact enough for up to 2^53 of them, and the same on every machine."""
        ratio = (self.device // GRAIN) / -(-self.extent.end // GRAIN)
        within = lot.offset % GRAIN
        page = np.floor((lot.offset // GRAIN) * ratio).astype(np.int64)
        trim = lot.op == TRIM
        if trim.any():  # a trim covers a range, which shrinks like its space
            end = np.floor(((lot.offset[trim] + lot.length[trim]) // GRAIN) * ratio).astype(np.int64)
            lot.length[trim] = np.maximum((end - page[trim]) * GRAIN, GRAIN)
        lot.offset[:] = page * GRAIN + within
        if lot.source is not None:
            page = np.floor((lot.source // GRAIN) * ratio).astype(np.int64)
            lot.source[:] = page * GRAIN + lot.source % GRAIN

    def _move_back(self, offset: Int64s, length: Int64s) -> None:
        """Move requests that cross the end back before it, by whole 4 KiB if there is room for that."""
        last = self.device - length
        over = np.flatnonzero(offset > last)
        moved = last[over] - (last[over] - offset[over]) % GRAIN
        offset[over] = np.where(moved >= 0, moved, last[over])

    def _pack(self, lot: Lot) -> np.ndarray:
        """Replace addresses by their packed ones. Returns which trims have nothing left."""
        trim = lot.op == TRIM
        nowhere = np.zeros(len(lot.op), bool)
        end = self._packed(lot.offset + lot.length) if trim.any() else None
        lot.offset[:] = self._packed(lot.offset)
        if lot.source is not None:
            lot.source[:] = np.where(lot.op == REMAP, self._packed(lot.source), 0)
        if end is not None:
            lot.length[trim] = (end - lot.offset)[trim]
            nowhere = trim & (lot.length <= 0)
        return nowhere

    def _packed(self, address: Int64s) -> Int64s:
        """The packed address; for one between touched grains, the beginning of the next."""
        touched, shift = self.extent.touched, self.extent.shift
        grain = address >> shift
        rank = np.searchsorted(touched, grain)
        if not len(touched):
            return np.zeros_like(address)
        inside = touched[np.minimum(rank, len(touched) - 1)] == grain
        return (rank << shift) + np.where(inside, address & ((1 << shift) - 1), 0)
