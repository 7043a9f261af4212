"""What a cache of entries does in closed form, under requests that are independent of each other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def lru_hit_ratio(weights: NDArray[np.float64], slots: int) -> float:
    """Of a plain LRU of ``slots`` entries, by Che's approximation: an entry is there if it was asked for within the
    characteristic time t, at which so many of them were expected to be. ``weights``: how likely each is asked for."""
    if slots >= len(weights):
        return 1.0
    low, high = 0.0, float(slots)
    while np.sum(-np.expm1(-weights * high)) < slots:
        high *= 2
    for _ in range(60):
        t = (low + high) / 2
        low, high = (t, high) if np.sum(-np.expm1(-weights * t)) < slots else (low, t)
    return float(np.sum(weights * -np.expm1(-weights * low)))


def zipf_weights(n: int, theta: float) -> NDArray[np.float64]:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -theta
    return weights / math.fsum(weights)


def entries_a_program(dirty: float, pages: int) -> float:
    """Entries that go back with one program: the one that leaves, and of the other ``dirty`` ones, spread over so many
    translation pages, those that share its page."""
    return 1 + (dirty - 1) / pages
