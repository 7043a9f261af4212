"""What can be done to an image: blind damage, and lies whose checksums are right. Each mutation is a function of a
Picture and a Random, and returns False if what it does is to other contents than the host wrote: then only the rules
that hold for any content are judged."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random

from fuzz_picture import KIND_CHECKPOINT, KIND_PAD, KIND_TRIM, KIND_USER, NONE, Checkpoint, Picture

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


# --- blind damage: what a disk, a network or a careless copy does


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


# --- the metadata log, sealed


def _some_checkpoint(p: Picture, rnd: Random) -> Checkpoint | None:
    found = p.checkpoints()
    return (found[-1] if rnd.random() < 0.8 else rnd.choice(found)) if found else None


#: (offset, bytes) of the numbers in a descriptor
DESCRIPTOR_FIELDS = [(8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 4), (52, 4), (56, 8)]


def descriptor_field(p: Picture, rnd: Random) -> bool:
    one = _some_checkpoint(p, rnd)
    if one is None:
        return KEPT
    raw = bytearray(p.data(one.ppa))
    fields = [*DESCRIPTOR_FIELDS]
    table = 64 + 20 * len(one.sections)
    fields += [(64 + 20 * i + 8, 8) for i in range(len(one.sections))]
    fields += [(table + 4 * i, 4) for i in range(2 * len(one.extents))]
    for _ in range(rnd.randrange(1, 3)):
        at, size = rnd.choice(fields)
        value = number(rnd, 8 * size, int.from_bytes(raw[at : at + size], "little"))
        raw[at : at + size] = value.to_bytes(size, "little")
    if rnd.random() < 0.1:
        raw[64:72] = rnd.choice((b"map\0\0\0\0\0", b"pvb\0\0\0\0\0", b"pool\0\0\0\0", b"\xff\x1b[31mzz", bytes(8)))
    p.put_descriptor(one.ppa, bytes(raw))
    return FORGED


def huge_stream(p: Picture, rnd: Random) -> bool:
    """Extents and stream_bytes that agree, and are absurd."""
    one = _some_checkpoint(p, rnd)
    if one is None:
        return KEPT
    raw = bytearray(p.data(one.ppa))
    at = 64 + 20 * len(one.sections)
    room = (p.page_bytes - at) // 8
    n = rnd.choice((1, 2, room))
    first = rnd.choice(one.pages() or [0])
    each = rnd.choice((0, 1, 2, len(one.pages()), 2**20, 2**31, NONE))
    extents = [(first, each)] * n
    if rnd.random() < 0.5:
        extents = [(one.pages()[0] if one.pages() else 0, 1)] * n
    total = sum(count for _, count in extents)
    struct.pack_into("<Q", raw, 32, total * p.page_bytes & (2**64 - 1))
    struct.pack_into("<I", raw, 48, n)
    for index, extent in enumerate(extents):
        struct.pack_into("<II", raw, at + 8 * index, *extent)
    if rnd.random() < 0.5:
        sizes = [2**62, total * p.page_bytes, 0]
        struct.pack_into("<Q", raw, 64 + 8, rnd.choice(sizes) & (2**64 - 1))
    p.put_descriptor(one.ppa, bytes(raw))
    return FORGED


def index_pages(p: Picture, rnd: Random) -> bool:
    """Index pages where there were none: in a circle, in a long line, with huge counts."""
    one = _some_checkpoint(p, rnd)
    if one is None:
        return KEPT
    block = one.ppa // p.per_block
    places = [block * p.per_block + rnd.randrange(p.per_block) for _ in range(rnd.randrange(1, 4))]
    oob = bytearray(p.oob(one.ppa))
    oob[7] = 0
    for index, ppa in enumerate(places):
        if ppa == one.ppa:
            continue
        before = places[(index + 1) % len(places)] if rnd.random() < 0.7 else number(rnd, 32, ppa)
        n = rnd.choice((0, 1, 2, 62, 63, 10**6, NONE))
        body = struct.pack("<4sIII", b"FFCX", 0, n, before)
        body += b"".join(struct.pack("<II", ppa_like(p, rnd), rnd.choice((0, 1, 2, NONE))) for _ in range(min(n, 62)))
        p.forge(ppa, b"", bytes(oob))
        p.put_descriptor(ppa, body.ljust(p.page_bytes, b"\0"))
    raw = bytearray(p.data(one.ppa))
    struct.pack_into("<I", raw, 52, places[0])
    p.put_descriptor(one.ppa, bytes(raw))
    return FORGED


def trim_page(p: Picture, rnd: Random) -> bool:
    """A trim page, found or forged after a checkpoint, with other records."""
    pages = p.metadata(KIND_TRIM)
    seqs = number(rnd, 64, 50)
    n = rnd.choice((0, 1, 2, 5, 31, 32, 10**6, NONE))
    body = struct.pack("<4sI", b"FFTR", n)
    for _ in range(min(n, (p.page_bytes - 8) // 16)):
        lpa = rnd.randrange(p.geometry.lpas) if rnd.random() < 0.6 else number(rnd, 32, p.geometry.lpas)
        body += struct.pack("<IIQ", lpa, number(rnd, 32, p.geometry.lpas), number(rnd, 64, seqs) if n > 1 else seqs)
    body = body.ljust(p.page_bytes, b"\0")
    if pages and rnd.random() < 0.7:
        p.put_data(rnd.choice(pages), body)
        return FORGED
    one = _some_checkpoint(p, rnd)
    if one is None:
        return KEPT
    ppa = min(one.ppa + 1, p.pages - 1)
    oob = bytearray(p.oob(one.ppa))
    oob[0:6] = number(rnd, 48, 100).to_bytes(6, "little")
    oob[6], oob[7] = KIND_TRIM, 0
    p.forge(ppa, body, bytes(oob))
    return FORGED


def _change_section(
    p: Picture, rnd: Random, name: str, change: Callable[[bytearray], None], least: int = 16
) -> bool:
    one = _some_checkpoint(p, rnd)
    if one is None:
        return KEPT
    at, size = p.section_at(one, name)
    stream = p.stream(one)
    if size < least or at + size > len(stream):
        return KEPT
    part = stream[at : at + size]
    change(part)
    stream[at : at + size] = part
    p.put_stream(one, stream)
    return FORGED


def section_map(p: Picture, rnd: Random) -> bool:
    """pagemap's table: PPAs that do not exist, or that belong to another LPA."""

    def change(part: bytearray) -> None:
        n = len(part) // 4
        for _ in range(rnd.randrange(1, 4)):
            value = struct.unpack_from("<I", part, 4 * rnd.randrange(n))[0] if rnd.random() < 0.5 else ~ppa_like(p, rnd)
            struct.pack_into("<I", part, 4 * rnd.randrange(n), value & 0xFFFFFFFF)

    return _change_section(p, rnd, "table", change)


def section_pvb(p: Picture, rnd: Random) -> bool:
    """The validity bitmap, bits beyond the block's pages among them."""

    def change(part: bytearray) -> None:
        if rnd.random() < 0.2:
            part[:] = rnd.choice((b"\xff" * len(part), bytes(len(part))))
            return
        for _ in range(rnd.randrange(1, 5)):
            part[rnd.randrange(len(part))] ^= 1 << rnd.randrange(8)

    return _change_section(p, rnd, "pvb", change)


def section_pool(p: Picture, rnd: Random) -> bool:
    """States, streams and write points of blocks."""

    def change(part: bytearray) -> None:
        for _ in range(rnd.randrange(1, 4)):
            at = 10 * rnd.randrange(max(1, len(part) // 10))
            which = rnd.randrange(4)
            if which < 2:
                part[at + which] = rnd.choice((0, 1, 2, 3, 4, 5, 6, 128, 130, 255))
            elif which == 2:
                struct.pack_into("<H", part, at + 2, number(rnd, 16, struct.unpack_from("<H", part, at + 2)[0]))
            else:
                order = int.from_bytes(part[at + 4 : at + 10], "little")
                part[at + 4 : at + 10] = number(rnd, 48, order).to_bytes(6, "little")

    return _change_section(p, rnd, "pool", change)


def section_primary(p: Picture, rnd: Random) -> bool:
    """slimftl's bit-packed table."""

    def change(part: bytearray) -> None:
        for _ in range(rnd.randrange(1, 4)):
            part[rnd.randrange(len(part))] = rnd.randrange(256)

    return _change_section(p, rnd, "primary", change)


def section_vbt(p: Picture, rnd: Random) -> bool:
    """slimftl's virtual block table: blocks that are not there, one block twice, shared counts out of the air."""

    def change(part: bytearray) -> None:
        n = len(part) // 4
        for _ in range(rnd.randrange(1, 4)):
            at = 4 * rnd.randrange(n)
            block = rnd.choice((0xFFFFFF, 0xFFFFFE, p.geometry.blocks, rnd.randrange(p.geometry.blocks)))
            shared = rnd.choice((0, 0, 1, 254, 255))
            struct.pack_into("<I", part, at, ~block & 0xFFFFFF | shared << 24)

    return _change_section(p, rnd, "virtual", change)


def section_groups(p: Picture, rnd: Random) -> bool:
    """leaftl's groups: lengths, levels, segments and lists of LPAs out of the air."""

    def change(part: bytearray) -> None:
        for _ in range(rnd.randrange(1, 4)):
            part[rnd.randrange(len(part))] = rnd.choice((0, 1, 255, rnd.randrange(256)))

    return _change_section(p, rnd, "groups", change)


def section_fence(p: Picture, rnd: Random) -> bool:
    """What a fence says of numbers, of blocks that were open or going to retire, and of blocks of translation pages."""

    def change(part: bytearray) -> None:
        for _ in range(rnd.randrange(1, 4)):
            at = 4 * rnd.randrange(len(part) // 4)
            value = rnd.choice((p.geometry.blocks, rnd.randrange(p.geometry.blocks), number(rnd, 32, 7)))
            struct.pack_into("<I", part, at, value)

    return _change_section(p, rnd, rnd.choice(("fence", "tblocks")), change, 4)


def move_sections(p: Picture, rnd: Random) -> bool:
    """The same stream cut at other places: a table shorter or longer than this device's, all sums right."""
    one = _some_checkpoint(p, rnd)
    if one is None or len(one.sections) < 2:
        return KEPT
    i = rnd.randrange(len(one.sections) - 1)
    by = rnd.choice((-8, -4, -1, 1, 4, 8, -one.sections[i][1], one.sections[i + 1][1]))
    (a, size_a, _), (b, size_b, _) = one.sections[i : i + 2]
    if size_a + by < 0 or size_b - by < 0:
        return KEPT
    if max(size_a + by, size_b - by) >= 2**64:
        return KEPT
    one.sections[i : i + 2] = [(a, size_a + by, 0), (b, size_b - by, 0)]
    raw = bytearray(p.data(one.ppa))
    for index, section in enumerate(one.sections):
        struct.pack_into("<8sQI", raw, 64 + 20 * index, *section)
    p.put_descriptor(one.ppa, bytes(raw))
    p.put_stream(one, bytes(p.stream(one)))
    return FORGED


def any_section(p: Picture, rnd: Random) -> bool:
    """Words and bytes of one of the checkpoint's sections, whatever it is called; or all of it."""
    one = _some_checkpoint(p, rnd)
    if one is None or not one.sections:
        return KEPT
    name = rnd.choice(one.sections)[0].rstrip(b"\0").decode("latin-1")
    return _change_section(p, rnd, name, lambda part: change_words(part, p, rnd), 1)


def metadata_page(p: Picture, rnd: Random) -> bool:
    """Words and bytes of a page that a scheme's structures are in: of a map, a log, a tree, a run."""
    pages = [ppa for ppa in p.programmed() if p.oob(ppa)[6] not in (KIND_USER, KIND_TRIM, KIND_CHECKPOINT, KIND_PAD)]
    if not pages:
        return KEPT
    ppa = rnd.choice(pages)
    data = bytearray(p.data(ppa))
    change_words(data, p, rnd)
    p.put_data(ppa, bytes(data))
    return FORGED


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


BLIND: tuple[Mutation, ...] = (
    flip_header, flip_bytes, flip_tables, damage_range, truncate, extend, swap_data, swap_records, copy_range,
)  # fmt: skip
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
