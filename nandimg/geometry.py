"""The shape and the speed of a chip, and the arithmetic that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from nandimg.errors import GeometryError

LPA_LIMIT = 2**32 - 16  #: values from here up are marks (none, pad); a page address has 32 bits everywhere
BLOCKS_LIMIT = 2**26
OOB_LIMIT = 2048  #: bytes; the largest spare area a geometry may have
ERASE_LIMIT = 2**32 - 2  #: erases of one block that the image can count
NVRAM_LIMIT = 2**32  #: bytes; every recovery reads all of it
ENDURANCE = 3_000  #: default erases that a block endures: typical for cells of three bits
TIME_LIMIT_NS = 10**9  #: for one flash operation: virtual time is a signed 64-bit number and must not overflow


@dataclass(frozen=True, slots=True)
class Geometry:
    """One chip. Blocks are numbered so that block b lies on die ``b % dies`` and die d on channel ``d % channels``;
    blocks of equal ``b // dies`` form a superblock. A page's PPA is ``block * pages_per_block + page``; its VPPN uses
    another order: consecutive numbers lie on consecutive channels, then dies, then pages, then superblocks.

    Times are in nanoseconds: ``read_ns``, ``program_ns`` and ``erase_ns`` occupy the die, ``transfer_ns`` is one page
    over the channel, ``spare_ns`` reads one spare area (die only); ``nvram_read_ns`` and ``nvram_write_ns`` are for a
    line of 64 bytes of the NVRAM. ``lpas`` is the size that the host sees, in pages. ``nvram_bytes`` is all the NVRAM
    of the chip; binding a scheme that asks for NVRAM adds to it.

    ``paired_pages`` d > 0: cells hold two bits; d pages in order are lower pages, the next d their upper pages, and so
    on. An interrupted program of an upper page destroys its lower page too.

    ``endurance`` is the number of erases that a block endures. It is used for wear levelling; no block fails because of
    it (that takes a fault).
    """

    page_bytes: int = 4096
    pages_per_block: int = 256
    blocks: int = 1024
    channels: int = 1
    dies: int = 1
    oob_bytes: int = 128
    lpas: int = 222_822
    nvram_bytes: int = 0
    read_ns: int = 50_000
    program_ns: int = 500_000
    erase_ns: int = 3_000_000
    transfer_ns: int = 5_000
    spare_ns: int = 5_000
    paired_pages: int = 0
    nvram_read_ns: int = 0
    nvram_write_ns: int = 0
    endurance: int = ENDURANCE

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 0:
                raise GeometryError(f"{field.name} is {value!r}: use a whole number from 0 up")
        self._bounds("page_bytes", 512, 1 << 18)
        if self.page_bytes & (self.page_bytes - 1):
            raise GeometryError(f"page_bytes is {self.page_bytes}: use a power of two")
        self._bounds("pages_per_block", 4, 1 << 14)
        self._bounds("blocks", 8, BLOCKS_LIMIT)
        self._bounds("channels", 1, 1024)
        self._bounds("dies", 1, 4096)
        self._bounds("oob_bytes", 16, OOB_LIMIT)
        if self.dies % self.channels:
            raise GeometryError(f"dies is {self.dies}: use a multiple of channels ({self.channels})")
        if self.blocks % self.dies:
            raise GeometryError(f"blocks is {self.blocks}: use a multiple of dies ({self.dies})")
        group = 2 * self.paired_pages
        if group and (group > self.pages_per_block // 2 or self.pages_per_block % group):
            raise GeometryError(
                f"paired_pages is {self.paired_pages}: use 0, or one of which {self.pages_per_block} pages per "
                "block hold two or more whole groups (lower and upper pages)"
            )
        if self.pages > LPA_LIMIT:
            raise GeometryError(f"{self.pages} pages: a page address has 32 bits, so {LPA_LIMIT} at most")
        self._bounds("lpas", 1, self.pages)
        self._bounds("nvram_bytes", 0, NVRAM_LIMIT)
        self._bounds("endurance", 1, ERASE_LIMIT)
        for name in ("read_ns", "program_ns", "erase_ns", "transfer_ns", "spare_ns", "nvram_read_ns", "nvram_write_ns"):
            self._bounds(name, 0, TIME_LIMIT_NS)

    def _bounds(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise GeometryError(f"{name} is {value}: use {low} to {high}")

    @property
    def pages(self) -> int:
        """Physical pages of the chip."""
        return self.blocks * self.pages_per_block

    @property
    def physical_bytes(self) -> int:
        return self.pages * self.page_bytes

    @property
    def logical_bytes(self) -> int:
        """The size that the host sees."""
        return self.lpas * self.page_bytes

    @property
    def op(self) -> float:
        """Over-provisioning: physical / logical - 1."""
        return self.pages / self.lpas - 1

    @property
    def superblocks(self) -> int:
        """The number of superblocks: blocks per die."""
        return self.blocks // self.dies

    def vppn(self, ppa: int) -> int:
        """The virtual PPN of a page: its number in the order in which each page is on the next die in turn. ``ppa`` is
        not checked."""
        block, page = divmod(ppa, self.pages_per_block)
        offset, die = divmod(block, self.dies)
        return die + (page + offset * self.pages_per_block) * self.dies

    def ppa(self, vppn: int) -> int:
        """The inverse of ``vppn``, whose argument is not checked either."""
        row, die = divmod(vppn, self.dies)
        offset, page = divmod(row, self.pages_per_block)
        return (offset * self.dies + die) * self.pages_per_block + page

    @classmethod
    def sized(cls, size_bytes: int, op: float = 0.1, **shape: int) -> Geometry:
        """A chip that exports ``size_bytes`` and has 1 + ``op`` times that of flash, rounded up to whole superblocks
        and to 8 blocks at least. GeometryError unless the size is a multiple of the page and 0 < ``op`` <= 100."""
        probe = cls(**{**shape, "lpas": 1, "blocks": _room_for_one(shape)})
        if size_bytes <= 0 or size_bytes % probe.page_bytes:
            raise GeometryError(f"size is {size_bytes} bytes: use a multiple of the page ({probe.page_bytes})")
        if not 0 < op <= 100:
            raise GeometryError(f"op is {op}: use a share above 0, 0.1 for ten per cent")
        lpas = size_bytes // probe.page_bytes
        superblock_pages = probe.pages_per_block * probe.dies
        blocks = math.ceil(round(lpas * (1 + op), 6) / superblock_pages) * probe.dies
        least = math.ceil(8 / probe.dies) * probe.dies
        return replace(probe, lpas=lpas, blocks=max(blocks, least))

    def as_dict(self) -> dict[str, int]:
        """{field: value} of all fields, in their order: the arguments that make an equal Geometry."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _room_for_one(shape: dict[str, int]) -> int:
    dies = max(1, shape.get("dies", 1))
    return math.ceil(8 / dies) * dies
