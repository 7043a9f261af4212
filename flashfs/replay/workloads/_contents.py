"""Contents of writes: a number for each 4 KiB; equal numbers mean equal bytes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import GRAIN, REMAP, WRITE, Hashes, Int64s, UInt8s, UInt64s, grains, starts
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Law
from flashfs.replay.workloads._random import Stream, mixed_up, zipf


class Contents(Protocol):
    def of(self, op: UInt8s, offset: UInt64s, length: UInt64s) -> Hashes:
        """The contents of a block of requests; only writes have any."""


def contents(values: dict[str, Any], device_bytes: int) -> Contents | None:
    """The Contents that the keys ask for; None if they ask for none."""
    if isinstance(values["contents"], Law):
        return Drawn(values, device_bytes)
    return None if values["dup"] is None else Repeated(values)


class Carried:
    """Contents of a program that copies or remaps: what it writes there is what it has read."""

    def __init__(self, of: Contents, device_bytes: int) -> None:
        self._fresh = of
        self._held = np.zeros(device_bytes // GRAIN, np.uint64)  # of each 4 KiB; 0: unknown

    def of(self, op: UInt8s, offset: UInt64s, length: UInt64s, source: Int64s) -> Hashes:
        """The contents of a block of requests of whole 4 KiB; ``source`` is the byte address that a request copies or
        remaps from, below 0 if it does not."""
        hashes = self._fresh.of(op, offset, length)
        which = np.flatnonzero((op == WRITE) | (op == REMAP))
        first, n = (offset[which] // np.uint64(GRAIN)).tolist(), (length[which] // np.uint64(GRAIN)).tolist()
        at, begin = source[which].tolist(), hashes.start[which].tolist()
        held, grain = self._held, hashes.grain
        for i in range(len(which)):
            low, high, into = first[i], first[i] + n[i], slice(begin[i], begin[i] + n[i])
            if at[i] < 0:
                held[low:high] = grain[into]
                continue
            brought = held[at[i] // GRAIN : at[i] // GRAIN + n[i]].copy()
            if op[which[i]] == WRITE:
                grain[into] = np.where(brought == 0, grain[into], brought)
                brought = grain[into]
            held[low:high] = brought
        return hashes


class Repeated:
    """New contents are numbered consecutively, and a share of the writes repeats earlier ones.

    A duplicate is one of the ``contents`` oldest, of which older ones are more popular; while there are fewer, one of
    those that exist.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        seed = values["seed"]
        self.share: float = values["dup"]
        self.seen = 0  #: different contents so far
        self.which = Stream(seed, _random.CONTENT)
        self.popular, self.within = Stream(seed, _random.POPULAR), Stream(seed, _random.POPULAR_WITHIN)
        self.zipf = zipf(values["contents"], values["dup_theta"])
        self.salt = mixed_up(np.array([seed], np.uint64))

    def of(self, op: UInt8s, offset: UInt64s, length: UInt64s) -> Hashes:
        start = starts(np.where(op == WRITE, grains(offset, length), 0))
        n = int(start[-1])
        fresh = ~self.which.chance(self.share, n)
        if n and not self.seen:
            fresh[0] = True
        before = self.seen + np.cumsum(fresh) - fresh  # different contents before each
        number = np.where(fresh, before, self.zipf.draw(self.popular, self.within, n) % np.maximum(before, 1))
        self.seen += int(fresh.sum())
        return Hashes(start, mixed_up(number.astype(np.uint64) + self.salt))


class Drawn:
    """Each 4 KiB is drawn independently: the i-th of N contents with probability C / i^a (Remap-SSD, FAST'21, section
    4.1)."""

    def __init__(self, values: dict[str, Any], device_bytes: int) -> None:
        law: Law = values["contents"]
        n = int(law.share * (device_bytes // GRAIN))
        if n < 1:
            raise UsageError(f"contents={law}: not one content for {device_bytes} bytes; use a larger N")
        self.popular = Stream(values["seed"], _random.POPULAR)
        self.within = Stream(values["seed"], _random.POPULAR_WITHIN)
        self.zipf = zipf(n, law.exponent)
        self.salt = mixed_up(np.array([values["seed"]], np.uint64))

    def of(self, op: UInt8s, offset: UInt64s, length: UInt64s) -> Hashes:
        start = starts(np.where(op == WRITE, grains(offset, length), 0))
        rank = self.zipf.draw(self.popular, self.within, int(start[-1]))
        return Hashes(start, mixed_up(rank.astype(np.uint64) + self.salt))
