"""Sets of the pages that a trace touches, and counts of contents, in memory proportional to what is touched."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashfs.replay.request_source import Int64s, UInt64s

CHUNK_BITS = 8
CHUNK = 1 << CHUNK_BITS  #: pages that are kept together
ROOM = 64  #: chunks allocated at first
MERGED = 1 << 20  #: new numbers that are collected before they are merged


class PageSets:
    """Up to eight sets of pages, as the bits of one byte per page, in chunks of 256 pages. Only chunks that were
    touched exist: an isolated page costs some 300 bytes, a page of a long run one byte."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.int64)  # of chunks, rising
        self._slots = np.empty(0, np.int64)  # where each is in the pool
        self._pool = np.zeros(ROOM << CHUNK_BITS, np.uint8)

    def add(self, bit: int, first: Int64s, count: Int64s) -> None:
        """Put the pages of these runs into set ``bit``; runs may overlap, counts are above 0."""
        if not len(first):
            return
        pages = expand(*merged(first, first + count))
        chunk = pages >> CHUNK_BITS
        edge = np.flatnonzero(np.diff(chunk, prepend=-1))
        slot = np.repeat(self._slot_of(chunk[edge]), np.diff(np.append(edge, len(pages))))
        at = (slot << CHUNK_BITS) + (pages & (CHUNK - 1))
        self._pool[at] |= np.uint8(1 << bit)

    def _slot_of(self, ids: Int64s) -> Int64s:
        """The slots of chunks, which are in rising order and unique; missing chunks are made."""
        at = np.searchsorted(self._ids, ids)
        if len(self._ids):
            new = self._ids[np.minimum(at, len(self._ids) - 1)] != ids
        else:
            new = np.ones(len(ids), bool)
        if new.any():
            fresh = len(self._ids) + np.arange(int(new.sum()), dtype=np.int64)
            self._ids = np.insert(self._ids, at[new], ids[new])
            self._slots = np.insert(self._slots, at[new], fresh)
            need = len(self._ids) << CHUNK_BITS
            if need > len(self._pool):
                grown = np.zeros(max(need, 2 * len(self._pool)), np.uint8)
                grown[: len(self._pool)] = self._pool
                self._pool = grown
            at = np.searchsorted(self._ids, ids)
        return self._slots[at]

    def size(self, *bits: int) -> int:
        """How many pages are in any of these sets."""
        mask = np.uint8(sum(1 << bit for bit in bits))
        step = 1 << 24
        return sum(int(np.count_nonzero(self._pool[at : at + step] & mask)) for at in range(0, len(self._pool), step))


def merged(first: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The same pages as runs that neither overlap nor touch, in order."""
    order = np.argsort(first, kind="stable")
    first, end = first[order], np.maximum.accumulate(end[order])
    opens = np.empty(len(first), bool)
    opens[0] = True
    np.greater(first[1:], end[:-1], out=opens[1:])
    where = np.flatnonzero(opens)
    return first[where], np.append(end[where[1:] - 1], end[-1])


def expand(first: Int64s, end: Int64s) -> Int64s:
    """The pages of all runs, in the order of the runs."""
    count = end - first
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()), dtype=np.int64)


class Distinct:
    """Counts distinct 64-bit numbers exactly: 8 bytes for each, and as many again during a merge."""

    def __init__(self) -> None:
        self.total = 0
        self._known: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._new: list[UInt64s] = []
        self._new_n = 0

    def add(self, numbers: UInt64s) -> None:
        self.total += len(numbers)
        self._new.append(np.unique(numbers))
        self._new_n += len(self._new[-1])
        if self._new_n > max(MERGED, len(self._known)):
            self._merge()

    def _merge(self) -> None:
        self._known = np.unique(np.concatenate([self._known, *self._new]))
        self._new, self._new_n = [], 0

    def size(self) -> int:
        self._merge()
        return len(self._known)
