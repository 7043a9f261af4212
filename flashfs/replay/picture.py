"""A picture of requests: addresses over time, in a grid whose cells double in size when an axis outgrows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE, Batch, Int64s

COLUMNS, ROWS = 256, 128
KINDS = (READ, WRITE, TRIM)
SHADES = " ·░▒▓█"


class Grid:
    """Bytes by kind, row (address) and column (time, or number of the request)."""

    def __init__(self, row_unit: int, column_unit: int) -> None:
        self.cells = np.zeros((len(KINDS), ROWS, COLUMNS))
        self.row_unit, self.column_unit = row_unit, column_unit
        self.row_end = self.column_end = 0  #: the highest values seen, and one more

    def add(self, kind: int, row: Int64s, column: Int64s, weight: Int64s) -> None:
        """Add ``weight`` bytes at these rows and columns, which may be of any size: the grid folds as needed."""
        self.row_end = max(self.row_end, int(row.max()) + 1)
        self.column_end = max(self.column_end, int(column.max()) + 1)
        while self.row_end > ROWS * self.row_unit:
            self.cells, self.row_unit = folded(self.cells, 1), self.row_unit * 2
        while self.column_end > COLUMNS * self.column_unit:
            self.cells, self.column_unit = folded(self.cells, 2), self.column_unit * 2
        cell = row // self.row_unit * COLUMNS + column // self.column_unit
        self.cells[kind] += np.bincount(cell, weight, minlength=ROWS * COLUMNS).reshape(ROWS, COLUMNS)

    def shown(self, rows: int, columns: int) -> np.ndarray:
        """The part in use, in at most ``rows`` rows and ``columns`` columns: [kind, row, column], row 0 the lowest
        addresses."""
        used_rows = max(1, -(-self.row_end // self.row_unit))
        used_columns = max(1, -(-self.column_end // self.column_unit))
        out = self.cells[:, :used_rows, :used_columns]
        for axis, most in ((1, rows), (2, columns)):
            together = -(-out.shape[axis] // most)  # the same for each cell, so that cells compare
            out = np.add.reduceat(out, np.arange(0, out.shape[axis], together), axis=axis)
        return out


def folded(cells: np.ndarray, axis: int) -> np.ndarray:
    """Neighbours along ``axis`` added in pairs, then as many empty cells, so that the shape stays."""
    half = np.add.reduceat(cells, np.arange(0, cells.shape[axis], 2), axis=axis)
    return np.concatenate([half, np.zeros_like(half)], axis=axis)


class Picture:
    """Two grids: over time, and over the number of the request. Only the end shows whether the times mean anything."""

    def __init__(self) -> None:
        self._over_time = Grid(4096, 1)
        self._over_order = Grid(4096, 1)
        self._requests = 0

    def add(self, batch: Batch) -> None:
        number = np.arange(self._requests, self._requests + len(batch), dtype=np.int64)
        self._requests += len(batch)
        for kind in KINDS:
            mine = np.flatnonzero((batch.op == kind) & (batch.op != FLUSH))
            if len(mine):
                row, weight = batch.offset[mine].astype(np.int64), batch.length[mine].astype(np.int64)
                self._over_time.add(kind, row, batch.time_ns[mine], weight)
                self._over_order.add(kind, row, number[mine], weight)

    def drawn(self, rows: int = 20, columns: int = 96) -> dict[str, Any]:
        """The more telling grid as plain values: ``axis``, its length (seconds, or requests), the bytes that its rows
        cover, and cells of bytes by operation."""
        time, order = (grid.shown(rows, columns) for grid in (self._over_time, self._over_order))
        # If a few moments hold nearly everything, or there are no times, the order of requests shows more
        over_time = busy(time) * 4 >= busy(order) and self._over_time.column_end > COLUMNS
        grid = self._over_time if over_time else self._over_order
        cells = time if over_time else order
        return {
            "axis": "time" if over_time else "requests",
            "length": (grid.column_end - 1) / 1e9 if over_time else grid.column_end,
            "bytes": grid.row_end,
            **{name: cells[kind].astype(np.int64).tolist() for kind, name in enumerate(("read", "write", "trim"))},
        }


def busy(cells: np.ndarray) -> int:
    """The number of columns that are not empty."""
    return int(np.count_nonzero(cells.sum(axis=(0, 1))))


def shades(drawn: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """Rows from the highest addresses down, each cell as (shade, kind): kind is read, write, trim, both or empty. The
    shade is the logarithm of the bytes, so that a page is visible beside a gigabyte."""
    read, write, trim = (np.array(drawn[name], float) for name in ("read", "write", "trim"))
    total = read + write + trim
    top = total.max(initial=0)
    if top == 0:
        return []
    low = total[total > 0].min()
    level = np.zeros(total.shape, int)
    some = total > 0
    span = np.log2(top / low)
    level[some] = 1 + np.rint((len(SHADES) - 2) * np.log2(total[some] / low) / span) if span else len(SHADES) - 1
    kind = np.where(write > 2 * read, "write", np.where(read > 2 * write, "read", "both"))
    kind = np.where(trim > 2 * (read + write), "trim", kind)
    kind = np.where(some, kind, "")
    rows: Sequence[int] = range(total.shape[0] - 1, -1, -1)
    return [[(SHADES[level[row, at]], str(kind[row, at])) for at in range(total.shape[1])] for row in rows]
