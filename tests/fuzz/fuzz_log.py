"""Lies about the metadata log, whose checksums are right: descriptors, indexes, sections, trims, pages of a map."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from fuzz_numbers import FORGED, KEPT, change_words, number, ppa_like
from fuzz_picture import KIND_CHECKPOINT, KIND_PAD, KIND_TRIM, KIND_USER, NONE, Checkpoint, Picture


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


def _change_section(p: Picture, rnd: Random, name: str, change: Callable[[bytearray], None], least: int = 16) -> bool:
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
