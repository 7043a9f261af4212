"""A log-structured merge tree as RocksDB lays one on a disk: a log, tables in levels, and background compactions.

Keys are numbers, and every table knows which it holds, so merging drops superseded entries as a real tree would. All
requests while one memtable fills, a *turn*, are made together: the log's appends and the reads of gets in their order,
and evenly between them the work for the previous memtable: its flush, and the compactions that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import FLUSH, GRAIN, READ, TRIM, WRITE, Int64s
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Parameter, Unreadable, count, flag, number, share, size, word
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import NO_SOURCE, Columns, Program, Run, Space, requests_of
from flashfs.replay.workloads._random import Shuffle, Stream, zipf

HEADER = 24  #: bytes of an entry besides its value: the key, a sequence number, lengths
MEMTABLE = 64 << 20
MEMTABLES = 256  #: that fit the span, at least: compactions write before they can free
FULL = 0.6  #: of the span that entries may take, so that compactions have room
LEVEL_0 = 4  #: tables of level 0 that start a compaction, and memtables that level 1 holds
GETS = 65_536  #: gets of a turn that has no puts

Planned = list[tuple[int, int, int]]  #: operation, offset, length


def dist(text: str) -> float:
    """The exponent of a distribution; 0 is uniform."""
    if text == "uniform":
        return 0.0
    name, colon, theta = text.partition(":")
    if name != "zipf":
        raise Unreadable("uniform, zipf or zipf:0.99")
    return number(theta) if colon else 0.99


@dataclass(eq=False)
class Table:
    """A file of the tree: its keys, rising, and where it lies."""

    keys: Int64s
    runs: list[Run]
    pages: int

    def overlaps(self, low: int, high: int) -> bool:
        return bool(self.keys[0] <= high and self.keys[-1] >= low)


@dataclass
class Levels:
    """A version of the tree. Level 0 has the newest table last; the others are sorted, and no two tables overlap."""

    tables: list[list[Table]] = field(default_factory=lambda: [[], []])

    def copy(self) -> Levels:
        return Levels([list(level) for level in self.tables])


class Lsm(Program):
    name = "lsm"
    about = "a log-structured merge tree: log, flushes, compactions, gets; as RocksDB's db_bench"
    parameters = (
        Parameter("keys", count, None, "different keys; default: as many as fill half of the span"),
        Parameter("value", size, 400, "bytes of a value; an entry has 24 more"),
        Parameter("order", word("random", "seq"), "random", "of keys that are put: by dist, or one after the other"),
        Parameter("dist", dist, 0.0, "which keys: uniform, or zipf:0.99, scattered"),
        Parameter("get", share, 0.0, "share of the operations that are gets"),
        Parameter("update", share, 0.0, "share that are gets and then puts of the same key; the rest puts"),
        Parameter("loaded", flag, False, "1: the tree has all keys at the beginning"),
        Parameter("make", flag, True, "with loaded, 1: they are written first; 0: the device has them"),
        Parameter("memtable", size, None, "bytes of a memtable, and of a table; default: 64 MiB, or a 256th of the "
                  "span if that is less"),
        Parameter("ratio", count, 10, "how many times a level is larger than the one above"),
        Parameter("wal", size, 16 << 10, "bytes of an append to the log"),
        Parameter("sync", flag, False, "1: a flush after each append"),
        Parameter("iosize", size, 1 << 20, "bytes of a request of a flush or a compaction"),
        Parameter("discard", flag, True, "1: a table that is no longer needed is trimmed"),
    )  # fmt: skip

    def __init__(self, span: Span) -> None:
        values = span.values
        self._entry = values["value"] + HEADER
        self._keys = values["keys"] or max(1, int(span.bytes / 2 / self._entry))
        if self._keys * self._entry > span.bytes * FULL:
            raise UsageError(
                f"lsm: {self._keys:,} keys of {self._entry} bytes in {span.bytes:,} bytes: fill {FULL:.0%} at most"
            )
        if values["get"] + values["update"] > 1 + 1e-9:
            raise UsageError("lsm: get and update are more than 1 together")
        self._memtable = values["memtable"] or max(GRAIN, min(MEMTABLE, span.bytes // MEMTABLES))
        if self._memtable * MEMTABLES > max(span.bytes, GRAIN * MEMTABLES):
            most = span.bytes // MEMTABLES
            raise UsageError(f"lsm: memtable={self._memtable}: use {most} at most, 1/{MEMTABLES} of the span")
        self._most = max(1, values["iosize"] // GRAIN)
        self._a_table = max(1, self._memtable // self._entry)  # entries
        seed = values["seed"]
        self._ops, self._which = Stream(seed, _random.OP), Stream(seed, _random.PLACE)
        self._within = Stream(seed, _random.WITHIN)
        self._zipf = zipf(self._keys, values["dist"]) if values["dist"] else None
        self._shuffle = Shuffle(self._keys, seed)
        self._put = 0  # with order=seq: the next key
        self._space = Space(span.bytes // GRAIN, self.name)
        self._levels = Levels()
        self._after: list[int] = []  # of each level, the last key that was compacted
        super().__init__(span)

    # --- tables

    def _table(self, keys: Int64s) -> Table:
        pages = -(-len(keys) * self._entry // GRAIN)
        return Table(keys, self._space.take(pages), pages)

    def _tables(self, keys: Int64s) -> list[Table]:
        return [self._table(keys[at : at + self._a_table]) for at in range(0, len(keys), self._a_table)]

    def _whole(self, op: int, table: Table) -> Planned:
        return [(op, *one) for one in requests_of(table.runs, 0, table.pages, self._most)]

    def _load(self) -> Planned:
        """Put all keys into the first level that can hold them. Returns the writes."""
        tables = self._tables(np.arange(self._keys, dtype=np.int64))
        level = 1
        while self._limit(level) < self._keys * self._entry:
            level += 1
        while len(self._levels.tables) <= level:
            self._levels.tables.append([])
        self._levels.tables[level] = tables
        return [one for table in tables for one in self._whole(WRITE, table)]

    def _limit(self, level: int) -> int:
        """Bytes that a level may hold."""
        return LEVEL_0 * self._memtable * int(self.span.values["ratio"]) ** (level - 1)

    # --- flushes and compactions

    def _flushed(self, levels: Levels, keys: Int64s) -> tuple[Planned, list[Table]]:
        """Write a full memtable as a table, then compact all of level 0 if it has LEVEL_0 tables, and one table of each
        other level that is too large. Returns (requests in order, tables that are no longer needed)."""
        table = self._table(merged([keys]))
        levels.tables[0].append(table)
        plan = self._whole(WRITE, table)
        gone: list[Table] = []
        if len(levels.tables[0]) >= LEVEL_0:
            plan += self._merge(levels, 0, list(levels.tables[0]), gone)
        for level in range(1, len(levels.tables)):
            if sum(len(one.keys) for one in levels.tables[level]) * self._entry > self._limit(level):
                plan += self._merge(levels, level, [self._next(levels, level)], gone)
        return plan, gone

    def _next(self, levels: Levels, level: int) -> Table:
        """The table after the one of this level that was compacted last; after the last one, the first."""
        while len(self._after) <= level:
            self._after.append(-1)
        behind = [one for one in levels.tables[level] if one.keys[0] > self._after[level]]
        chosen = (behind or levels.tables[level])[0]
        self._after[level] = int(chosen.keys[-1])
        return chosen

    def _merge(self, levels: Levels, level: int, tables: list[Table], gone: list[Table]) -> Planned:
        """Merge ``tables`` of ``level`` into the next level; if nothing overlaps, they only change their level."""
        if level + 1 == len(levels.tables):
            levels.tables.append([])
        below = levels.tables[level + 1]
        low, high = min(int(one.keys[0]) for one in tables), max(int(one.keys[-1]) for one in tables)
        under = [one for one in below if one.overlaps(low, high)]
        inputs = tables + under
        ordered = sorted(tables, key=lambda one: int(one.keys[0]))
        plan: Planned = []
        if under or any(one.keys[-1] >= other.keys[0] for one, other in pairwise(ordered)):
            outputs = self._tables(merged([one.keys for one in inputs]))
            reads = [one for table in inputs for one in self._whole(READ, table)]
            plan = evenly(reads, [one for table in outputs for one in self._whole(WRITE, table)])
            gone += inputs
        else:
            outputs = tables
        levels.tables[level] = [one for one in levels.tables[level] if one not in tables]
        kept = [one for one in below if one not in under]
        levels.tables[level + 1] = sorted(kept + outputs, key=lambda one: int(one.keys[0]))
        return plan

    # --- a turn

    def requests(self) -> Iterator[Columns]:
        if self.span.values["loaded"]:
            made = self._load()
            if self.span.values["make"]:
                yield columns(made)
        frozen: Int64s | None = None  # keys of the memtable that is being flushed
        log: list[Run] = []
        while True:
            puts, gets, is_put = self._turn()
            new_log = self._space.take(max(1, -(-len(puts) * self._entry // GRAIN)))
            front = self._front(puts, gets, is_put, frozen, new_log)
            later = self._levels.copy()
            plan: Planned = []
            gone: list[Table] = []
            if frozen is not None and len(frozen):
                plan, gone = self._flushed(later, frozen)
            over = [*(one.runs for one in gone), log]
            for runs in over:
                self._space.give(runs)
            self._levels, frozen, log = later, puts, new_log
            yield columns(evenly(front, plan) + self._trims(over))

    def _trims(self, runs: list[list[Run]]) -> Planned:
        if not self.span.values["discard"]:
            return []
        return [(TRIM, first * GRAIN, pages * GRAIN) for some in runs for first, pages in some]

    def _turn(self) -> tuple[Int64s, Int64s, Int64s]:
        """(keys of puts, keys of gets, for each get the number of puts before it)."""
        get, update = self.span.values["get"], self.span.values["update"]
        n = GETS if get >= 1 else round(self._a_table / (1 - get))
        kind = self._ops.unit(n)
        puts_at, gets_at = np.flatnonzero(kind >= get), np.flatnonzero(kind < get + update)
        keys = self._draw(n)
        if self.span.values["order"] == "seq":
            keys = keys.copy()
            blind = puts_at[kind[puts_at] >= get + update]  # an update puts the key that it got
            keys[blind] = (self._put + np.arange(len(blind))) % self._keys
            self._put = (self._put + len(blind)) % self._keys
        return keys[puts_at], keys[gets_at], np.searchsorted(puts_at, gets_at)

    def _draw(self, n: int) -> Int64s:
        if self._zipf is None:
            return self._which.below(self._keys, n)
        return self._shuffle(self._zipf.draw(self._which, self._within, n))

    def _front(self, puts: Int64s, gets: Int64s, before: Int64s, frozen: Int64s | None, log: list[Run]) -> Planned:
        """The log's appends and the gets' reads, in the order of the operations."""
        out: list[tuple[float, Planned]] = []
        a_write = max(1, self.span.values["wal"] // GRAIN)
        pages = sum(n for _, n in log) if len(puts) else 0
        for done, one in enumerate(requests_of(log, 0, pages, a_write)):
            full = min(len(puts), -(-(done + 1) * a_write * GRAIN // self._entry))
            writes: Planned = [(WRITE, *one)]
            out.append((float(full), [*writes, (FLUSH, 0, 0)] if self.span.values["sync"] else writes))
        for at, offset in self._probes(puts, gets, before, frozen):
            out.append((at + 0.5, [(READ, offset, GRAIN)]))
        out.sort(key=lambda one: one[0])  # stable: the probes of a get stay in their order
        return [one for _, some in out for one in some]

    def _probes(
        self, puts: Int64s, gets: Int64s, before: Int64s, frozen: Int64s | None
    ) -> Iterator[tuple[int, int]]:
        """(puts before, offset) of the 4 KiB that gets read: one in each table that may have the key, until one has
        it."""
        if not len(gets):
            return
        left = np.ones(len(gets), bool)
        if len(puts):
            keys, first = np.unique(puts, return_index=True)
            at = np.minimum(np.searchsorted(keys, gets), len(keys) - 1)
            left &= ~((keys[at] == gets) & (first[at] < before))
        if frozen is not None and len(frozen):
            left &= ~np.isin(gets, frozen)
        found: list[tuple[int, int, int]] = []
        tables = [*self._levels.tables[0][::-1], *(one for level in self._levels.tables[1:] for one in level)]
        for turn, table in enumerate(tables):
            asked = np.flatnonzero(left & (gets >= table.keys[0]) & (gets <= table.keys[-1]))
            if not len(asked):
                continue
            rank = np.searchsorted(table.keys, gets[asked])
            page = np.minimum(rank * self._entry // GRAIN, table.pages - 1)
            offsets = place(table.runs, page)
            found += zip(asked.tolist(), [turn] * len(asked), offsets.tolist(), strict=True)
            left[asked[table.keys[np.minimum(rank, len(table.keys) - 1)] == gets[asked]]] = False
        for get, _, offset in sorted(found):
            yield int(before[get]), offset


def merged(keys: list[Int64s]) -> Int64s:
    """All keys once, rising. A stable sort recognises rising runs and merges them."""
    every = np.concatenate(keys)
    every.sort(kind="stable")
    first = np.ones(len(every), bool)
    np.not_equal(every[1:], every[:-1], out=first[1:])
    return every[first]


def place(runs: list[Run], page: Int64s) -> Int64s:
    """Where pages of a file lie, in bytes."""
    first, size = np.array([one for one, _ in runs]), np.array([n for _, n in runs])
    begins = np.cumsum(size) - size
    run = np.searchsorted(begins, page, "right") - 1
    return (first[run] + page - begins[run]) * GRAIN


def evenly(some: Planned, others: Planned) -> Planned:
    """Both lists in their order, interleaved evenly."""
    if not some or not others:
        return some or others
    at = [((number + 0.5) / len(some), 0, number) for number in range(len(some))]
    at += [((number + 0.5) / len(others), 1, number) for number in range(len(others))]
    at.sort()
    return [(some, others)[which][number] for _, which, number in at]


def columns(plan: Planned) -> Columns:
    """Requests as arrays; there may be none."""
    table = np.array(plan, np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.uint8), table[:, 1].copy(), table[:, 2].copy(), np.full(len(table), NO_SOURCE)
