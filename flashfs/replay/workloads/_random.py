"""Random numbers that are the same on every machine and in every version of numpy.

numpy promises that a bit generator's raw 64-bit numbers never change, but not what ``numpy.random.Generator`` makes of
them. So this module uses only raw numbers, and computes with integers, or with doubles and correctly rounded
operations. It calls no ``pow``, ``log`` or ``exp`` of the C library, nor numpy's vector versions of them, because their
last bits differ from machine to machine.

Each column of a workload draws from its own stream, so that another mix of operations does not change the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from flashfs.replay.request_source import Int64s, UInt64s

Doubles = npt.NDArray[np.float64]
TO_53 = np.uint64(11)  #: shift that leaves a whole number of 53 bits, which a double holds exactly
STEP = 2.0**-53
LN_2 = 0.6931471805599453
LN_TERMS = 12
EXACT_RANKS_BITS = 8
WEIGHT_DIGITS = 18


class Stream:
    """The raw numbers of one column: PCG64DXSM, from a seed and the column's number."""

    def __init__(self, seed: int, column: int) -> None:
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence([seed, column]))

    def raw(self, n: int) -> UInt64s:
        return np.asarray(self._bits.random_raw(n), np.uint64)

    def unit(self, n: int) -> Doubles:
        """Multiples of 2^-53 from 0 to below 1."""
        return (self.raw(n) >> TO_53).astype(np.float64) * STEP

    def below(self, limit: int | Int64s, n: int) -> Int64s:
        """Whole numbers from 0 to below ``limit``, equally likely to within limit / 2^53. The product of a number below
        1 and a limit below 2^52 never rounds up to the limit."""
        return (self.unit(n) * limit).astype(np.int64)

    def chance(self, share: float, n: int) -> npt.NDArray[np.bool_]:
        """True with probability ``share``."""
        return self.unit(n) < share


class Alias:
    """Draws indices with given whole weights, at a cost that does not depend on their number (Walker's alias method,
    with Vose's construction). The tables are computed in whole numbers."""

    def __init__(self, weights: Sequence[int]) -> None:
        n, total = len(weights), sum(weights)
        self.n = n
        keep = [1.0] * n
        other = list(range(n))
        left = [weight * n for weight in weights]
        small = [at for at in range(n) if left[at] < total]
        large = [at for at in range(n) if left[at] >= total]
        while small and large:
            less, more = small.pop(), large.pop()
            keep[less] = left[less] / total
            other[less] = more
            left[more] -= total - left[less]
            (small if left[more] < total else large).append(more)
        self._keep = np.array(keep)
        self._other = np.array(other, np.int64)

    def draw(self, stream: Stream, n: int) -> Int64s:
        place = stream.unit(n) * self.n
        at = place.astype(np.int64)
        return np.where(place - at < self._keep[at], at, self._other[at])


class Zipf:
    """Ranks from 0 to below ``n`` with weights 1 / (rank + 1)^theta.

    The first 512 ranks have their own weights; larger ranks share one in steps of 1/256 of the rank, so a few thousand
    weights are enough for any ``n``. The relative error of a weight is at most theta / 512. Weights are computed in
    decimals, which are the same everywhere.
    """

    def __init__(self, n: int, theta: float) -> None:
        first = [0]
        while first[-1] + 1 < n:
            first.append(first[-1] + max(1, (first[-1] + 1) >> EXACT_RANKS_BITS))
        if first[-1] >= n:
            first.pop()
        self._first = np.array(first, np.int64)
        self._width = np.diff(np.append(self._first, n))
        context = Context(prec=WEIGHT_DIGITS + 10)
        exponent = Decimal(-theta)
        scale = Decimal(10) ** WEIGHT_DIGITS
        weights = []
        for at, width in zip(first, self._width.tolist(), strict=True):
            middle = Decimal(2 * at + width + 1) / 2
            weights.append(max(1, int(context.multiply(context.power(middle, exponent), width * scale))))
        self._alias = Alias(weights)

    def draw(self, steps: Stream, within: Stream, n: int) -> Int64s:
        step = self._alias.draw(steps, n)
        return self._first[step] + within.below(self._width[step], n)


@cache
def zipf(n: int, theta: float) -> Zipf:
    """A cached ``Zipf``: its decimals are slow to compute, and it has no state."""
    return Zipf(n, theta)


class Shuffle:
    """A bijection of 0 .. n-1 that looks random and needs no table: a Feistel network over the next power of two,
    applied until the result is below ``n``."""

    ROUNDS = 4

    def __init__(self, n: int, seed: int) -> None:
        self._n = n
        bits = max(2, (n - 1).bit_length())
        self._low_bits = np.uint64(bits // 2)
        self._masks = [np.uint64((1 << (bits // 2)) - 1), np.uint64((1 << (bits - bits // 2)) - 1)]
        self._keys = Stream(seed, SHUFFLE).raw(self.ROUNDS)

    def __call__(self, index: Int64s) -> Int64s:
        out = self._once(index.astype(np.uint64))
        while len(over := np.flatnonzero(out >= self._n)):
            out[over] = self._once(out[over])
        return out.astype(np.int64)

    def _once(self, x: UInt64s) -> UInt64s:
        halves = [x & self._masks[0], x >> self._low_bits]
        for number, key in enumerate(self._keys):
            mine = number % 2
            mixed = mixed_up(halves[1 - mine] + key)
            halves[mine] = halves[mine] ^ (mixed & self._masks[mine])
        return (halves[1] << self._low_bits) | halves[0]


def mixed_up(x: UInt64s) -> UInt64s:
    """A bijection of 64-bit numbers in which every bit depends on every bit (the end of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def ln(x: Doubles) -> Doubles:
    """The natural logarithm of numbers above 0, exact to about 2^-51, by operations that are the same everywhere."""
    half, power = np.frexp(x)  # exact: x = half * 2^power, half from 0.5 on
    low = half < 0.7071067811865476
    mantissa = np.where(low, half * 2.0, half)
    exponent = power - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series: Any = np.full_like(square, 1.0 / (2 * LN_TERMS + 1))
    for k in range(LN_TERMS - 1, -1, -1):
        series = series * square + 1.0 / (2 * k + 1)
    return exponent * LN_2 + 2.0 * s * series


# The streams of a workload, by number. A new one goes to the end, so that existing workloads do not change.
PLACE, WITHIN, OP, SIZE, CONTENT, POPULAR, POPULAR_WITHIN, ARRIVAL, SHUFFLE, CHOICE, FILE_SIZE = range(11)
