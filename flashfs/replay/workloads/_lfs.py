"""A log-structured file system like F2FS: blocks are never written in place but appended to segments, one or six of
which are open; segments with many dead blocks are cleaned by moving their valid blocks.

Blocks are numbered, and every segment knows which it holds. A batch of changed blocks is written back together, each
once; changed node blocks, one per A_NODE data blocks, follow at checkpoints, which flush. A cleaned segment can be
written again after the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from flashfs.errors import UsageError
from flashfs.replay.request_source import FLUSH, GRAIN, READ, REMAP, TRIM, WRITE, Int64s
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Parameter, Unreadable, count, flag, share, size, word
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import Columns, Program, joined, rows
from flashfs.replay.workloads._random import Stream
from flashfs.replay.workloads._wal import woven

A_NODE = 1018  #: data blocks that a node block points at, as in F2FS
SEGMENT, SEGMENTS = 2 << 20, 256  #: default bytes of a segment; less if the span would have fewer than SEGMENTS
ROUND = 4  #: segments that are cleaned between two checkpoints, at most
HOT, WARM, COLD, HOT_NODES, NODES, COLD_NODES = range(6)  #: logs; the cold ones are for blocks that cleaning moves


def _logs(text: str) -> int:
    if text not in ("1", "6"):
        raise Unreadable("1 or 6")
    return int(text)


class Lfs(Program):
    name = "lfs"
    sources = True
    about = "a log-structured file system: appends to segments, cleaning that remaps or copies; as F2FS"
    parameters = (
        Parameter("util", share, 0.7, "share of the span that is valid blocks"),
        Parameter("segment", size, None, "bytes of a segment; default: 2 MiB, or a 256th of the span if that is less"),
        Parameter("logs", _logs, 6, "open segments: 1; or 6, for data and nodes that are hot, others, and moved"),
        Parameter("policy", word("greedy", "cost-benefit"), "greedy", "which segment is cleaned"),
        Parameter("remap", flag, True, "1: cleaning remaps valid blocks; 0: it reads and writes them"),
        Parameter("hot", share, 0.2, "share of the blocks that are hot"),
        Parameter("heat", share, 0.8, "share of the changes that go there"),
        Parameter("batch", size, 512 << 10, "bytes of changed blocks that are written back together"),
        Parameter("checkpoint", size, 16 << 20, "bytes of changes between checkpoints; each ends with a flush"),
        Parameter("nodes", flag, True, "1: blocks of nodes are written too"),
        Parameter("make", flag, True, "1: the blocks are written first; 0: the device has them"),
        Parameter("discard", flag, True, "1: a cleaned segment is trimmed; 0: it is not, and remaps are moves"),
        Parameter("iosize", size, 1 << 20, "bytes of a request at most"),
        Parameter("clean_all", count, None, "changed blocks after which every segment with dead ones is cleaned once"),
    )

    def __init__(self, span: Span) -> None:
        values = span.values
        segment = values["segment"] or min(SEGMENT, span.bytes // SEGMENTS)
        self._each = max(1, segment // GRAIN)  # pages
        self._segments = span.bytes // GRAIN // self._each
        self._most = max(1, values["iosize"] // GRAIN)
        self._batch = max(1, values["batch"] // GRAIN)
        live = int(values["util"] * self._segments * self._each)
        self._nodes = -(-live // (A_NODE + 1)) if values["nodes"] else 0
        self._blocks = live - self._nodes
        # segments for a batch and two checkpoints, and the open ones
        self._low = values["logs"] + 2 + -(-self._batch // self._each) + 2 * -(-self._nodes // self._each)
        room = (self._segments - self._low - ROUND - values["logs"]) * self._each
        if self._blocks < 1 or live > room:
            most = max(0.0, room / max(1, self._segments * self._each))
            raise UsageError(
                f"lfs: util={values['util']} of {self._segments} segments: use {most:.2f} at most, which leaves room "
                "to clean, or smaller segments"
            )
        self._hot = int(values["hot"] * self._blocks)
        seed = values["seed"]
        self._kind, self._which = Stream(seed, _random.OP), Stream(seed, _random.PLACE)
        self._at = np.full(self._blocks + self._nodes, -1, np.int64)  # page of each block, nodes after data
        self._owner = np.full(self._segments * self._each, -1, np.int64)  # block of each page
        self._valid = np.zeros(self._segments, np.int64)
        self._changed = np.zeros(self._segments, np.int64)  # when a block was last put there, counted in batches
        self._free = np.ones(self._segments, bool)
        self._open: dict[int, tuple[int, int]] = {}  # of a log: (its segment, the next page in it)
        self._dirty = np.zeros(self._nodes, bool)
        self._clock = 0
        super().__init__(span)
        self.moves = bool(values["remap"] and not values["discard"])

    def requests(self) -> Iterator[Columns]:
        values = self.span.values
        made = self._fill()
        if values["make"]:
            yield made
        since, limit = 0, max(1, values["checkpoint"] // GRAIN)
        left = values["clean_all"] or 0
        while True:
            self._clock += 1
            changed = self._drawn()
            out = [self._written(changed)]
            since += len(changed)
            if since >= limit:
                out.append(self._checkpoint())
                since = 0
            while int(self._free.sum()) < self._low:
                out.append(self._clean())
                since = 0
            yield joined(out)
            if left:
                left = max(0, left - len(changed))
                if not left:
                    yield from self._clean_all()

    def _clean_all(self) -> Iterator[Columns]:
        """Clean every segment that has dead blocks now, those with the most first. Changed nodes take segments
        meanwhile, so when few are free, segments that the policy chooses are cleaned in between."""
        every = [int(one) for one in np.argsort(self._valid, kind="stable") if self._may_go()[one]]
        for at in range(0, len(every), ROUND):
            while int(self._free.sum()) < self._low:
                yield self._clean()
            may = self._may_go()
            these = [one for one in every[at : at + ROUND] if may[one]]
            if these:
                yield self._clean(these)

    def _fill(self) -> Columns:
        """Write every block once, then a checkpoint."""
        parts = []
        for first in range(0, self._blocks, self._batch):
            parts.append(self._written(np.arange(first, min(self._blocks, first + self._batch), dtype=np.int64)))
        return joined([*parts, self._checkpoint()])

    def _drawn(self) -> Int64s:
        """The blocks of the next batch of changes, each once, rising."""
        hot = self._kind.chance(self.span.values["heat"], self._batch) if self._hot else np.zeros(self._batch, bool)
        if self._hot == self._blocks:
            hot[:] = True
        first = np.where(hot, 0, self._hot)
        count = np.where(hot, self._hot, self._blocks - self._hot)
        out: Int64s = np.unique(first + self._which.below(count, self._batch))
        return out

    def _written(self, blocks: Int64s) -> Columns:
        """Append data blocks to the hot and the warm log."""
        if self._nodes:
            self._dirty[blocks // A_NODE] = True
        hot = blocks < self._hot
        return joined([self._runs(self._append(log, part)) for log, part in ((HOT, blocks[hot]), (WARM, blocks[~hot]))])

    def _checkpoint(self) -> Columns:
        """Write changed nodes, then flush."""
        dirty = np.flatnonzero(self._dirty)
        self._dirty[:] = False
        hot = dirty * A_NODE < self._hot
        parts = [
            self._runs(self._append(log, self._blocks + part))
            for log, part in ((HOT_NODES, dirty[hot]), (NODES, dirty[~hot]))
        ]
        none = np.zeros(1, np.int64)
        return joined([*parts, rows(FLUSH, none, none)])

    def _append(self, log: int, blocks: Int64s) -> Int64s:
        """Append blocks to a log, which makes their old pages dead. Returns their new pages."""
        log = log if self.span.values["logs"] == 6 else 0
        old = self._at[blocks]
        old = old[old >= 0]
        self._owner[old] = -1
        np.subtract.at(self._valid, old // self._each, 1)
        parts: list[Int64s] = []
        left = len(blocks)
        while left:
            segment, used = self._open.get(log, (-1, self._each))
            if used == self._each:
                segment, used = int(self._free.argmax()), 0
                if not self._free[segment]:
                    raise UsageError("lfs: no segment is free: use a lower util")
                self._free[segment] = False
            n = min(left, self._each - used)
            parts.append(np.arange(n, dtype=np.int64) + segment * self._each + used)
            self._open[log] = segment, used + n
            self._valid[segment] += n
            self._changed[segment] = self._clock
            left -= n
        pages = np.concatenate(parts) if parts else np.empty(0, np.int64)
        self._at[blocks] = pages
        self._owner[pages] = blocks
        return pages

    def _runs(self, pages: Int64s) -> Columns:
        """Writes of these pages, a request for each run."""
        first, count = self._cut(pages, pages)
        return rows(WRITE, pages[first] * GRAIN, count * GRAIN)

    def _cut(self, target: Int64s, source: Int64s) -> tuple[Int64s, Int64s]:
        """Runs that are consecutive in both: (index of the first, pages) of each. None is longer than a request."""
        n = len(target)
        if not n:
            return target, target
        breaks = np.ones(n, bool)
        breaks[1:] = (np.diff(target) != 1) | (np.diff(source) != 1)
        begins = np.flatnonzero(breaks)
        within = np.arange(n) - np.repeat(begins, np.diff(np.append(begins, n)))
        first = np.flatnonzero(within % self._most == 0)
        return first, np.diff(np.append(first, n))

    # --- cleaning

    def _clean(self, these: list[int] | None = None) -> Columns:
        """Empty ``these`` segments, or some that the policy chooses; a checkpoint then frees them. UsageError if there
        is nothing to clean."""
        victims: list[int] = these or []
        out = [self._emptied(victim) for victim in victims]
        needed = 2 + -(-2 * self._nodes // self._each)  # for moved blocks and the checkpoint
        while these is None and len(victims) < ROUND and (not victims or int(self._free.sum()) > needed):
            victim = self._victim(victims)
            if victim is None:
                break
            victims.append(victim)
            out.append(self._emptied(victim))
        if not victims:
            raise UsageError("lfs: no segment has a dead block: use a lower util")
        out.append(self._checkpoint())
        self._free[victims] = True
        if self.span.values["discard"]:
            first = np.array(victims, np.int64) * self._each * GRAIN
            out.append(rows(TRIM, first, np.full(len(victims), self._each * GRAIN)))
        return joined(out)

    def _may_go(self) -> npt.NDArray[np.bool_]:
        """Which segments are in use, not open, and have dead blocks."""
        may: npt.NDArray[np.bool_] = ~self._free & (self._valid < self._each)
        may[[segment for segment, _ in self._open.values()]] = False
        return may

    def _victim(self, taken: list[int]) -> int | None:
        may = self._may_go()
        may[taken] = False
        if not may.any():
            return None
        if self.span.values["policy"] == "greedy":
            return int(np.where(may, self._valid, self._each).argmin())
        used = self._valid / self._each
        gain = (1.0 - used) * (self._clock - self._changed + 1) / (1.0 + used)
        return int(np.where(may, gain, -1.0).argmax())

    def _emptied(self, segment: int) -> Columns:
        """Move the valid blocks of a segment to the cold logs."""
        source = np.flatnonzero(self._owner[segment * self._each : (segment + 1) * self._each] >= 0)
        source += segment * self._each
        blocks = self._owner[source]
        parts = []
        for log, mine in ((COLD, blocks < self._blocks), (COLD_NODES, blocks >= self._blocks)):
            moved = blocks[mine]
            if self._nodes and log == COLD:
                self._dirty[moved // A_NODE] = True
            parts.append(self._moves(self._append(log, moved), source[mine]))
        return joined(parts)

    def _moves(self, target: Int64s, source: Int64s) -> Columns:
        first, count = self._cut(target, source)
        to, at, length = target[first] * GRAIN, source[first] * GRAIN, count * GRAIN
        if self.span.values["remap"]:
            return rows(REMAP, to, length, at)
        return woven([rows(READ, at, length), rows(WRITE, to, length, at)])
