"""Describes the requests of a source: counts, footprint, sizes, times, alignment, contents and a picture, in one
pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashfs.replay.footprint import Distinct, PageSets
from flashfs.replay.picture import Picture
from flashfs.replay.request_source import FLUSH, GRAIN, MOVED, OPERATIONS, READ, REMAP, TRIM, WRITE, Batch, Source
from flashfs.replay.traces import Trace

SECTOR = 512
TOUCHED, WRITTEN = 0, 1  #: sets of pages
STEPS = 8  #: of a histogram of times, per power of two: a step is 7 to 13 % wide
UNITS_SHOWN = 32


class Spread:
    """A histogram of nanoseconds in eight steps per power of two; mean and maximum are exact."""

    def __init__(self) -> None:
        self.counts = np.zeros(1 + 64 * STEPS, np.int64)
        self.total = self.n = self.most = 0

    def add(self, values: np.ndarray) -> None:
        if not len(values):
            return
        self.n += len(values)
        self.total += int(values.sum())
        self.most = max(self.most, int(values.max()))
        mantissa, power = np.frexp(values.astype(np.float64))  # value = mantissa * 2^power, mantissa from 0.5 on
        step = np.minimum(((mantissa - 0.5) * (2 * STEPS)).astype(np.int64), STEPS - 1)
        bucket = np.where(values > 0, 1 + (power - 1) * STEPS + step, 0)
        self.counts += np.bincount(bucket, minlength=len(self.counts))

    def quantile(self, q: float) -> float:
        """The upper end of the step in which the quantile lies."""
        bucket = int(np.searchsorted(np.cumsum(self.counts), q * self.n))
        if bucket == 0:
            return 0.0
        power, step = divmod(bucket - 1, STEPS)
        return min(float(self.most), 2.0**power * (1 + (step + 1) / STEPS))

    def figures_us(self) -> dict[str, float] | None:
        if not self.n:
            return None
        return {
            "mean": self.total / self.n / 1000,
            **{f"p{name}": self.quantile(q) / 1000 for name, q in (("50", 0.5), ("90", 0.9), ("99", 0.99))},
            "max": self.most / 1000,
        }


class Survey:
    """Add batch after batch, then ask for ``figures``. Footprints are in pages of ``page_bytes``."""

    def __init__(self, page_bytes: int = 4096) -> None:
        self.page_bytes = page_bytes
        self.requests = np.zeros(len(OPERATIONS), np.int64)
        self.bytes = np.zeros(len(OPERATIONS), np.int64)
        self.pages = np.zeros(len(OPERATIONS), np.int64)
        self.sets = PageSets()
        self.sizes: dict[int, np.ndarray] = {}  #: requests by operation, by the power of two that holds the length
        self.gaps = Spread()
        self.first_ns: int | None = None
        self.last_ns = 0
        self.unaligned = 0
        self.sector = np.zeros(GRAIN // SECTOR + 1, np.int64)  #: reads and writes by where in 4 KiB they begin
        self.end_bytes = 0
        self.written = Distinct()
        self.picture = Picture()

    def add(self, batch: Batch) -> None:
        offset, length = batch.offset.astype(np.int64), batch.length.astype(np.int64)
        self._times(batch.time_ns)
        first = offset // self.page_bytes
        count = np.where(length > 0, (offset + length - 1) // self.page_bytes - first + 1, 0)
        power = np.frexp(np.maximum(length - 1, 0).astype(np.float64))[1]
        for op in np.unique(batch.op).tolist():
            mine = batch.op == op
            self.requests[op] += np.count_nonzero(mine)
            self.bytes[op] += int(length[mine].sum())
            self.pages[op] += int(count[mine].sum())
            if op != FLUSH:
                for size, n in enumerate(np.bincount(power[mine]).tolist()):
                    if n:
                        self.sizes.setdefault(size, np.zeros(len(OPERATIONS), np.int64))[op] += n
            if op in (READ, WRITE, REMAP):
                self.sets.add(WRITTEN if op == WRITE else TOUCHED, first[mine], count[mine])
            if op == REMAP and batch.source is not None:
                self._sources((batch.source[mine] & ~MOVED).astype(np.int64), length[mine])
        self._alignment(batch, offset, length)
        if len(batch):
            self.end_bytes = max(self.end_bytes, int((offset + length).max()))
        if batch.hashes is not None:
            writes = np.repeat(batch.op == WRITE, np.diff(batch.hashes.start))
            self.written.add(batch.hashes.grain[writes])
        self.picture.add(batch)

    def _sources(self, source: np.ndarray, length: np.ndarray) -> None:
        """Count the sources of remaps as touched too."""
        first = source // self.page_bytes
        self.sets.add(TOUCHED, first, (source + length - 1) // self.page_bytes - first + 1)
        self.end_bytes = max(self.end_bytes, int((source + length).max()))

    def _times(self, time_ns: np.ndarray) -> None:
        if not len(time_ns):
            return
        if self.first_ns is None:
            self.first_ns = self.last_ns = int(time_ns[0])
            self.gaps.add(np.diff(time_ns))
        else:
            self.gaps.add(np.diff(time_ns, prepend=self.last_ns))
        self.last_ns = int(time_ns[-1])

    def _alignment(self, batch: Batch, offset: np.ndarray, length: np.ndarray) -> None:
        data = (batch.op == READ) | (batch.op == WRITE)
        ragged = (offset | length) % GRAIN != 0
        self.unaligned += int(np.count_nonzero(ragged & data))
        within = offset[data] % GRAIN
        sector = np.where(within % SECTOR, GRAIN // SECTOR, within // SECTOR)
        self.sector += np.bincount(sector, minlength=len(self.sector))

    def figures(self) -> dict[str, Any]:
        """All figures as plain values; names say the unit."""
        total, writes = int(self.requests.sum()), int(self.pages[WRITE])
        distinct = self.sets.size(WRITTEN)
        footprint = self.sets.size(TOUCHED, WRITTEN)
        data = int(self.requests[READ] + self.requests[WRITE])
        duration_s = (self.last_ns - (self.first_ns or 0)) / 1e9
        return {
            "requests": total,
            "operations": [
                {
                    "operation": name,
                    "requests": int(self.requests[op]),
                    "share": round(int(self.requests[op]) / total, 6) if total else 0.0,
                    "bytes": int(self.bytes[op]),
                    "pages": int(self.pages[op]),
                    "mean_bytes": round(int(self.bytes[op]) / int(self.requests[op]), 1),
                }
                for op, name in enumerate(OPERATIONS)
                if self.requests[op]
            ],
            "page_bytes": self.page_bytes,
            "footprint_pages": footprint,
            "footprint_bytes": footprint * self.page_bytes,
            "distinct_written_pages": distinct,
            "overwrite_factor": round(writes / distinct, 4) if distinct else None,
            "span_bytes": self.end_bytes,
            "unaligned_requests": self.unaligned,
            "unaligned_share": round(self.unaligned / data, 6) if data else 0.0,
            "begin_in_4k": self._begins(),
            "duration_s": duration_s,
            "requests_per_s": round(total / duration_s, 3) if duration_s > 0 else None,
            "interarrival_us": self.gaps.figures_us() if self.last_ns else None,
            "content": self._content(),
            "sizes": [
                {"up_to_bytes": 1 << power, **{OPERATIONS[op]: int(counts[op]) for op in (READ, WRITE, TRIM)}}
                for power, counts in sorted(self.sizes.items())
            ],
        }

    def _begins(self) -> dict[str, int]:
        """Reads and writes by the sector of a 4 KiB page at which they begin."""
        names = [*(str(sector) for sector in range(GRAIN // SECTOR)), "between sectors"]
        return {name: int(n) for name, n in zip(names, self.sector, strict=True) if n}

    def _content(self) -> dict[str, Any] | None:
        if not self.written.total:
            return None
        distinct = self.written.size()
        return {
            "hashed_4k_written": self.written.total,
            "distinct": distinct,
            "duplicate_share": round(1 - distinct / self.written.total, 6),
        }


def survey(source: Source, page_bytes: int = 4096, *, rows: int = 20, columns: int = 96) -> dict[str, Any]:
    """Everything about ``source``: its description, its figures, what was not replayed, and a picture of at most
    ``rows`` x ``columns`` cells."""
    found = Survey(page_bytes)
    for batch in source.batches():
        found.add(batch)
    units = source.units if isinstance(source, Trace) else {}
    return {
        "source": source.describe(),
        "hash": source.hash(),
        "timed": source.timed,
        "qd": source.qd,
        **found.figures(),
        "units": dict(list(units.items())[:UNITS_SHOWN]),
        "units_total": len(units),
        "rejected": source.rejected.rows(),
        "adjusted": source.adjusted.rows(),
        "skipped": dict(source.skipped),
        "picture": found.picture.drawn(rows, columns),
    }
