"""Patterns of addresses: a pattern gives the addresses of the next requests from their lengths, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import Int64s
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import COMMON, Parameter, count, flag, number, path, share, stride
from flashfs.replay.workloads._random import Alias, Shuffle, Stream, zipf
from flashfs.replay.workloads._skew import Skewed

MASK_BLOCK = 65_536
SPREAD = Parameter("scatter", flag, True, "1: the hot places lie all over the span; 0: they are its first ones")


@dataclass(frozen=True)
class Span:
    """The part of a device that a workload uses."""

    places: int  #: where a request may begin
    align: int  #: bytes of a place
    values: dict[str, Any]  #: the workload's parameters

    @property
    def bytes(self) -> int:
        return self.places * self.align


class Kind(ABC):
    """One pass over a workload of this name; addresses are bytes from the span's beginning."""

    name: ClassVar[str]
    about: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    shared: ClassVar[tuple[Parameter, ...]] = COMMON  #: the keys that it shares with other workloads

    def __init__(self, span: Span) -> None:
        self.span = span

    @classmethod
    def default_ops(cls, span: Span) -> int:
        return span.places

    @classmethod
    def made_of(cls, values: dict[str, Any]) -> dict[str, str]:
        """{parameter that names a file: hash of the file}: the contents decide the requests, not the name."""
        return {}


class Pattern(Kind):
    """A workload that defines only addresses; operations and lengths are drawn by shares."""

    @abstractmethod
    def offsets(self, lengths: Int64s) -> Int64s: ...


class Placed(Pattern):
    """A pattern that chooses places regardless of length; a request that would cross the end is moved back."""

    @abstractmethod
    def places(self, n: int) -> Int64s: ...

    def offsets(self, lengths: Int64s) -> Int64s:
        align = self.span.align
        out = self.places(len(lengths)) * align
        last = (self.span.bytes - lengths) // align * align
        return np.minimum(out, last, out=out)


class Sequential(Pattern):
    name = "sequential"
    about = "one after the other, and from the beginning again"

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self._at = 0

    def offsets(self, lengths: Int64s) -> Int64s:
        out = np.empty_like(lengths)
        ends = np.cumsum(lengths)
        done, base = 0, self._at  # base + an entry of `ends` is the address of an end
        while done < len(lengths):
            fit = int(np.searchsorted(ends, self.span.bytes - base, "right"))
            if fit == done:  # the next request does not fit before the end
                base = -int(ends[done] - lengths[done])
                continue
            out[done:fit] = ends[done:fit] - lengths[done:fit] + base
            self._at = int(ends[fit - 1]) + base
            done = fit
        return out


class Uniform(Placed):
    name = "uniform"
    about = "all places alike, at random"

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self._stream = Stream(span.values["seed"], _random.PLACE)

    def places(self, n: int) -> Int64s:
        return self._stream.below(self.span.places, n)


class Zipfian(Placed):
    name = "zipf"
    about = "the place of rank r with weight 1 / r^theta"
    parameters = (Parameter("theta", number, 0.99, "the exponent; 0 is uniform"), SPREAD)

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        seed = span.values["seed"]
        self._zipf = zipf(span.places, span.values["theta"])
        self._steps, self._within = Stream(seed, _random.PLACE), Stream(seed, _random.WITHIN)
        self._shuffle = Shuffle(span.places, seed) if span.values["scatter"] else None

    def places(self, n: int) -> Int64s:
        rank = self._zipf.draw(self._steps, self._within, n)
        return rank if self._shuffle is None else self._shuffle(rank)


class HotCold(Placed):
    name = "hotcold"
    about = "a share of the places gets most of the requests"
    parameters = (
        Parameter("hot", share, 0.2, "share of the places that are hot"),
        Parameter("heat", share, 0.8, "share of the requests that go to hot places"),
        Parameter("scatter", flag, False, SPREAD.help),
    )

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        seed = span.values["seed"]
        self._hot = int(span.places * span.values["hot"])
        if not 0 < self._hot < span.places:
            raise UsageError(f"hotcold: {self._hot} of {span.places} places are hot: use some of each")
        self._which, self._within = Stream(seed, _random.PLACE), Stream(seed, _random.WITHIN)
        self._shuffle = Shuffle(span.places, seed) if span.values["scatter"] else None

    def places(self, n: int) -> Int64s:
        hot = self._which.chance(self.span.values["heat"], n)
        index = self._within.below(np.where(hot, self._hot, self.span.places - self._hot), n)
        index += np.where(hot, 0, self._hot)
        return index if self._shuffle is None else self._shuffle(index)


class Strided(Placed):
    name = "strided"
    about = "every stride-th place, then the ones after those, until all had their turn"
    parameters = (Parameter("stride", stride, 4, "in places, or as a size (64k)"),)

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        given = span.values["stride"]
        step = given if isinstance(given, int) else int(given[:-1]) // span.align
        if isinstance(given, str) and int(given[:-1]) % span.align:
            raise UsageError(f"strided: stride {given[:-1]} bytes: use a multiple of a place, {span.align}")
        if not 0 < step <= span.places:
            raise UsageError(f"strided: stride {step}: use 1 to {span.places} places")
        self._step = step
        self._turn, self._longer = divmod(span.places, step)  # the first `longer` rounds visit one place more
        self._next = 0

    def places(self, n: int) -> Int64s:
        index = (self._next + np.arange(n, dtype=np.int64)) % self.span.places
        self._next += n
        border = self._longer * (self._turn + 1)
        early = index < border
        index = np.where(early, index, index - border)
        turn = np.where(early, self._turn + 1, self._turn)
        round_, at = np.divmod(index, turn)
        return at * self._step + round_ + np.where(early, 0, self._longer)


class Holes(Placed):
    """The mask is Python's ``random.Random(seed).random() < keep`` for each place in order, so that other programs can
    reproduce it; numpy's Mersenne Twister gives the same numbers if it is seeded in the same way."""

    name = "holes"
    about = "in order, but some places are never touched"
    parameters = (Parameter("keep", share, 0.7, "share of the places that are touched"),)

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self._blocks = self._forever()
        self._held = np.empty(0, np.int64)

    @staticmethod
    def masked(span: Span) -> Iterator[Int64s]:
        """The places that are touched, in order, a block at a time."""
        seed, words = span.values["seed"], []
        while seed:  # Python too splits a seed into 32-bit words
            words.append(seed & 0xFFFFFFFF)
            seed >>= 32
        twister = np.random.RandomState(words or [0])
        for first in range(0, span.places, MASK_BLOCK):
            n = min(MASK_BLOCK, span.places - first)
            yield first + np.flatnonzero(twister.random_sample(n) < span.values["keep"])

    @classmethod
    def default_ops(cls, span: Span) -> int:
        return sum(map(len, cls.masked(span)))

    def _forever(self) -> Iterator[Int64s]:
        while True:
            any_kept = False
            for block in self.masked(self.span):
                any_kept = any_kept or len(block) > 0
                yield block
            if not any_kept:
                raise UsageError(f"holes: keep={self.span.values['keep']} keeps none of {self.span.places} places")

    def places(self, n: int) -> Int64s:
        held = [self._held]
        have = len(self._held)
        while have < n:
            held.append(next(self._blocks))
            have += len(held[-1])
        whole = np.concatenate(held)
        self._held = whole[n:]
        return whole[:n].copy()


class Skew(Placed):
    name = "skew"
    about = "the frequencies of a real volume (lba_freq), in no order"
    parameters = (
        Parameter("file", path, None, "csv of `offset,count`, packed or not; it must be given"),
        Parameter("stretch", flag, True, "1: over the whole span; 0: a place for each line of the file"),
        Parameter("top", count, None, "only the lines with the highest counts; default: all"),
    )  # fmt: skip

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        seed = span.values["seed"]
        if span.values["file"] is None:
            raise UsageError("skew: file=FILE is missing: a csv of offset,count")
        found = Skewed.read(Path(span.values["file"]), span.values["top"])
        self._alias = Alias(found.counts.tolist())
        index = np.arange(len(found.counts) + 1, dtype=np.int64)
        if span.values["stretch"]:
            bounds = index * span.places // len(found.counts)
        elif len(found.counts) > span.places:
            raise UsageError(f"skew: {len(found.counts)} lines for {span.places} places: use stretch=1, or top=N")
        else:
            bounds = index
        self._first, self._width = bounds[:-1], np.maximum(np.diff(bounds), 1)
        self._lines, self._within = Stream(seed, _random.PLACE), Stream(seed, _random.WITHIN)

    def places(self, n: int) -> Int64s:
        line = self._alias.draw(self._lines, n)
        return self._first[line] + self._within.below(self._width[line], n)

    @classmethod
    def made_of(cls, values: dict[str, Any]) -> dict[str, str]:
        return {"file": Skewed.hash(Path(values["file"]))}


PATTERNS: dict[str, type[Pattern]] = {
    one.name: one for one in (Sequential, Uniform, Zipfian, HotCold, Strided, Holes, Skew)
}
