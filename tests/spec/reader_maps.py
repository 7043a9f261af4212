"""What SPEC.md says of the schemes' own sections [10], read without flashfs: LPA -> PPA."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reader import Checkpoint, Image

NONE = 0xFFFFFFFF
TRANSLATION = 2


def pagemap_ppas(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """LPA -> PPA, from the section `table` or `map`."""
    table = struct.unpack(f"<{image.lpas}I", sections.get("table") or sections["map"])
    ppas = table if "map" in sections else [entry ^ NONE for entry in table]
    return {lpa: ppa for lpa, ppa in enumerate(ppas) if ppa != NONE}


def slim_mix(x: int) -> int:
    mask = 2**64 - 1
    x &= mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


def slim_digest(key: int, function: str) -> int:
    if function == "md5":
        return int.from_bytes(hashlib.md5(struct.pack("<Q", key), usedforsecurity=False).digest(), "little")
    golden = 0x9E3779B97F4A7C15
    low = slim_mix(key + golden)
    return low | slim_mix(low + 2 * golden) << 64


def slim_vba(image: Image, lpa: int, hid: int) -> int:
    """The virtual block that HID ``hid`` of an LPA names."""
    return hashed_place(image.header["options"], image.header["options"]["virtual_blocks"], lpa, hid)


def hashed_place(options: dict[str, Any], places: int, lpa: int, hid: int) -> int:
    """Which of so many virtual blocks, or blocks, HID ``hid`` of an LPA names."""
    lanes, shift = options.get("lanes", 1), options.get("shift", 0)
    stripe = min(options.get("stripe", 4), 1 << shift)
    group = lpa >> shift
    if lanes > 1:
        group = lpa // stripe // lanes // ((1 << shift) // stripe) * lanes + lpa // stripe % lanes
    digest, slots = slim_digest(group, options["hash"]), places // lanes
    if options.get("candidates", "shifted") == "shifted":
        slot = (digest >> hid) % slots
    else:
        first, step = (digest & 2**64 - 1) * slots >> 64, 1 + ((digest >> 64) * (slots - 1) >> 64)
        while math.gcd(step, slots) > 1:
            step = step % (slots - 1) + 1
        slot = (first + hid * step) % slots
    return slot * lanes + (group + group // lanes) % lanes if lanes > 1 else slot


def packed_entry(image: Image, sections: dict[str, bytes], lpa: int) -> tuple[int, int]:
    """HID and PPID of an LPA, from the section `primary`."""
    ppid_bits = (image.pages_per_block - 1).bit_length()
    bits = 6 + ppid_bits
    entry = int.from_bytes(sections["primary"], "little") >> lpa * bits & ((1 << bits) - 1)
    return entry >> ppid_bits, entry & ((1 << ppid_bits) - 1)


def hpftl_ppas(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """LPA -> PPA, from the sections `primary` and `second`."""
    second = dict(struct.iter_unpack("<II", sections["second"]))
    assert list(second) == sorted(second)
    found = {}
    for lpa in range(image.lpas):
        hid, ppid = packed_entry(image, sections, lpa)
        assert (hid == 0 and ppid == 1) == (lpa in second)
        if hid:
            block = hashed_place(image.header["options"], image.blocks, lpa, hid)
            found[lpa] = block * image.pages_per_block + ppid
        elif lpa in second:
            found[lpa] = second[lpa]
    return found


def fast_ppas(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """LPA -> PPA, from the sections `blocks`, `mapped`, `logged` and `log`."""
    blocks = struct.unpack(f"<{-(-image.lpas // image.pages_per_block)}I", sections["blocks"])
    mapped, logged = (int.from_bytes(sections[name], "little") for name in ("mapped", "logged"))
    in_log = iter(struct.unpack(f"<{logged.bit_count()}I", sections["log"]))
    assert mapped >> image.lpas == logged & ~mapped == 0
    found = {}
    for lpa in range(image.lpas):
        if logged >> lpa & 1:
            found[lpa] = next(in_log)
        elif mapped >> lpa & 1:
            found[lpa] = blocks[lpa // image.pages_per_block] * image.pages_per_block + lpa % image.pages_per_block
    return found


def slim_entry(image: Image, sections: dict[str, bytes], lpa: int) -> dict[str, Any]:
    """What the two tables say of an LPA: hid, ppid, vba, pba, shared (of that VBA)."""
    hid, ppid = packed_entry(image, sections, lpa)
    if hid == 0:
        return {"hid": 0}
    vba = slim_vba(image, lpa, hid)
    pba, shared = slim_line(sections, vba)
    return {"hid": hid, "ppid": ppid, "vba": vba, "pba": pba, "shared": shared}


def slim_line(sections: dict[str, bytes], vba: int) -> tuple[int | None, int]:
    """(The block of a virtual block or None, *shared*), from either section."""
    line = struct.unpack_from("<I", sections.get("virtual") or sections["vbt"], 4 * vba)[0]
    pba = (line if "vbt" in sections else ~line) & 0xFFFFFF
    return None if pba == 0xFFFFFF else pba, line >> 24


def slim_ppa(image: Image, checkpoint: Checkpoint, lpa: int) -> int | None:
    """The page of an LPA by the tables alone: probing on where pages were shared."""
    found = slim_entry(image, checkpoint.sections, lpa)
    if found["hid"] == 0:
        return None
    if found["shared"] == 0:
        return found["pba"] * image.pages_per_block + found["ppid"]
    words = -(-image.pages_per_block // 64)
    total = image.header["options"]["virtual_blocks"]
    for distance in range(total):
        vba = (found["vba"] + distance) % total
        pba, _ = slim_line(checkpoint.sections, vba)
        if pba is None:
            continue
        bits = int.from_bytes(checkpoint.sections["pvb"][8 * words * pba : 8 * words * (pba + 1)], "little")
        ppa = pba * image.pages_per_block + found["ppid"]
        if bits >> found["ppid"] & 1 and image.page(ppa).lpa == lpa:
            return ppa
    return None


def translation_ppas(image: Image, sections: dict[str, bytes]) -> dict[int, int]:
    """The PPA of each translation page, by its number, from the section `gmd`."""
    span = -(-2770 // image.page_bytes)
    rows = struct.iter_unpack(f"<{2 + span}I", sections.get("gmd", b""))
    return {first * span + k: ppa for first, _, *ppas in rows for k, ppa in enumerate(ppas) if ppa != NONE}


def counts_agree(image: Image, sections: dict[str, bytes]) -> bool:
    """Whether of leaftl's LPAs exactly as many are mapped as user pages are live; so it is, but for `inexact`."""
    groups = groups_of_leaftl(image, sections)
    mapped = sum(leaf_guess(groups, lpa) is not None for lpa in range(image.lpas))
    live = sum(word.bit_count() for (word,) in struct.iter_unpack("<Q", sections["pvb"]))
    assert sections.get("inexact", b"") == b""
    return mapped == live - len(translation_ppas(image, sections))


def groups_of_leaftl(image: Image, sections: dict[str, bytes]) -> list[bytes]:
    """The block of each group of 256 LPAs, from the section `groups` and the translation pages of `gmd`."""
    blocks: list[bytes | None] = []
    section, at = sections["groups"], 0
    while at < len(section):
        size = struct.unpack_from("<H", section, at)[0]
        blocks.append(None if size == 0xFFFF else section[at + 2 : at + 2 + size])
        at += 2 if size == 0xFFFF else 2 + size
    span = -(-2770 // image.page_bytes)
    for first, n, *ppas in struct.iter_unpack(f"<{2 + span}I", sections["gmd"]):
        pages = [image.page(ppa) for ppa in ppas if ppa != NONE]
        assert [page.lpa for page in pages] == [first * span + k for k in range(len(pages))]
        assert {page.kind for page in pages} == {TRANSLATION}
        raw = b"".join(page.data for page in pages)
        assert struct.unpack_from("<4sIHH", raw) == (b"FFLF", first, n, 0)
        at = 16
        for group in range(first, first + n):
            size = struct.unpack_from("<H", raw, at)[0]
            assert blocks[group] is None
            blocks[group] = raw[at + 2 : at + 2 + size]
            at += 2 + size
        assert at == struct.unpack_from("<I", raw, 12)[0]
    assert None not in blocks
    return [block for block in blocks if block is not None]


def leaf_guess(blocks: list[bytes], lpa: int) -> tuple[int, bool] | None:
    """(PPA, whether it is exact) that the topmost segment with that LPA says; None if it is not mapped."""
    block, x = blocks[lpa // 256], lpa % 256
    if not block:
        return None
    levels, crb_bytes = block[0], struct.unpack_from("<H", block, 1)[0]
    n = sum(block[3 : 3 + levels]) + levels
    crb = block[3 + levels : 3 + levels + crb_bytes]
    runs: dict[int, set[int]] = {}
    for i, offset in enumerate(crb):
        if i == 0 or (offset and crb[i - 1] == 0 and i > 1):
            first = offset
            runs[first] = set()
        if i == 0 or offset:
            runs[first].add(offset)
    fields = struct.unpack_from(f"<{n}s{n}s{2 * n}s{4 * n}s", block, 3 + levels + crb_bytes)
    starts, lengths, slopes, intercepts = fields
    for i in range(n):
        start, length = starts[i], lengths[i]
        bits = struct.unpack_from("<H", slopes, 2 * i)[0]
        slope = struct.unpack_from("<e", slopes, 2 * i)[0]
        if not start <= x <= start + length:
            continue
        if bits & 0x8000:
            return None
        if bits & 1:
            if x not in runs[start]:
                continue
        elif (slope == 0 or (x - start) % round(1 / slope)) and x != start:
            continue
        return (math.ceil(slope * x) + struct.unpack_from("<I", intercepts, 4 * i)[0]) & NONE, not bits & 1
    return None


def leaf_ppa(image: Image, blocks: list[bytes], lpa: int) -> int | None:
    """The page of an LPA: the guess, or what the list of the page there says."""
    said = leaf_guess(blocks, lpa)
    if said is None or said[1]:
        return said and said[0]
    page = image.page(said[0])
    if page.lpa == lpa:
        return page.ppa
    gamma = image.header["options"]["gamma"]
    listed = struct.unpack(f"<{2 * gamma}I", page.own[: 8 * gamma])
    at = listed.index(lpa)
    return page.ppa + at - gamma + (at >= gamma)
