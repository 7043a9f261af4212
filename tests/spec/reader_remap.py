"""What SPEC.md says of remapssd's region of NVRAM [9], read without flashfs: the entries that are whole."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reader import Image

FRONT = 64
ORDERS = (1 << 31) - 1


@dataclass(frozen=True)
class Entry:
    """LPA ``lpa`` was remapped to page ``ppa`` under ``seq``; ``source`` was emptied by it, None: it was not; ``order``
    has the low bits of that of the page's block, None: it is not said."""

    lpa: int
    ppa: int
    seq: int
    source: int | None
    order: int | None
    stamp: int
    first: int = 0
    n: int = 0  #: LPAs of the command, 0: it is not atomic

    @property
    def command(self) -> tuple[int, int, int]:
        return self.seq, self.first, self.n


def entries(image: Image) -> list[Entry]:
    """All that count as far as NVRAM alone says."""
    atomic = image.header["options"]["atomic"] == "command"
    size = image.header["options"]["segment"]
    found: list[Entry] = []
    whole = 0
    for region in image.header["nvram"]:
        if region["name"] == "rmm":
            raw = image.raw[image.nvram_at + region["offset"] :][: region["bytes"]]
            whole = struct.unpack_from("<Q", raw)[0]
            for at in range(FRONT, len(raw) - size + 1, size):
                found += _segment(image, raw[at : at + size], 24 if atomic else 16)
    if not atomic:
        return found
    there: dict[tuple[int, int, int], set[int]] = {}
    for entry in found:
        there.setdefault(entry.command, set()).add(entry.lpa)
    return [
        entry
        for entry in found
        if entry.seq <= whole or there[entry.command] >= set(range(entry.first, entry.first + entry.n))
    ]


def bits(word: int, first: int, last: int) -> int:
    """Bits ``first`` to ``last`` of a word."""
    return word >> first & (1 << last - first + 1) - 1


def _segment(image: Image, raw: bytes, size: int) -> Iterator[Entry]:
    head = struct.unpack_from("<QQ", raw)
    if not head[0] & head[1] & 1:
        return
    stamp, high, superblock = bits(head[0], 1, 48), bits(head[0], 49, 54), bits(head[1], 1, 20)
    dies = image.header["geometry"]["dies"]
    for at in range(size, len(raw) - size + 1, size):
        words = struct.unpack_from(f"<{size // 8}Q", raw, at)
        if words[0] == words[1] == 0:
            return
        if not all(word & 1 for word in words):
            continue
        yield Entry(
            lpa=bits(words[1], 1, 31),
            ppa=superblock * dies * image.pages_per_block + bits(words[0], 1, 21),
            seq=high << 42 | bits(words[0], 22, 63),
            source=bits(words[1], 33, 63) if bits(words[1], 32, 32) else None,
            order=None if bits(words[1], 32, 32) or bits(words[1], 33, 63) == ORDERS else bits(words[1], 33, 63),
            stamp=stamp,
            first=bits(words[2], 1, 31) if size == 24 else 0,
            n=bits(words[2], 32, 62) + 1 if size == 24 else 0,
        )
