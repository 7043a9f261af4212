"""Blind damage: what a disk, a network or a careless copy does to an image."""

from __future__ import annotations

from random import Random

from fuzz_numbers import KEPT, Mutation
from fuzz_picture import Picture


def flip_header(p: Picture, rnd: Random) -> bool:
    """One byte of one copy, or the same byte of both."""
    at, by = rnd.randrange(4096), rnd.randrange(1, 256)
    for copy in rnd.choice(((0,), (1,), (0, 1))):
        p.raw[copy * 4096 + at] ^= by
    return KEPT


def flip_bytes(p: Picture, rnd: Random) -> bool:
    for _ in range(rnd.randrange(1, 9)):
        p.raw[rnd.randrange(len(p.raw))] ^= rnd.randrange(1, 256)
    return KEPT


def flip_tables(p: Picture, rnd: Random) -> bool:
    """Bytes before the data region: they say more."""
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.choice((p.layout.boot_at, p.layout.table_at, p.layout.nvram_at, p.layout.spare_at))
        p.raw[min(at + rnd.randrange(4096), len(p.raw) - 1)] ^= 1 << rnd.randrange(8)
    return KEPT


def damage_range(p: Picture, rnd: Random) -> bool:
    """A sector, a page or more: garbage, zeros or ones."""
    n = rnd.choice((64, 512, p.page_bytes, 4096, 65536))
    at = rnd.randrange(len(p.raw))
    at -= at % min(n, 512)
    n = min(n, len(p.raw) - at)
    p.raw[at : at + n] = rnd.choice((rnd.randbytes(n), bytes(n), b"\xff" * n))
    return KEPT


def truncate(p: Picture, rnd: Random) -> bool:
    edges = (0, 1, 4095, 4096, 8192, p.layout.spare_at, p.layout.data_at, len(p.raw) - 1)
    del p.raw[rnd.choice((*edges, rnd.randrange(len(p.raw) + 1))) :]
    return KEPT


def extend(p: Picture, rnd: Random) -> bool:
    p.raw += rnd.randbytes(rnd.choice((1, 512, 5000)))
    return KEPT


def swap_data(p: Picture, rnd: Random) -> bool:
    """Two pages, or two blocks, change places; their records do not."""
    n = p.page_bytes * rnd.choice((1, p.per_block))
    count = p.pages * p.page_bytes // n
    a, b = (p.layout.data_at + n * rnd.randrange(count) for _ in range(2))
    p.raw[a : a + n], p.raw[b : b + n] = p.raw[b : b + n], p.raw[a : a + n]
    return KEPT


def swap_records(p: Picture, rnd: Random) -> bool:
    n = p.layout.stride * rnd.choice((1, p.per_block))
    count = p.pages * p.layout.stride // n
    a, b = (p.layout.spare_at + n * rnd.randrange(count) for _ in range(2))
    p.raw[a : a + n], p.raw[b : b + n] = p.raw[b : b + n], p.raw[a : a + n]
    return KEPT


def copy_range(p: Picture, rnd: Random) -> bool:
    """A write that went to the wrong place."""
    n = rnd.choice((8, 64, 512, 4096))
    a, b = (rnd.randrange(max(1, len(p.raw) - n)) for _ in range(2))
    p.raw[b : b + n] = p.raw[a : a + n]
    return KEPT


BLIND: tuple[Mutation, ...] = (
    flip_header, flip_bytes, flip_tables, damage_range, truncate, extend, swap_data, swap_records, copy_range,
)  # fmt: skip
