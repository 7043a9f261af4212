"""An image that tests damage where SPEC.md says that its bytes lie, and what a mount then says of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nandimg
from flashfs.device import Device
from flashfs.inspect._view import Spare
from nandimg import PRESETS, Geometry, checksum

PAGE = 512
USER, TRANSLATION, CHECKPOINT, TRIM, MOUNT, PAD = 1, 2, 4, 5, 6, 7  #: kinds of pages
MOVED, LAST, CLEAN, LOST = 1, 2, 4, 8  #: flags
META = 3  #: the stream of the metadata log


class Rig:
    """An image of a device without a write buffer, damaged where SPEC.md says that its bytes lie: `wreck` takes a
    page's spare area with it, `rot` only its data, `blank` makes it look erased."""

    def __init__(self, path: Path, ftl: str, geometry: Geometry = PRESETS["tiny-24d"].geometry, **how: object) -> None:
        self.path, self.geometry = path, geometry
        self.how = {"options": {"buffer": "0"}, **how}
        nandimg.create(path, geometry)
        self.device = Device.open(path, ftl=ftl, **self.how)
        self.layout = nandimg.inspect(path).layout

    def write(self, *lpas: int, mark: bytes = b"a") -> None:
        for lpa in lpas:
            self.device.write(lpa * PAGE, mark * PAGE)

    def holds(self, lpa: int) -> bytes:
        """The byte that the page is full of."""
        page = self.device.read(lpa * PAGE, PAGE)
        assert page == page[:1] * PAGE
        return page[:1]

    def kill(self) -> None:
        self.device.close(clean=False)

    def open(self, **how: object) -> list[str]:
        """Mount; what the mount said."""
        self.device = Device.open(self.path, **{**self.how, **how})
        return list(self.device.recovery.alarms)

    @property
    def figures(self) -> dict[str, int]:
        return self.device.recovery.figures

    def strike(self, at: int, data: bytes | None = None) -> None:
        with self.path.open("r+b") as file:
            file.seek(at)
            data = data or bytes([file.read(1)[0] ^ 0x55])
            file.seek(at)
            file.write(data)

    def wreck(self, *ppas: int) -> None:
        for ppa in ppas:
            self.strike(self.layout.spare_at + ppa * self.layout.stride + self.layout.record_head + 2)

    def rot(self, *ppas: int) -> None:
        for ppa in ppas:
            self.strike(self.layout.data_at + ppa * PAGE + 100)

    def blank(self, ppa: int) -> None:
        self.strike(self.layout.spare_at + ppa * self.layout.stride + 4, b"\xff" * (self.layout.stride - 4))

    def call_bad(self, block: int) -> None:
        """Its entry in the block table says so, whatever it holds."""
        with self.path.open("rb") as file:
            file.seek(self.layout.table_at + 8 * block)
            erases, synced = struct.unpack("<IH", file.read(6))
        self.strike(self.layout.table_at + 8 * block, table_entry(erases, synced, 2))

    def find(self, want: Callable[[Spare], bool]) -> list[int]:
        """PPAs in the closed image, those with the highest sequence numbers last."""
        image = nandimg.open_image(self.path, readonly=True)
        per_block, found = self.geometry.pages_per_block, []
        try:
            for ppa in range(self.geometry.pages):
                status, raw = image.chip.read_spare_area(ppa // per_block, ppa % per_block)
                if status == 1 and want(Spare.of(raw)):
                    found.append((Spare.of(raw).seq, ppa))
        finally:
            image.close()
        return [ppa for _, ppa in sorted(found)]

    def spare(self, ppa: int) -> Spare:
        """What a page of the closed image says of itself."""
        image = nandimg.open_image(self.path, readonly=True)
        try:
            return Spare.of(image.chip.read_spare_area(*divmod(ppa, self.geometry.pages_per_block))[1])
        finally:
            image.close()

    def ppa(self, lpa: int) -> int:
        return self.find(lambda spare: spare.kind == USER and spare.lpa == lpa)[-1]


def sections_bytes(ssd: Any) -> int:
    """What the sections of a checkpoint take that is written now."""
    sections = {**ssd.mapping.save(), **ssd.validity.save(), "pool": ssd.pool.save()}
    return sum(memoryview(section).nbytes for section in sections.values())


def table_entry(erases: int, synced: int, health: int) -> bytes:
    raw = struct.pack("<IHB", erases, synced, health)
    return raw + bytes([(checksum(raw) ^ checksum(bytes(7))) & 0xFF])


def forge(rig: Rig, ppa: int, **fields: int) -> None:
    """Another sequence number, kind, flags, LPA or order in a page's spare area, whose checksum is right."""
    layout = rig.layout
    at = layout.spare_at + ppa * layout.stride
    with rig.path.open("rb") as file:
        file.seek(at)
        raw = bytearray(file.read(layout.record_head + layout.oob_used))
    head = layout.record_head
    if "seq" in fields:
        raw[head : head + 6] = fields["seq"].to_bytes(6, "little")
    raw[head + 6] = fields.get("kind", raw[head + 6])
    raw[head + 7] = fields.get("flags", raw[head + 7])
    if "lpa" in fields:
        struct.pack_into("<I", raw, head + 8, fields["lpa"])
    if "order" in fields:
        raw[head + 12 : head + 18] = fields["order"].to_bytes(6, "little")
    struct.pack_into("<I", raw, 4, checksum(bytes(raw[8:]), checksum(struct.pack("<I", ppa) + bytes(raw[:4]))))
    rig.strike(at, bytes(raw))


def without_a_block(rig: Rig, lpa: int) -> list[int]:
    """Marks the block of that LPA bad in the image; returns the LPAs whose only version is in it."""
    per_block = rig.geometry.pages_per_block
    block = rig.ppa(lpa) // per_block
    found: dict[int, int] = {}
    image = nandimg.open_image(rig.path, readonly=True)
    newest: dict[int, int] = {}
    try:
        for ppa in range(rig.geometry.pages):
            status, raw = image.chip.read_spare_area(ppa // per_block, ppa % per_block)
            spare = Spare.of(raw)
            if status == 1 and spare.kind == USER and spare.seq > newest.get(spare.lpa, 0):
                newest[spare.lpa], found[spare.lpa] = spare.seq, ppa
    finally:
        image.close()
    rig.call_bad(block)
    return [lpa for lpa, ppa in found.items() if ppa // per_block == block]
