"""An image as bytes that can be changed by meaning, with every checksum made right again: what an adversary would hand
us, and no accident could."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from flashfs.engine.device import metalog
from nandimg import Header, checksum, page_checksum
from nandimg.header import HEADER_BYTES, places_of, unpack

KIND_USER, KIND_CHECKPOINT, KIND_TRIM, KIND_PAD = 1, 4, 5, 7
LAST = 2
NONE = 2**32 - 1


@dataclass(slots=True)
class Checkpoint:
    """A descriptor that can still be found, and what it points at."""

    ppa: int
    sections: list[tuple[bytes, int, int]]
    extents: list[tuple[int, int]]

    def pages(self) -> list[int]:
        """The PPAs of its stream, in order."""
        return [ppa for first, n in self.extents for ppa in range(first, first + n)]


class Picture:
    """The bytes of one image. The header is that of the sound base: regions are where the base has them."""

    def __init__(self, raw: bytes, header: Header) -> None:
        self.raw = bytearray(raw)
        self.header = header
        self.layout = header.layout
        self.geometry = header.geometry
        self.pages = self.geometry.pages
        self.per_block = self.geometry.pages_per_block
        self.page_bytes = self.geometry.page_bytes
        self.head = self.layout.record_head
        self.oob_bytes = self.layout.oob_used

    # --- header

    def seal_header(self, copy: int) -> None:
        """Make a header copy's checksum right."""
        at = copy * HEADER_BYTES
        struct.pack_into("<I", self.raw, at + 4092, checksum(bytes(self.raw[at : at + 4092])))

    # --- page records and data

    def record_at(self, ppa: int) -> int:
        return self.layout.spare_at + ppa * self.layout.stride

    def oob(self, ppa: int) -> memoryview:
        """The OOB of a page, to be changed in place."""
        at = self.record_at(ppa) + self.head
        return memoryview(self.raw)[at : at + self.oob_bytes]

    def epoch(self, ppa: int) -> int:
        return int(struct.unpack_from("<I", self.raw, self.record_at(ppa))[0])

    def programmed(self) -> list[int]:
        """Every page whose record is of its block's present epoch."""
        return [ppa for ppa in range(self.pages) if self.epoch(ppa) == self.erases(ppa // self.per_block) + 1]

    def seal_record(self, ppa: int) -> None:
        """Make a page record's checksum right."""
        at = self.record_at(ppa)
        epoch = bytes(self.raw[at : at + 4])
        body = bytes(self.raw[at + 8 : at + self.head + self.oob_bytes])
        struct.pack_into("<I", self.raw, at + 4, checksum(struct.pack("<I", ppa) + epoch + body))

    def data_at(self, ppa: int) -> int:
        return self.layout.data_at + ppa * self.page_bytes

    def data(self, ppa: int) -> bytes:
        at = self.data_at(ppa)
        return bytes(self.raw[at : at + self.page_bytes])

    def put_data(self, ppa: int, data: bytes) -> None:
        """Other data under a record that agrees with them."""
        data = data[: self.page_bytes].ljust(self.page_bytes, b"\0")
        at = self.data_at(ppa)
        self.raw[at : at + self.page_bytes] = data
        if self.layout.backend == "file":
            struct.pack_into("<I", self.raw, self.record_at(ppa) + 8, page_checksum(data))
        self.seal_record(ppa)

    def forge(self, ppa: int, data: bytes, oob: bytes) -> None:
        """A whole page that was never programmed, of its block's present epoch, and that says so of its place."""
        at, here = self.record_at(ppa), (ppa % self.per_block + 1) % 2048
        oob = oob[:17] + bytes([here & 0xFF, oob[18] & 31 | here >> 8 << 5]) + oob[19:]
        struct.pack_into("<I", self.raw, at, (self.erases(ppa // self.per_block) + 1) & NONE)
        self.oob(ppa)[:] = oob.ljust(self.oob_bytes, b"\xff")[: self.oob_bytes]
        self.put_data(ppa, data)

    def kind(self, ppa: int) -> int:
        return self.oob(ppa)[6]

    # --- block table, boot area, NVRAM

    def erases(self, block: int) -> int:
        return int(struct.unpack_from("<I", self.raw, self.layout.table_at + 8 * block)[0])

    def put_entry(self, block: int, erases: int, synced: int, health: int) -> None:
        """A block table entry whose check byte is right."""
        first = struct.pack("<IHB", erases & NONE, synced & 0xFFFF, health & 0xFF)
        check = (checksum(first) ^ checksum(bytes(7))) & 0xFF
        at = self.layout.table_at + 8 * block
        self.raw[at : at + 8] = first + bytes([check])

    def put_boot(self, slot: int, identity: int, ppa: int) -> None:
        """A sealed boot hint."""
        raw = metalog.BOOT.pack(b"FFBT", 0, identity & (2**64 - 1), ppa & NONE).ljust(64, b"\0")
        at = self.layout.boot_at + 2048 * (slot & 1)
        self.raw[at : at + 64] = metalog.sealed(raw)

    def put_nvram(self, slot: int, lpa: int, seq: int, data: bytes) -> None:
        """A whole slot of the protected write buffer."""
        size = 16 + self.page_bytes
        body = struct.pack("<IQ", lpa & NONE, seq & (2**64 - 1)) + data.ljust(self.page_bytes, b"\0")
        at = self.layout.nvram_at + slot * size
        self.raw[at : at + size] = struct.pack("<I", checksum(body)) + body

    def region(self, name: str) -> tuple[int, int] | None:
        """(where it begins in the file, bytes) of a region of NVRAM."""
        found = places_of(self.header.regions).get(name)
        return (self.layout.nvram_at + found[0], found[1]) if found else None

    def word(self, at: int) -> int:
        return int.from_bytes(self.raw[at : at + 8], "little")

    def put_word(self, at: int, value: int) -> None:
        self.raw[at : at + 8] = (value & (2**64 - 1)).to_bytes(8, "little")

    # --- checkpoints

    def metadata(self, kind: int) -> list[int]:
        """PPAs of the programmed metadata pages of a kind."""
        return [ppa for ppa in self.programmed() if self.kind(ppa) == kind]

    def checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint whose descriptor makes sense, newest last."""
        found = []
        for ppa in self.metadata(KIND_CHECKPOINT):
            raw = self.data(ppa)
            if not self.oob(ppa)[7] & LAST or raw[:4] != b"FFCK":
                continue
            identity, n_sections, n_extents = (
                struct.unpack_from("<Q", raw, 8)[0], *struct.unpack_from("<II", raw, 44)
            )  # fmt: skip
            if 64 + 20 * n_sections + 8 * n_extents > len(raw):
                continue
            sections = [metalog.SECTION.unpack_from(raw, 64 + 20 * i) for i in range(n_sections)]
            at = 64 + 20 * n_sections
            extents = [metalog.EXTENT.unpack_from(raw, at + 8 * i) for i in range(n_extents)]
            if all(first + n <= self.pages for first, n in extents):
                found.append((identity, Checkpoint(ppa, sections, extents)))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def put_descriptor(self, ppa: int, raw: bytes) -> None:
        """A descriptor (or index page) with its seal and its page's checksums made right."""
        self.put_data(ppa, metalog.sealed(raw))

    def stream(self, checkpoint: Checkpoint) -> bytearray:
        return bytearray(b"".join(self.data(ppa) for ppa in checkpoint.pages()))

    def put_stream(self, checkpoint: Checkpoint, stream: bytes) -> None:
        """Other content for a checkpoint: the pages, the sections' checksums and the descriptor agree with it."""
        for index, ppa in enumerate(checkpoint.pages()):
            self.put_data(ppa, bytes(stream[index * self.page_bytes : (index + 1) * self.page_bytes]))
        raw = bytearray(self.data(checkpoint.ppa))
        at = 0
        for index, (_, size, _) in enumerate(checkpoint.sections):
            struct.pack_into("<I", raw, 64 + 20 * index + 16, checksum(bytes(stream[at : at + size])))
            at += size
        self.put_descriptor(checkpoint.ppa, bytes(raw))

    def section_at(self, checkpoint: Checkpoint, name: str) -> tuple[int, int]:
        """(offset in the stream, bytes) of a section; (0, 0) if it has none of that name."""
        at = 0
        for raw, size, _ in checkpoint.sections:
            if raw.rstrip(b"\0") == name.encode():
                return at, size
            at += size
        return 0, 0


def picture(raw: bytes) -> Picture:
    """The picture of a sound image."""
    return Picture(raw, unpack(raw[:HEADER_BYTES], "base"))


def write(path: Path, p: Picture) -> Path:
    path.write_bytes(p.raw)
    return path
