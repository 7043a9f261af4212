"""A reader of flashfs images, written from SPEC.md alone: nothing of nandimg or flashfs is imported here.

The numbers in brackets are SPEC.md's sections. It is slow, plain, and refuses what the document does not allow.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Set
from dataclasses import dataclass, replace
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import reader_maps
import reader_remap

NONE = 0xFFFFFFFF
GEOMETRY = (
    "page_bytes", "pages_per_block", "blocks", "channels", "dies", "oob_bytes", "lpas", "nvram_bytes",
    "read_ns", "program_ns", "erase_ns", "transfer_ns", "spare_ns",
)  # fmt: skip
FEATURE_KINDS = ("compatible", "read-only-compatible", "incompatible")
USER, TRANSLATION, CHECKPOINT, TRIM = 1, 2, 4, 5
MOVED, LAST, CLEAN = 1, 2, 4
FREE, PENDING, OPEN, CLOSED, META, BAD = range(6)
STREAM_META = 3


class Refused(Exception):
    """Not an image of this version, or a damaged one."""


# --- checksums [3]


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def page_sum(data: bytes) -> int:
    quarter = len(data) // 4
    sums = [crc32c(data[i * quarter : (i + 1) * quarter]) for i in range(4)]
    return crc32c(struct.pack("<4I", *sums)) or 0xFFFFFFFF


def sealed(raw: bytes, magic: bytes) -> bool:
    return raw[:4] == magic and struct.unpack_from("<I", raw, 4)[0] == crc32c(raw[8:])


def up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# --- what is found


@dataclass(frozen=True)
class Page:
    """One page as the chip gives it: status "erased", "whole" or "torn"; the OOB decoded [8]."""

    ppa: int
    status: str
    oob: bytes
    data: bytes
    seq: int
    kind: int
    flags: int
    lpa: int
    order: int
    stream: int
    group: int
    number: int

    @property
    def own(self) -> bytes:
        return self.oob[20:]


def newer(a: Page, b: Page) -> int:
    """Above 0 if ``a`` comes after ``b``, below if before [13, 5]."""
    if a.seq != b.seq:
        return a.seq - b.seq
    if (a.flags ^ b.flags) & MOVED:
        return 1 if a.flags & MOVED else -1
    ahead = ((a.flags >> 4) - (b.flags >> 4)) % 16
    if ahead in (1, 2):
        return 1
    if ahead in (14, 15):
        return -1
    return (a.order, a.ppa) > (b.order, b.ppa) or -1


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint [11]."""

    id: int
    ppa: int
    seq: int
    order: int
    clean: bool
    mounts: int
    sections: dict[str, bytes]


class Image:
    """An image file, read only."""

    def __init__(self, path: str | Path) -> None:
        self.raw = Path(path).read_bytes()
        self.header = self._header()
        for name in GEOMETRY[:8]:
            setattr(self, name, self.header["geometry"][name])
        self.page_bytes: int
        self.pages_per_block: int
        self.blocks: int
        self.lpas: int
        self.pages = self.blocks * self.pages_per_block
        kept = self.header["oob_used"] or self.header["geometry"]["oob_bytes"]
        self.oob_kept = kept
        self.head = 12 if self.header["backend"] == "file" else 8
        self.stride = up(self.head + kept, 4)
        self.nvram_at = up(12288 + 8 * self.blocks, 4096)
        self.spare_at = up(self.nvram_at + self.header["geometry"]["nvram_bytes"], 4096)
        self.data_at = up(self.spare_at + self.stride * self.pages, 65536)
        if len(self.raw) < self.data_at + self.page_bytes * self.pages:
            raise Refused("truncated")
        self.table = [self._entry(block) for block in range(self.blocks)]
        self.last = [self._last(block) for block in range(self.blocks)]

    # --- header [2]

    def _header(self) -> dict[str, Any]:
        found = []
        why = "no header copy is right"
        for at in (0, 4096):
            raw = self.raw[at : at + 4096]
            if len(raw) < 4096 or raw[:8] != b"NANDIMG\0":
                continue
            version = struct.unpack_from("<I", raw, 8)[0]
            if version not in (1, 2):
                why = f"version {version}"
            elif struct.unpack_from("<I", raw, 4092)[0] == crc32c(raw[:4092]):
                found.append(self._header_copy(raw))
        if not found:
            raise Refused(why)
        return max(found, key=lambda header: header["generation"])

    @staticmethod
    def _header_copy(raw: bytes) -> dict[str, Any]:
        version, _, generation = struct.unpack_from("<IIQ", raw, 8)
        backend, name, oob_used, size = struct.unpack_from("<I28sII", raw, 40)
        geometry = dict(zip(GEOMETRY, struct.unpack_from("<13Q", raw, 144), strict=True))
        n_features, n_regions, read_ns, write_ns = struct.unpack_from("<IIQQ", raw, 88)
        features, regions, at = [], [], 0
        if version == 1:
            n_features = n_regions = read_ns = write_ns = 0
            if geometry["nvram_bytes"]:
                regions = [{"name": "write-buffer", "offset": 0, "bytes": geometry["nvram_bytes"]}]
        for index in range(n_features):
            kind, word = struct.unpack_from("<B31s", raw, 3320 + 32 * index)
            features.append({"name": word.rstrip(b"\0").decode(), "kind": FEATURE_KINDS[kind]})
        for index in range(n_regions):
            word, length = struct.unpack_from("<16sQ", raw, 3704 + 24 * index)
            regions.append({"name": word.rstrip(b"\0").decode(), "offset": at, "bytes": length})
            at = up(at + length, 4096)
        return {
            "version": version,
            "generation": generation,
            "uuid": str(uuid.UUID(bytes=raw[24:40])),
            "backend": ("file", "meta")[backend],
            "ftl": name.rstrip(b"\0").decode(),
            "oob_used": oob_used,
            "geometry": {
                **geometry,
                "paired_pages": struct.unpack_from("<Q", raw, 80)[0],
                "nvram_read_ns": read_ns,
                "nvram_write_ns": write_ns,
                "endurance": (struct.unpack_from("<Q", raw, 112)[0] if version > 1 else 0) or 3000,
            },
            "features": features,
            "nvram": regions,
            "options": json.loads(raw[248 : 248 + size]),
        }

    # --- blocks and pages [4, 5, 6]

    def _entry(self, block: int) -> tuple[int, int, int]:
        raw = self.raw[12288 + 8 * block : 12296 + 8 * block]
        if raw[7] != (crc32c(raw[:7]) ^ crc32c(bytes(7))) & 0xFF:
            raise Refused(f"block table: block {block}")
        entry = int.from_bytes(raw, "little")
        return entry & 0xFFFFFFFF, entry >> 32 & 0xFFFF, entry >> 48 & 0xFF

    def erases(self, block: int) -> int:
        return self.table[block][0]

    def health(self, block: int) -> int:
        return self.table[block][2]

    def synced(self, block: int) -> int:
        return self.table[block][1]

    def record(self, ppa: int) -> bytes:
        at = self.spare_at + ppa * self.stride
        return self.raw[at : at + self.head + self.oob_kept]

    def _last(self, block: int) -> int:
        """Pages of a block that are not erased."""
        for page in reversed(range(self.pages_per_block)):
            epoch = struct.unpack_from("<I", self.record(block * self.pages_per_block + page))[0]
            if epoch >= self.erases(block) + 1:
                return max(page + 1, self._entry(block)[1])
        return self._entry(block)[1]

    def page(self, ppa: int) -> Page:
        block, page = divmod(ppa, self.pages_per_block)
        record = self.record(ppa)
        at = self.data_at + ppa * self.page_bytes
        data = self.raw[at : at + self.page_bytes]
        status = self._status(block, page, ppa, record, data)
        oob = record[self.head :]
        if status == "erased":
            oob, data = b"\xff" * self.oob_kept, b"\xff" * self.page_bytes
        elif self.head == 12 and record[8:12] == bytes(4):
            data = bytes(self.page_bytes)
        number = oob[17] | oob[18] >> 5 << 8
        if status == "whole" and number not in (0, (page + 1) % 2048):
            status = "torn"  # meant for another page of a block
        return Page(
            ppa, status, oob, data, int.from_bytes(oob[:6], "little"), oob[6], oob[7],
            int.from_bytes(oob[8:12], "little"), int.from_bytes(oob[12:17], "little"), oob[18] % 32, oob[19],
            number,
        )  # fmt: skip

    def _status(self, block: int, page: int, ppa: int, record: bytes, data: bytes) -> str:
        epoch, crc = struct.unpack_from("<II", record)
        expected = self.erases(block) + 1
        if epoch < expected:
            return "erased" if page >= self.last[block] else "torn"
        if epoch > expected or crc != crc32c(struct.pack("<II", ppa, epoch) + record[8:]):
            return "torn"
        if self.head == 12:
            data_sum = struct.unpack_from("<I", record, 8)[0]
            if data_sum and data_sum != page_sum(data):
                return "torn"
        return "whole"

    def programmed(self, block: int, first: int = 0) -> list[Page]:
        """The pages of a block from ``first`` on that are not erased."""
        base = block * self.pages_per_block
        return [self.page(base + page) for page in range(first, self.last[block])]

    # --- the metadata log [7, 11, 12]

    def boot(self) -> tuple[int, int] | None:
        """(id, descriptor PPA) of the newest hint."""
        hints = []
        for at in (8192, 10240):
            raw = self.raw[at : at + 64]
            if sealed(raw, b"FFBT"):
                hints.append(struct.unpack_from("<QI", raw, 8))
        return max(hints) if hints else None

    def _log_page(self, ppa: int) -> bytes | None:
        if ppa >= self.pages:
            return None
        page = self.page(ppa)
        return page.data if page.status == "whole" and page.kind == CHECKPOINT else None

    def checkpoint(self, ppa: int) -> Checkpoint | None:
        """The checkpoint whose descriptor is there, if it is whole."""
        raw = self._log_page(ppa)
        if raw is None or not sealed(raw, b"FFCK"):
            return None
        identity, seq, order, size, flags, n_sections, n_extents, index, mounts = struct.unpack_from(
            "<QQQQIIIIQ", raw, 8
        )
        table = [struct.unpack_from("<8sQI", raw, 64 + 20 * i) for i in range(n_sections)]
        at = 64 + 20 * n_sections
        extents = [struct.unpack_from("<II", raw, at + 8 * i) for i in range(n_extents)]
        while index != NONE:
            raw = self._log_page(index)
            if raw is None or not sealed(raw, b"FFCX"):
                return None
            n, index = struct.unpack_from("<II", raw, 8)
            extents = [struct.unpack_from("<II", raw, 16 + 8 * i) for i in range(n)] + extents
        stream = b""
        for first, n in extents:
            if first >= NONE - 1:          # pages that are not in flash: all ones, or all zeros
                stream += (b"\xff" if first == NONE else b"\0") * (n * self.page_bytes)
                continue
            for i in range(n):
                piece = self._log_page(first + i)
                if piece is None:
                    return None
                stream += piece
        if len(stream) != up(size, self.page_bytes):
            return None
        sections, at = {}, 0
        for name, length, crc in table:
            part = stream[at : at + length]
            at += length
            if len(part) != length or crc32c(part) != crc:
                return None
            sections[name.rstrip(b"\0").decode()] = part
        return Checkpoint(identity, ppa, seq, order, bool(flags & CLEAN), mounts, sections)

    def clean_checkpoint(self) -> Checkpoint | None:
        """The checkpoint that is the whole truth, if the image is clean."""
        hint = self.boot()
        if hint is None or hint[1] >= self.pages:
            return None
        page = self.page(hint[1])
        if page.status != "whole" or page.kind != CHECKPOINT or page.seq != hint[0] or page.flags != LAST | CLEAN:
            return None
        if (hint[1] + 1) % self.pages_per_block == 0 or self.page(hint[1] + 1).status != "erased":
            return None
        return self.checkpoint(hint[1])

    # --- every LPA's current version [12, 13]

    def current(self) -> dict[int, Page]:
        """LPA -> its page, for those that hold anything in flash; translation page n is LPA ``lpas + n``."""
        clean = self.clean_checkpoint()
        if clean and self.shares:
            return self.mapped(clean.sections)
        if clean:
            return {self.key(page): page for page in self._live(clean, set())}
        return Crash(self).resolve()

    @property
    def shares(self) -> bool:
        """Whether several LPAs may be at a page, and which are not in its OOB [10]."""
        return bool(self.header["ftl"] == "remapssd")

    def mapped(self, sections: dict[str, bytes], void: Set[int] = frozenset()) -> dict[int, Page]:
        """LPA -> its page, by the page table, but for those in void blocks."""
        found = reader_maps.pagemap_ppas(self, sections)
        return {lpa: self.page(ppa) for lpa, ppa in found.items() if ppa // self.pages_per_block not in void}

    def key(self, page: Page) -> int:
        return page.lpa + (self.lpas if page.kind == TRANSLATION else 0)

    def _live(self, base: Checkpoint | None, void: set[int]) -> list[Page]:
        """The base's live pages, but for those in void blocks."""
        if base is None:
            return []
        words = -(-self.pages_per_block // 64)
        found = []
        for block in range(self.blocks):
            bits = int.from_bytes(base.sections["pvb"][8 * words * block : 8 * words * (block + 1)], "little")
            if block not in void:
                found += [
                    self.page(block * self.pages_per_block + page)
                    for page in range(self.pages_per_block)
                    if bits >> page & 1
                ]
        return found

    def users(self) -> dict[int, Page]:
        """Of ``current``, the user pages."""
        return {lpa: page for lpa, page in self.current().items() if lpa < self.lpas}

    def content(self) -> dict[int, bytes]:
        """LPA -> page, for those that are not holes."""
        return {lpa: page.data for lpa, page in self.users().items()}

    def saved(self) -> list[tuple[int, int, bytes]]:
        """(LPA, sequence number, page) of the NVRAM's slots whose checksum is right [9]."""
        size = 16 + self.page_bytes
        out = []
        buffer = [region for region in self.header["nvram"] if region["name"] == "write-buffer"]
        for at, length in ((region["offset"], region["bytes"]) for region in buffer):
            out += self._saved_in(self.nvram_at + at, length // size)
        return out

    def _saved_in(self, at: int, slots: int) -> list[tuple[int, int, bytes]]:
        size = 16 + self.page_bytes
        out = []
        for slot in range(slots):
            raw = self.raw[at + slot * size : at + (slot + 1) * size]
            crc, lpa, seq = struct.unpack_from("<IIQ", raw)
            if crc == crc32c(raw[4:]):
                out.append((lpa, seq, raw[16:]))
        return out


class Crash:
    """What a recovery finds [13]; the steps have the document's numbers."""

    def __init__(self, image: Image) -> None:
        self.image = image
        per_block = image.pages_per_block
        self.heads: list[Page | None] = []  # 1
        for block in range(image.blocks):
            page = image.page(block * per_block)
            self.heads.append(page if page.status == "whole" and image.health(block) == 0 else None)
        descriptors, trim_pages = [], []  # 2
        for block, head in enumerate(self.heads):
            if head and head.stream == STREAM_META:
                for page in image.programmed(block):
                    if page.status == "whole" and page.kind == CHECKPOINT and page.flags & LAST:
                        descriptors.append((page.seq, page.ppa))
                    elif page.status == "whole" and page.kind == TRIM:
                        trim_pages.append(page)
        whole = (image.checkpoint(ppa) for _, ppa in sorted(descriptors, reverse=True))
        self.base = next((found for found in whole if found), None)
        self.seq = self.base.seq if self.base else 0
        self.order = self.base.order if self.base else 0
        self.trims = []  # 3
        for page in trim_pages:
            if page.seq > self.seq:
                assert page.data[:4] == b"FFTR"
                n = struct.unpack_from("<I", page.data, 4)[0]
                records = [struct.unpack_from("<IIQ", page.data, 8 + 16 * i) for i in range(n)]
                self.trims += [record for record in records if record[2] > self.seq]
        self.void: set[int] = set()  # 4
        self.found: dict[int, list[Page]] = {}
        self.scanned_from: dict[int, int] = {}
        self.emptied: list[tuple[int, int, int]] = []  # trims, as entries tell of them
        self.groups: dict[int, bool] = {}  # of each, whether its last page was found
        for block, head in enumerate(self.heads):
            self._scan(block, head)
        if image.shares:
            self._share()
        for pages in self.found.values():
            pages.sort(key=cmp_to_key(newer))
        if not image.shares:
            self.base_pages = {image.key(page): page for page in image._live(self.base, self.void)}
        known = reader_maps.translation_ppas(image, self.base.sections) if self.base else {}
        self.found = {key: pages for key, pages in self.found.items() if key < image.lpas or key - image.lpas in known}

    def _pool(self, block: int) -> tuple[int, int]:
        """(state, next page) of a block at the base."""
        if self.base is None:
            return FREE, 0
        state, next_page = struct.unpack_from("<BxH", self.base.sections["pool"], 10 * block)
        return (FREE if state in (META, PENDING) else state), next_page

    def _scan(self, block: int, head: Page | None) -> None:
        state, next_page = self._pool(block)
        if head and head.stream == STREAM_META:
            self.void.add(block)
            return
        if head and head.order > self.order:
            self.void.add(block)
            first = 0
        elif head is None and state in (OPEN, CLOSED):
            self.void.add(block)
            return
        elif state == OPEN:
            first = next_page
        else:
            return
        self.scanned_from[block] = first
        for page in self.image.programmed(block, first):
            if page.status == "whole" and page.kind == USER and page.lpa < self.image.lpas:
                self.found.setdefault(page.lpa, []).append(page)
                self.groups[page.group] = self.groups.get(page.group, False) or bool(page.flags & LAST)
            elif page.status == "whole" and page.kind == TRANSLATION and self.base and page.seq <= self.seq:
                self.found.setdefault(self.image.key(page), []).append(page)

    def _share(self) -> None:
        """What the entries in NVRAM have to say, and which pages their LPA had left at the base [13]."""
        base = self.image.mapped(self.base.sections) if self.base else {}
        for lpa, pages in self.found.items():
            at = base.get(lpa)
            self.found[lpa] = [
                page
                for page in pages
                if page.seq > self.seq
                or (at and ((at.lpa, at.seq) == (lpa, page.seq) or at.ppa == page.ppa or self._gone(at)))
            ]
        self.base_pages = self.image.mapped(self.base.sections, self.void) if self.base else {}
        for entry in reader_remap.entries(self.image):
            block, place = divmod(entry.ppa, self.image.pages_per_block)
            if entry.lpa >= self.image.lpas or block >= self.image.blocks:
                continue
            page, head = self.image.page(entry.ppa), self.heads[block]
            if head is None or page.status != "whole" or page.kind != USER or page.order != head.order:
                continue
            since = place >= self.scanned_from.get(block, self.image.pages_per_block)
            if page.order > entry.stamp or not (entry.seq > self.seq or since):
                continue
            if entry.order is not None and entry.order != page.order & reader_remap.ORDERS:
                continue
            said, pages = replace(page, lpa=entry.lpa, seq=entry.seq), self.found.setdefault(entry.lpa, [])
            if said not in pages:
                pages.append(said)
            if entry.source is not None and entry.seq > self.seq:
                self.emptied.append((entry.source, 1, entry.seq))

    def _gone(self, page: Page) -> bool:
        """Whether a page that the base names was erased, or its erase begun."""
        block = self._block(page)
        return block in self.void or (self.image.synced(block) == 0 and page.status != "whole")

    def trimmed(self, lpa: int) -> int:
        """The newest trim of an LPA since the base."""
        return max((seq for first, n, seq in self.trims + self.emptied if first <= lpa < first + n), default=0)

    def resolve(self) -> dict[int, Page]:
        left_out: set[int] = set()
        while True:
            winners = self._winners(left_out)  # 5
            self._unfinished(winners, left_out)  # 6
            conflicts = self._conflicts(winners) - left_out  # 7
            if not conflicts:
                return winners
            left_out |= conflicts

    def _block(self, page: Page) -> int:
        return page.ppa // self.image.pages_per_block

    def _scanned(self, lpa: int, left_out: set[int]) -> list[Page]:
        return [page for page in self.found.get(lpa, []) if self._block(page) not in left_out]

    def _winners(self, left_out: set[int]) -> dict[int, Page]:
        winners = {lpa: page for lpa, page in self.base_pages.items() if not self.trimmed(lpa)}
        for lpa in self.found:
            pages = self._scanned(lpa, left_out)
            if not pages:
                continue
            if self.trimmed(lpa) > pages[-1].seq:
                winners.pop(lpa, None)
            else:
                winners[lpa] = pages[-1]
        return winners

    def _unfinished(self, winners: dict[int, Page], left_out: set[int]) -> None:
        originals = {}
        for lpa, page in winners.items():
            pages = self._scanned(lpa, left_out)
            if not pages or page is not pages[-1] or not page.flags & MOVED:
                continue
            if len(pages) > 1 and pages[-2].seq == page.seq:
                originals[lpa] = pages[-2]
            elif page.seq <= self.seq and lpa in self.base_pages and not self.trimmed(lpa):
                originals[lpa] = self.base_pages[lpa]
        still_live = {self._block(page) for page in winners.values()}
        unfinished = self._unfinished_group(winners, originals, still_live)
        for lpa, page in originals.items():
            if self._block(page) in still_live or (unfinished and winners[lpa].group == unfinished):
                winners[lpa] = page

    def _unfinished_group(self, winners: dict[int, Page], originals: dict[int, Page], still_live: set[int]) -> int:
        """The number of the newest move of several blocks, if that is to be undone; else 0."""
        newest = max(self.groups, default=0)
        mine = {lpa: page for lpa, page in originals.items() if winners[lpa].group == newest}
        if newest == 0 or (self.groups[newest] and not any(self._block(page) in still_live for page in mine.values())):
            return 0
        return newest if all(self._is_there(page) for page in mine.values()) else 0

    def _is_there(self, page: Page) -> bool:
        return self.image.health(self._block(page)) == 0 and page.status == "whole"

    def _conflicts(self, winners: dict[int, Page]) -> set[int]:
        if self.image.header["ftl"] != "slimftl":
            return set()
        standing: dict[int, dict[int, int]] = {}
        for page in winners.values():
            vba = struct.unpack_from("<I", page.own)[0]
            standing.setdefault(vba, {})[self._block(page)] = page.order
        out: set[int] = set()
        for blocks in standing.values():
            out |= set(sorted(blocks, key=lambda block: blocks[block])[1:])
        return out
