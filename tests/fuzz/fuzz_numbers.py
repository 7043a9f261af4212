"""Numbers that code trips over, and what a mutation is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzz_picture import NONE, Picture

Mutation = Callable[[Picture, Random], bool]
KEPT, FORGED = True, False

EDGES = [0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 1023, 4095, 65535, 65536, 2**24 - 2, 2**24 - 1, 2**31 - 1]
EDGES += [2**31, 2**32 - 17, 2**32 - 16, 2**32 - 2, NONE, 2**32, 2**40, 2**47, 2**48 - 2, 2**48 - 1, 2**48]
EDGES += [2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


def number(rnd: Random, bits: int, near: int = 0) -> int:
    """A number that code trips over: an edge of some type, or close to one, or to what was there, or any."""
    kind = rnd.random()
    if kind < 0.45:
        value = rnd.choice(EDGES)
    elif kind < 0.75:
        value = near + rnd.choice((-2, -1, 1, 2, 8, -8))
    elif kind < 0.9:
        value = rnd.randrange(1 << rnd.randrange(1, 13))
    else:
        value = rnd.getrandbits(bits)
    return value & ((1 << bits) - 1)


def ppa_like(p: Picture, rnd: Random) -> int:
    """Mostly a page that exists."""
    return rnd.randrange(p.pages) if rnd.random() < 0.7 else number(rnd, 32, p.pages)


def change_words(part: bytearray, p: Picture, rnd: Random) -> None:
    """One to three numbers of 1, 2, 4 or 8 bytes, or all bytes."""
    if rnd.random() < 0.1:
        part[:] = rnd.choice((b"\xff" * len(part), bytes(len(part)), rnd.randbytes(len(part))))
        return
    for _ in range(rnd.randrange(1, 4)):
        size = min(rnd.choice((1, 2, 4, 4, 8)), len(part))
        at = rnd.randrange(len(part) - size + 1)
        at -= at % size if rnd.random() < 0.8 else 0
        near = int.from_bytes(part[at : at + size], "little")
        value = ppa_like(p, rnd) & (256**size - 1) if rnd.random() < 0.3 else number(rnd, 8 * size, near)
        part[at : at + size] = value.to_bytes(size, "little")
