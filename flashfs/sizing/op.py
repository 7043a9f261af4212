"""How much over-provisioning is enough: a search for the smallest chip that is large enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from nandimg import Geometry, GeometryError

OP = 0.1  #: over-provisioning by default, where a small chip does not need more
OP_MOST = 10  #: a value from here up was meant in per cent
TRIED_PAGES = 1 << 22  #: that the host sees: a larger chip is not tried, since the tables of its FTLs would be built
LARGER_PAGES = 1 << 17  #: a small chip is tried up to so many pages
LARGER = 2  #: and a large one up to so many times its own: to try one costs time and memory by its pages

Fits = Callable[[Geometry], bool]


def enough(geometry: Geometry, fits: Fits) -> float | None:
    """The ``--op`` with which a chip of otherwise the same geometry ``fits``; None if none was found."""
    op = None if geometry.lpas > TRIED_PAGES else _op_of(grown(geometry, fits))
    return None if op is None or op >= OP_MOST else op


def is_grown(geometry: Geometry) -> bool:
    """Whether it has more superblocks than a chip of its size gets by default."""
    superblock_pages = geometry.pages_per_block * geometry.dies
    usual = max(math.ceil(round(geometry.lpas * (1 + OP), 6) / superblock_pages), math.ceil(8 / geometry.dies))
    return geometry.superblocks > usual


def _op_of(geometry: Geometry | None) -> float | None:
    """Its over-provisioning, with as few digits as still give a chip of so many blocks."""
    if geometry is None:
        return None
    superblock_pages = geometry.pages_per_block * geometry.dies
    for power in (10**digits for digits in range(1, 12)):
        op = math.floor(geometry.op * power) / power
        if math.ceil(round(geometry.lpas * (1 + op), 6) / superblock_pages) == geometry.superblocks:
            return op
    return geometry.op


def grown(geometry: Geometry, fits: Fits) -> Geometry | None:
    """The geometry with as few more superblocks as ``fits`` asks for; None if no chip within the limits does."""
    def larger(superblocks: int) -> Geometry:
        return replace(geometry, blocks=geometry.blocks + superblocks * geometry.dies)

    if fits(geometry):
        return geometry
    pages = geometry.blocks * geometry.pages_per_block
    most = (max(LARGER_PAGES, LARGER * pages) - pages) // (geometry.pages_per_block * geometry.dies)
    low, high = 0, min(1, most)
    try:
        while high > low and not fits(larger(high)):
            low, high = high, min(2 * high, most)
        if high == low:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(larger(middle)) else (middle, high)
    except GeometryError:  # a chip has 2**32 pages at most
        return None
    return larger(high)
