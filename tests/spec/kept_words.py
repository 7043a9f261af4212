"""What SPEC.md and the schemes' pages say of batteries, read from those bytes alone: the words of muftl's region, the
map and the live pages that they stand for, with what is in flash."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import entry_maps
import reader
from reader import NONE, Image

MASK = 2**64 - 1
FRAMES = 4


def mixed(i: int, w: int) -> int:
    x = w ^ (i + 1) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def named(ppa: int) -> int:
    """A page's share of word 1."""
    x = (ppa + 1) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 32


def words_of(image: Image, name: str) -> tuple[int, tuple[int, ...]]:
    """The stamp of a region, and its words; one of its sums must be theirs."""
    region = next(one for one in image.header["nvram"] if one["name"] == name)
    raw = image.raw[image.nvram_at + region["offset"] :][: region["bytes"]]
    stamp, *sums = struct.unpack_from("<QQQ", raw)
    words = struct.unpack_from(f"<{(len(raw) - 64) // 8}Q", raw, 64)
    assert sum(mixed(i, w) for i, w in enumerate(words)) & MASK in sums
    return stamp, words


@dataclass(frozen=True)
class Kept:
    stamp: int
    sum: int
    mapped: dict[int, int]  # the PPA of each LPA
    live: set[int]  # but for the bitmap's own pages
    own: set[int]


def muftl(image: Image) -> Kept:
    """docs/ftl/muftl.md, "The battery"."""
    stamp, words = words_of(image, "muftl")
    per_block, page_bytes = image.pages_per_block, image.page_bytes
    in_page = page_bytes // (8 * -(-per_block // 64))
    pages = -(-image.blocks // in_page)
    log = max(min(768, page_bytes // 5), 2 * per_block) + 16
    shape, fanout = entry_maps.levels(image), entry_maps.pointers(image)
    children = shape[-1][1]
    sizes = [8, image.blocks, pages, FRAMES, FRAMES * page_bytes // 8, log, -(-children // 2),
             min(sum(width for _, width in shape), fanout + 2 * per_block + 16)]  # fmt: skip
    beside = page_bytes + 2 * per_block
    slots = (len(words) - sum(sizes) - beside) // 2
    parts, at = [], 0
    for size in (*sizes, slots, slots + beside):
        parts.append(words[at : at + size])
        at += size
    fixed, opened, where, heads, bits, waiting, root, pointers, cache, pending = parts
    assert at == len(words)
    places = [(word & NONE) - 1 for word in where]
    differs = {}
    for frame, head in enumerate(heads):
        number, of = (head >> 32) - 1, (head & NONE) - 1
        if head and places[number] == of:
            differs[number] = struct.pack(f"<{page_bytes // 8}Q", *bits[frame * page_bytes // 8 :][: page_bytes // 8])
    sections = {
        "pvbdir": struct.pack(f"<{pages}I", *(place & NONE for place in places)),
        "pvblog": struct.pack(f"<{sum(map(bool, waiting))}Q",
                              *sorted((word >> 32) - 1 << 1 | word & 1 for word in waiting if word)),
    }  # fmt: skip
    streams = {block: word >> 48 for block, word in enumerate(opened)}
    own = {ppa for word in where for ppa in ((word & NONE) - 1, (word >> 32) - 1) if ppa >= 0}
    live = entry_maps.live_by_bitmap(image, sections, differs)
    assert not {streams[ppa // per_block] for ppa in live} & {streams[ppa // per_block] for ppa in own}
    halves = [half for word in root for half in (word & NONE, word >> 32)][:children]
    found = entry_maps.tree_under(image, [(half - 1) & NONE for half in halves],
                                  {(word >> 32) - 1: word & NONE for word in pointers if word})
    newer = {(word >> 32) - 1: word & NONE for part in (pending, cache) for word in part if word}
    mapped = entry_maps.entries_of(image, found, shape[0][0]) | newer
    return Kept(stamp, fixed[1], {lpa: ppa for lpa, ppa in mapped.items() if ppa != NONE}, live, own)


__all__ = ["Kept", "muftl", "named", "reader", "words_of"]
