"""What can be done to an image: blind damage, and lies whose checksums are right. Each mutation is a function of a
Picture and a Random, and returns False if what it does is to other contents than the host wrote: then only the rules
that hold for any content are judged."""

from __future__ import annotations

import json
import struct
from random import Random

from fuzz_blind import BLIND, truncate
from fuzz_log import (
    any_section,
    descriptor_field,
    huge_stream,
    index_pages,
    metadata_page,
    move_sections,
    section_fence,
    section_groups,
    section_map,
    section_pool,
    section_primary,
    section_pvb,
    section_vbt,
    trim_page,
)  # fmt: skip
from fuzz_numbers import FORGED, KEPT, Mutation, number, ppa_like
from fuzz_picture import KIND_CHECKPOINT, NONE, Picture

# --- the header, sealed

#: (offset, bytes) of every number in it
HEADER_FIELDS = [(8, 4), (12, 4), (16, 8), (40, 4), (72, 4), (76, 4), (80, 8), *((144 + 8 * i, 8) for i in range(13))]


def header_field(p: Picture, rnd: Random) -> bool:
    at, size = rnd.choice(HEADER_FIELDS)
    near = int.from_bytes(p.raw[at : at + size], "little")
    value = number(rnd, 8 * size, near)
    for copy in rnd.choice(((0,), (1,), (0, 1), (0, 1), (0, 1))):
        p.raw[copy * 4096 + at : copy * 4096 + at + size] = value.to_bytes(size, "little")
        p.seal_header(copy)
    return FORGED  # other oob_bytes or backend: the same bytes mean something else


def header_name(p: Picture, rnd: Random) -> bool:
    name = rnd.choice((b"", b"pagemap", b"slimftl", b"nonesuch", b"\xff\xfe", b"\x1b[31m", b"pagemap\0x", b"a\nb"))
    for copy in (0, 1):
        p.raw[copy * 4096 + 44 : copy * 4096 + 72] = name.ljust(28, b"\0")
        p.seal_header(copy)
    return FORGED


VALUES: list[object] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    9,
    1.5,
    1e308,
    10**40,
    "8",
    "x",
    [],
    {},
    [[1]],
    "\x1b[2J",
    2**24 - 2,
    2**32,
]
NAMES = ["shift", "hash", "virtual_blocks", "buffer", "gc_reserve", "wear_spread", "checkpoint_every", "stripe", "n\nm"]
TEXTS = [b"[" * 3000, b'{"a":' * 600, b"NaN", b"{}", b"[]", b"\xff\xfe{\0}\0", b'{"shift":1e999}', b'{"shift":NaN}']


def header_options(p: Picture, rnd: Random) -> bool:
    if rnd.random() < 0.3:
        raw = rnd.choice(TEXTS)
    else:
        options = dict(p.header.options or {})
        options[rnd.choice(NAMES)] = rnd.choice(VALUES)
        raw = json.dumps(options).encode()
    raw = raw[:3072]
    for copy in (0, 1):
        at = copy * 4096
        struct.pack_into("<I", p.raw, at + 76, len(raw))
        p.raw[at + 248 : at + 248 + len(raw)] = raw
        p.seal_header(copy)
    return FORGED


# --- the chip's tables, sealed


def block_entry(p: Picture, rnd: Random) -> bool:
    block = rnd.randrange(p.geometry.blocks)
    erases = p.erases(block)
    kind = rnd.randrange(3)
    p.put_entry(
        block,
        number(rnd, 32, erases) if kind == 0 else erases,
        number(rnd, 16) if kind != 2 else 0,
        rnd.choice((0, 1, 2, 3, 255)) if kind == 2 else 0,
    )
    return FORGED  # other erase counts bring records back to life


def record_field(p: Picture, rnd: Random) -> bool:
    """One field of a page record, with its checksum."""
    programmed = p.programmed() or [0]
    ppa = rnd.choice(programmed)
    at = p.record_at(ppa)
    which = rnd.randrange(9)
    oob = p.oob(ppa)
    if which == 0:
        struct.pack_into("<I", p.raw, at, number(rnd, 32, p.epoch(ppa)))
    elif which == 1 and p.head == 12:
        struct.pack_into("<I", p.raw, at + 8, rnd.choice((0, NONE, rnd.getrandbits(32))))
    elif which == 2:
        oob[0:6] = number(rnd, 48, int.from_bytes(oob[0:6], "little")).to_bytes(6, "little")
    elif which == 3:
        oob[6] = rnd.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 255))
    elif which == 4:
        oob[7] = rnd.choice((0, 1, 2, 3, 4, 6, 7, 255))
    elif which == 5:
        oob[8:12] = number(rnd, 32, rnd.randrange(p.geometry.lpas)).to_bytes(4, "little")
    elif which == 6:
        oob[12:17] = number(rnd, 40, int.from_bytes(oob[12:17], "little")).to_bytes(5, "little")
    elif which == 7 and rnd.random() < 0.3:
        oob[17] = rnd.randrange(256)  # with the upper bits of the next byte: which page of a block it is
    elif which == 7:
        oob[18] = rnd.choice((0, 1, 2, 3, 4, 31, 32, 255))
    elif len(oob) > 20:
        i = rnd.randrange(20, min(len(oob), 28))
        oob[i] = rnd.choice((0, 1, 2, 62, 63, 64, 128, 255, rnd.randrange(256)))
    p.seal_record(ppa)
    return FORGED


def forge_page(p: Picture, rnd: Random) -> bool:
    """A whole page out of nothing, or a second copy of one that there is."""
    programmed = p.programmed() or [0]
    source, ppa = rnd.choice(programmed), rnd.randrange(p.pages)
    oob = bytearray(p.oob(source))
    if rnd.random() < 0.6:
        oob[0:6] = number(rnd, 48, int.from_bytes(oob[0:6], "little") + 1).to_bytes(6, "little")
    if rnd.random() < 0.4:
        oob[12:17] = number(rnd, 40, int.from_bytes(oob[12:17], "little") + 1).to_bytes(5, "little")
    if rnd.random() < 0.3:
        oob[7] ^= 1
    p.forge(ppa, p.data(source), bytes(oob))
    return FORGED


def boot_slot(p: Picture, rnd: Random) -> bool:
    descriptors = [one.ppa for one in p.checkpoints()] or [0]
    ppa = rnd.choice(descriptors) if rnd.random() < 0.4 else ppa_like(p, rnd)
    identity = rnd.choice((1, 2, 3, 4, number(rnd, 64)))
    p.put_boot(rnd.randrange(2), identity, ppa)
    return KEPT


def nvram_slot(p: Picture, rnd: Random) -> bool:
    slots = p.geometry.nvram_bytes // (16 + p.page_bytes)
    if not slots:
        return remapping_metadata(p, rnd)
    lpa = rnd.randrange(p.geometry.lpas) if rnd.random() < 0.6 else number(rnd, 32, p.geometry.lpas)
    p.put_nvram(rnd.randrange(slots), lpa, number(rnd, 64, 1000), rnd.randbytes(p.page_bytes))
    return FORGED


def change_word(p: Picture, at: int, bits: tuple[int, int], rnd: Random) -> None:
    """Another number in those bits of a word, and its torn bit set, unless that is what is changed."""
    first, last = bits
    word, mask = p.word(at), (1 << last - first + 1) - 1
    if first:
        value = number(rnd, last - first + 1, word >> first & mask)
        p.put_word(at, word & ~(mask << first) | value << first | 1)
    else:
        p.put_word(at, word ^ 1)


def remapping_metadata(p: Picture, rnd: Random) -> bool:
    """remapssd's entries in NVRAM: their words, and those of segments' heads, torn bits set; segments in another's
    place; how far commands are whole."""
    found = p.region("rmm")
    if found is None:
        return KEPT
    at, size = found
    options = p.header.options or {}
    segment, entry = int(options.get("segment", 1024)), 24 if options.get("atomic") == "command" else 16
    heads = [one for one in range(at + 64, at + size - segment + 1, segment) if p.raw[one] & p.raw[one + 8] & 1]
    heads = heads or [at + 64]
    for _ in range(rnd.randrange(1, 5)):
        head, kind = rnd.choice(heads), rnd.random()
        if kind < 0.15:
            p.put_word(at, number(rnd, 64, 100))
        elif kind < 0.4:
            change_word(p, head + 8 * rnd.randrange(2), rnd.choice(HEAD_FIELDS), rnd)
        elif kind < 0.85:
            slot = head + entry * rnd.randrange(1, min(9, segment // entry))
            change_word(p, slot + 8 * rnd.randrange(entry // 8), rnd.choice(ENTRY_FIELDS), rnd)
        elif kind < 0.95:
            other = at + 64 + segment * rnd.randrange(max(1, (size - 64) // segment))
            p.raw[other : other + segment] = p.raw[head : head + segment]
        else:
            p.raw[head + rnd.randrange(segment)] ^= 1 << rnd.randrange(8)
    return FORGED


def battery_words(p: Picture, rnd: Random) -> bool:
    """Words of a map that a battery keeps, with the sum that proves them: other numbers, words in another's place."""
    found = p.region(p.header.ftl)
    if found is None or p.word(found[0]) == 0:
        return KEPT
    at, size = found[0] + 64, found[1] - 64
    used = [one for one in range(at, at + size, 8) if p.word(one)] or [at]
    for _ in range(rnd.randrange(1, 4)):
        place = rnd.choice(used) if rnd.random() < 0.7 else at + 8 * rnd.randrange(size // 8)
        word, half = p.word(place), 32 * rnd.randrange(2)
        if rnd.random() < 0.2:
            p.put_word(place, p.word(rnd.choice(used)))
        elif rnd.random() < 0.5:
            value = ppa_like(p, rnd) if rnd.random() < 0.5 else number(rnd, 32, word >> half & NONE)
            p.put_word(place, word & ~(NONE << half) | value << half)
        else:
            p.put_word(place, number(rnd, 64, word))
    seal_battery(p, found[0], size)
    return FORGED


def seal_battery(p: Picture, head: int, size: int) -> None:
    """Both sums over the ``size`` bytes of words after a battery's head."""
    total = sum(hashed(index, p.word(head + 64 + 8 * index)) for index in range(size // 8)) & 2**64 - 1
    p.put_word(head + 8, total)
    p.put_word(head + 16, total)


def hashed(index: int, value: int) -> int:
    """What a word adds to a battery's sum."""
    x = value ^ (index + 1) * 0x9E3779B97F4A7C15 & 2**64 - 1
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    x = (x ^ x >> 27) * 0x94D049BB133111EB & 2**64 - 1
    return x ^ x >> 31


#: (first bit, last bit) of what the words of a head, and of an entry, are made of
HEAD_FIELDS = ((0, 0), (1, 48), (49, 54), (1, 20), (21, 39), (40, 63))
ENTRY_FIELDS = ((0, 0), (1, 21), (22, 63), (1, 31), (32, 32), (33, 63), (32, 62))


#: what kept numbers were drawn from
AT_FIRST: tuple[Mutation, ...] = (
    header_field, header_name, header_options, block_entry, record_field, record_field, forge_page, boot_slot,
    nvram_slot, descriptor_field, huge_stream, index_pages, trim_page, section_map, section_pvb, section_pool,
    section_primary, section_vbt, move_sections, section_groups,
)  # fmt: skip
SEALED = (
    *AT_FIRST, remapping_metadata, section_fence, battery_words, any_section, any_section, metadata_page, metadata_page,
)  # fmt: skip
ALL = {mutation.__name__: mutation for mutation in (*BLIND, *SEALED)}
assert KIND_CHECKPOINT == 4


def mutate(p: Picture, rnd: Random, sealed: tuple[Mutation, ...] = SEALED) -> tuple[list[str], bool]:
    """One to three mutations, mostly of ``sealed``; (their names, whether every content is still one that the host
    wrote). What shortens the file comes last, because the others look for things in it."""
    many = rnd.choice((1, 1, 1, 2, 3))
    chosen = [rnd.choice(BLIND if rnd.random() < 0.3 else sealed) for _ in range(many)]
    chosen.sort(key=lambda one: one is truncate)
    kept = True
    for one in chosen:
        kept &= one(p, rnd)
    return [one.__name__ for one in chosen], kept
