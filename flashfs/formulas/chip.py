"""A device as GeckoFTL's paper sees one: figure 2, and the latencies of section 5.3."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from flashfs.errors import UsageError
from flashfs.text import shown

ADDRESS_BYTES = 4  #: of a physical address, a block's number, a key
COUNT_BYTES = 2  #: of a block's live pages
MOST = 1 << 70  #: bytes of a capacity: a zettabyte


def ceil(a: float) -> int:
    """A whole number of pages; what is off by a rounding is not one more."""
    return math.ceil(round(a, 9))


@dataclass(frozen=True)
class Chip:
    """The letters of the paper, as far as it has some, are in brackets. Sizes in bytes, times in ns."""

    capacity: int = 1 << 41  #: physical (K B P)
    page_bytes: int = 4096  #: (P)
    pages_per_block: int = 128  #: (B)
    ratio: float = 0.7  #: logical / physical capacity (R)
    cache_bytes: int = 4 << 20  #: of the cached mapping table
    entry_bytes: int = 8  #: of an entry in it
    dirty: float = 0.1  #: share of it that may be dirty, of the schemes that bound that
    size_ratio: int = 2  #: between levels of Logarithmic Gecko (T)
    parts: int = 1  #: its entries a block (S)
    log_share: float = 2  #: entries of a page validity log, in pages beyond the logical ones (X / D)
    log_entry_bytes: int = 12
    read_ns: int = 100_000
    spare_ns: int = 3_000
    program_ns: int = 1_000_000

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
                raise UsageError(f"{one.name} = {value!r:.60}: use a number above 0")
            if one.type == "int" and value != int(value):
                raise UsageError(f"{one.name} = {value!r:.60}: use a whole number")
        if not self.ratio < 1 or self.dirty > 1:
            raise UsageError(f"ratio = {self.ratio:g}, dirty = {self.dirty:g}: use shares below 1, and up to 1")
        if self.size_ratio < 2 or self.parts > self.pages_per_block:
            raise UsageError(f"size_ratio = {self.size_ratio}, parts = {self.parts}: use 2 at least, and no more "
                             f"than a block's {self.pages_per_block} pages")  # fmt: skip
        if self.page_bytes < 64 or self.capacity < 16 * self.pages_per_block * self.page_bytes:
            raise UsageError(f"a device of {shown(self.capacity)}, pages of {shown(self.page_bytes)}: use 16 blocks "
                             "or more, and 64 bytes per page or more")  # fmt: skip

    # --- the device

    @property
    def blocks(self) -> int:
        """K."""
        return self.capacity // (self.page_bytes * self.pages_per_block)

    @property
    def pages(self) -> int:
        return self.blocks * self.pages_per_block

    @property
    def extra_pages(self) -> int:
        """Pages beyond the logical ones: as many are invalid at most (D)."""
        return round(self.pages * (1 - self.ratio))

    # --- the map

    @property
    def table_bytes(self) -> int:
        """The translation table (TT)."""
        return round(ADDRESS_BYTES * self.pages * self.ratio)

    @property
    def table_pages(self) -> int:
        return ceil(self.table_bytes / self.page_bytes)

    @property
    def cached(self) -> int:
        """Entries of the cache (C)."""
        return self.cache_bytes // self.entry_bytes

    @property
    def root_bytes(self) -> int:
        """A B-tree over the translation pages has one in DRAM: as many pointers as it takes when every node below is a
        full page."""
        width, fanout = self.table_pages, self.page_bytes // ADDRESS_BYTES
        while width > fanout:
            width = ceil(width / fanout)
        return ADDRESS_BYTES * width

    # --- which pages are valid

    @property
    def pvb_bytes(self) -> int:
        """A bit a page."""
        return ceil(self.pages / 8)

    @property
    def pvb_pages(self) -> int:
        return ceil(self.pvb_bytes / self.page_bytes)

    @property
    def gecko_entries(self) -> float:
        """Of Logarithmic Gecko a page (V): a key, and the bits of a part of a block."""
        return self.page_bytes / (ADDRESS_BYTES + self.pages_per_block / self.parts / 8)

    @property
    def gecko_largest(self) -> float:
        """Pages of its largest run."""
        return self.blocks * self.parts / self.gecko_entries

    @property
    def gecko_pages(self) -> int:
        """Of all runs: those below the largest are together as large at most."""
        return ceil(2 * self.gecko_largest)

    @property
    def gecko_levels(self) -> int:
        """L."""
        return max(1, math.ceil(math.log(self.gecko_largest, self.size_ratio))) if self.gecko_largest > 1 else 1

    @property
    def log_pages(self) -> int:
        """Of a page validity log at its full size (X)."""
        return ceil(self.log_share * self.extra_pages / (self.page_bytes // self.log_entry_bytes))

    def plain(self) -> dict[str, Any]:
        """For JSON: what was given, and what follows from it."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        names = ("blocks", "pages", "table_pages", "cached", "pvb_pages", "gecko_pages", "gecko_levels", "log_pages")
        return {**given, **{name: getattr(self, name) for name in names}}
