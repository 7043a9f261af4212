"""Hot pages apart from cold ones: an FTL that brings its own placement and its own cleaning.

    flashfs mount --ftl examples.hotcold:HotCold --opt hot=2 ssd.img mnt

Pages that are overwritten soon should share blocks: then a block dies as a whole, and cleaning it
moves little. The idea is as old as log-structured file systems (M. Rosenblum and J. Ousterhout, SOSP '91), and so is
its cleaning policy: of two equally full blocks, clean the older one, whose live pages have proved cold, and give the
younger one time to lose more pages.
"""

from __future__ import annotations

from typing import Any

from flashfs.plugin import Chip, Option

HOT, COLD, MOVED = "hot", "cold", "moved"  # the lanes: each has an open block of its own


class HotCold:
    """Hot and cold apart. Pages written often share blocks, and what cleaning moved lies by itself."""

    paper = "cost-benefit cleaning: Rosenblum and Ousterhout, SOSP'91"
    options = (
        Option("hot", 2, "writes since the last ageing from which on a page is hot", low=1, high=15),
        Option("age_every", 4, "ageing halves all counts after so many writes per page", low=1, high=15),
    )

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.ppa_of: dict[int, int] = {}
        self.writes_of = bytearray(chip.lpas)
        self.until_ageing = chip.lpas * chip.options["age_every"]
        # How many blocks are open at once. A chip with few spare blocks has one for the host.
        self.host_blocks = 2 if chip.spare_blocks >= 5 else 1
        self.gc_blocks = 1
        self.open: dict[str, int] = {}  # lane -> its block

    # --- mapping: a dict

    def lookup(self, lpa: int) -> int | None:
        return self.ppa_of.get(lpa)

    def bind(self, lpa: int, ppa: int) -> None:
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        del self.ppa_of[lpa]
        self.writes_of[lpa] = 0

    # --- placement: which lane, and which block is the lane's

    def place(self, stream: str, lpas: list[int]) -> tuple[int, int]:
        """(block, n): the first ``n`` pages belong to one lane and go to its block. Called once for each write of the
        host and once for each move, so writes are counted here."""
        lane, n = self.lane_of(stream, lpas)
        if lane not in self.open:
            self.open[lane] = self.chip.open_block()
        block = self.open[lane]
        n = min(n, self.chip.room(block))
        if stream == "host":
            self.count(lpas[:n])
        return block, n

    def lane_of(self, stream: str, lpas: list[int]) -> tuple[str, int]:
        """The lane of the first page, and how many pages from the first on share it."""
        if stream == "gc":
            return MOVED, len(lpas)
        if self.host_blocks == 1:
            return COLD, len(lpas)
        hot = self.writes_of[lpas[0]] >= self.chip.options["hot"]
        n = 1
        while n < len(lpas) and (self.writes_of[lpas[n]] >= self.chip.options["hot"]) == hot:
            n += 1
        return HOT if hot else COLD, n

    def count(self, lpas: list[int]) -> None:
        for lpa in lpas:
            self.writes_of[lpa] = min(self.writes_of[lpa] + 1, 255)
        self.until_ageing -= len(lpas)
        if self.until_ageing <= 0:  # pages that are no longer written cool down
            self.writes_of = bytearray(n // 2 for n in self.writes_of)
            self.until_ageing = self.chip.lpas * self.chip.options["age_every"]

    def closed(self, block: int) -> None:
        """The block is full or failed: the next page of its lane opens another."""
        self.open = {lane: its for lane, its in self.open.items() if its != block}

    # --- cleaning: benefit over cost

    def victim(self) -> int:
        """The closed block with the best benefit over cost. Reading it costs 1, writing its live share u back costs u;
        the gain is 1 - u, and lasts for about as long as the block has been quiet."""
        per_block = self.chip.pages_per_block

        def benefit(block: int) -> float:
            u = self.chip.live(block) / per_block
            return (1 - u) * (self.chip.age(block) + 1) / (1 + u)

        return max(self.chip.closed_blocks(), key=benefit)

    # --- for people

    def dram(self) -> dict[str, int]:
        return {"page_table": 4 * self.chip.lpas, "write_counts": self.chip.lpas // 2}  # four bits hold a count

    def figures(self) -> dict[str, Any]:
        hot = self.chip.options["hot"]
        return {"lanes_open": len(self.open), "hot_pages": sum(n >= hot for n in self.writes_of)}
