"""What SPEC.md says of maps of entries and of validity in flash, read from those bytes alone, as reader.py does."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import reader
from reader import NONE, TRANSLATION, Image

VALIDITY = 3  #: the kind of a page of a validity store
ENTRY = struct.Struct("<III")  #: of the validity log: PPA, erase clock, position of the entry before it


def words(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(raw) // 4}I", raw)


def page_of(image: Image, ppa: int, kind: int, number: int) -> bytes:
    """The data of a page that must be there, of that kind and number."""
    page = image.page(ppa)
    assert (page.status, page.kind, page.lpa) == ("whole", kind, number), (ppa, page)
    return page.data


def levels(image: Image) -> list[tuple[int, int]]:
    """(Number of the first page, pages) of each level of the tree: the translation pages, then the nodes above."""
    fanout = pointers(image)
    widths = [reader.up(image.lpas, image.page_bytes // 4) // (image.page_bytes // 4)]
    while widths[-1] > fanout:
        widths.append(-(-widths[-1] // fanout))
    return [(sum(widths[i + 1 :]), width) for i, width in enumerate(widths)]


def pointers(image: Image) -> int:
    fit = image.page_bytes // 4
    return max(2, min(image.header["options"]["fanout"] or fit, fit))


def tree(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """The PPA of each page of the tree that there is, by its number."""
    waiting = dict(zip(*[iter(words(sections["pointers"]))] * 2, strict=True))
    assert list(waiting) == sorted(waiting)
    count, *root = words(sections["root"])
    found = tree_under(image, root, waiting)
    assert len(found) == count
    return found


def tree_under(image: Image, root: list[int], waiting: dict[int, int]) -> dict[int, int]:
    """The same, of a root's pointers and of those that count whatever their node says."""
    fanout, shape = pointers(image), levels(image)
    assert len(root) == shape[-1][1]
    found = {number: ppa for number, ppa in enumerate(root) if ppa != NONE}
    for level in range(len(shape) - 1, 0, -1):
        (first, width), (below, under) = shape[level], shape[level - 1]
        for node in range(first, first + width):
            held = words(page_of(image, found[node], TRANSLATION, node)) if node in found else (NONE,) * fanout
            for k in range(min(fanout, under - (node - first) * fanout)):
                number = below + (node - first) * fanout + k
                ppa = waiting.get(number, held[k])
                if ppa != NONE:
                    found[number] = ppa
    return found


def newer(sections: dict[str, bytes], per_page: int) -> dict[int, int]:
    """The entries that are newer than their translation pages; NONE: a hole."""
    raw, at, found = sections["newer"], 0, {}
    while at < len(raw):
        page, n = struct.unpack_from("<II", raw, at)
        dense, n = n >> 31, n & 0x7FFFFFFF
        at += 8
        if dense:
            bits = int.from_bytes(raw[at : at + per_page // 8], "little")
            places = [place for place in range(per_page) if bits >> place & 1]
            at += per_page // 8
        else:
            places = list(struct.unpack_from(f"<{n}H", raw, at))
            at += 2 * n
        assert len(places) == n
        ppas = struct.unpack_from(f"<{n}I", raw, at)
        at += 4 * n
        found |= {page * per_page + place: ppa for place, ppa in zip(places, ppas, strict=True)}
    return found


def modelled(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """The PPA of each LPA that one of learnedftl's models knows."""
    per_page, dies = image.page_bytes // 4, image.header["geometry"]["dies"]
    span = min(per_page, 512)
    firsts = [page + at for page in range(0, reader.up(image.lpas, per_page), per_page)
              for at in range(0, per_page, span)]  # fmt: skip
    each = 52 + reader.up(span, 8) // 8
    raw, found = sections["models"], {}
    assert len(raw) == each * len(firsts)
    for number, first in enumerate(firsts):
        one = raw[number * each : (number + 1) * each]
        if not any(one):  # no model
            continue
        base, = struct.unpack_from("<I", one)
        pieces = [piece for piece in struct.iter_unpack("<Hhh", one[4:52]) if piece[0] != 0xFFFF]
        assert [off for off, _, _ in pieces] == sorted({off for off, _, _ in pieces})
        bits = int.from_bytes(one[52:], "little")
        for x in (x for x in range(8 * (each - 52)) if bits >> x & 1):
            off, slope, rise = [piece for piece in pieces if piece[0] <= x][-1]
            row, die = divmod(base + rise + (slope * (x - off) + 2048) // 4096, dies)
            offset, page = divmod(row, image.pages_per_block)
            found[first + x] = (offset * dies + die) * image.pages_per_block + page
    return found


def entry_map(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """The PPA of each LPA that is mapped."""
    if "gtd" in sections:
        first, pages = 0, {page: ppa for page, ppa in enumerate(words(sections["gtd"])) if ppa != NONE}
    else:
        first, pages = levels(image)[0][0], tree(image, sections)
    found = entries_of(image, pages, first) | newer(sections, image.page_bytes // 4)
    return {lpa: ppa for lpa, ppa in found.items() if ppa != NONE}


def entries_of(image: Image, pages: dict[int, int], first: int) -> dict[int, int]:
    """The entries in translation pages, from number ``first`` on; NONE: a hole."""
    per_page = image.page_bytes // 4
    found: dict[int, int] = {}
    for number, ppa in pages.items():
        if number >= first:
            held = words(page_of(image, ppa, TRANSLATION, number))
            found |= {(number - first) * per_page + place: entry for place, entry in enumerate(held)}
    return found


def counts(image: Image, sections: dict[str, bytes]) -> tuple[int, ...]:
    return struct.unpack(f"<{image.blocks}H", sections["bvc"])


def reports(section: bytes) -> dict[int, int]:
    """{PPA: whether it lives} of reports that wait."""
    waiting = [report for report, in struct.iter_unpack("<Q", section)]
    assert waiting == sorted(waiting)
    return {report >> 1: report & 1 for report in waiting}


def live_by_bitmap(
    image: Image, sections: dict[str, bytes], differs: Mapping[int, bytes] = MappingProxyType({})
) -> set[int]:
    """The live pages, by the bitmap in flash; its own are not among them. ``differs``: bits in which a page differs."""
    block_bytes = 8 * -(-image.pages_per_block // 64)
    in_page = image.page_bytes // block_bytes
    live = set()
    for number, ppa in enumerate(words(sections["pvbdir"])):
        if ppa == NONE and number not in differs:
            continue
        raw = page_of(image, ppa, VALIDITY, number) if ppa != NONE else bytes(image.page_bytes)
        raw = bytes(a ^ b for a, b in zip(raw, differs.get(number, bytes(len(raw))), strict=True))
        for i in range(min(in_page, image.blocks - number * in_page)):
            bits = int.from_bytes(raw[i * block_bytes : (i + 1) * block_bytes], "little")
            first = (number * in_page + i) * image.pages_per_block
            live |= {first + page for page in range(image.pages_per_block) if bits >> page & 1}
    for at, lives in reports(sections["pvblog"]).items():
        (live.add if lives else live.discard)(at)
    return live


def is_below(clock: int, other: int) -> bool:
    """Of two clocks of the log: modulo 2^32."""
    return (clock - other) % (1 << 32) >= 1 << 31


def live_by_log(image: Image, sections: dict[str, bytes]) -> set[int]:
    """The live pages, by the validity log; its own are not among them. By all entries that count, not by chains."""
    first, behind, _, _ = struct.unpack_from("<QQII", sections["pvl"])
    where = words(sections["pvl"][24:])
    stamps = words(sections["pvlstamp"])
    tops = struct.unpack(f"<{image.blocks}H", sections["pvltops"])
    per_block = image.pages_per_block
    live = {block * per_block + page for block in range(image.blocks) for page in range(tops[block])}
    for n in range(first, behind):
        raw = page_of(image, where[n % len(where)], VALIDITY, n % len(where))
        for ppa, clock, _ in ENTRY.iter_unpack(raw[: len(raw) // 12 * 12]):
            if ppa != NONE and not is_below(clock, stamps[ppa // per_block]):
                live.discard(ppa)
    for at, lives in reports(sections["pvlwaits"]).items():
        (live.add if lives else live.discard)(at)
    return live


def chain(image: Image, sections: dict[str, bytes], block: int) -> list[int]:
    """The pages of a block that its chain in the log names, the newest entry first."""
    first, behind, _, _ = struct.unpack_from("<QQII", sections["pvl"])
    where, stamps = words(sections["pvl"][24:]), words(sections["pvlstamp"])
    a_page = image.page_bytes // 12
    numbers = {n % len(where): n for n in range(first, behind)}
    at, last, found = words(sections["pvlheads"])[block], (1 << 63, 0), []
    while at != NONE and at // a_page in numbers:
        here = numbers[at // a_page], at % a_page
        ppa, clock, before = ENTRY.unpack_from(image.page(where[at // a_page]).data, 12 * (at % a_page))
        if here >= last or ppa == NONE or ppa // image.pages_per_block != block or is_below(clock, stamps[block]):
            break
        found.append(ppa % image.pages_per_block)
        at, last = before, here
    return found


def live_pages(image: Image, sections: dict[str, Any]) -> set[int]:
    return live_by_log(image, sections) if "pvl" in sections else live_by_bitmap(image, sections)
