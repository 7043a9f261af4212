"""A page map, explained: the baseline of every FTL paper.

    flashfs create ssd.img --size 256M
    flashfs mount --ftl examples.tutorial:PageMap ssd.img mnt

Flash cannot be overwritten. A page is programmed once, and it becomes blank again only when its whole block is erased.
So each write of a logical page (LPA) goes to some blank physical page (PPA), and the flash
translation layer must remember which. This class is all that it must remember. What an SSD needs besides (which block
to write next, which to clean, wear levelling, a write buffer, checkpoints, recovery after a power cut), the engine of
flashfs does for every FTL alike.

How the engine calls it:

    the host writes LPA 5     a page is programmed first, say PPA 77; then bind(5, 77). If the power goes during the
                              program, LPA 5 is at its old place, and that page is still there. If it goes after the
                              program, recovery finds PPA 77 by its OOB and binds it.
    the host reads LPA 5      lookup(5) -> 77. The engine checks that the OOB of page 77 has LPA 5.
    the host trims LPA 5      unbind(5). From now on it reads zeros.
    cleaning moves a page     its copy is programmed first, then bind(5, 1033): to the map, a move is another bind.
    a checkpoint is due       save() -> bytes; load(bytes) at the next mount. What was programmed after the checkpoint,
                              the engine finds in flash and binds again: no FTL has to write a recovery.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

from flashfs.plugin import Chip, Option  # for the types and the option; a plug-in need not import anything

NOWHERE = 2**32 - 1  # no chip has so many pages


class PageMap:
    """Tutorial page map. One 4-byte PPA per LPA in an array, plus a count of how often each host page was written."""

    paper = "every textbook"  # `flashfs ftls examples.tutorial:PageMap` shows this, and the first line above

    # What `--opt hot=16` sets; the engine adds its own options to these.
    options = (Option("hot", 8, "writes after which `flashfs dump IMAGE lpa N` calls a page hot", low=1, high=255),)

    def __init__(self, chip: Chip) -> None:
        """A new object is an empty map. The engine makes one whenever it starts from nothing: at a mount, and again if
        a recovery is repeated. ``chip`` has the geometry and the options."""
        self.ppa_of = array("I", [NOWHERE]) * chip.lpas
        self.writes_of = bytearray(chip.lpas)  # one byte each, saturating at 255
        self.hot = chip.options["hot"]

    # --- the three methods that every FTL must have

    def lookup(self, lpa: int) -> int | None:
        """The PPA of ``lpa``. None: not mapped, it reads zeros."""
        ppa = self.ppa_of[lpa]
        return None if ppa == NOWHERE else ppa

    def bind(self, lpa: int, ppa: int) -> None:
        """``lpa`` is at ``ppa`` now. Its old page needs no care here: the engine asked lookup() first, and counts that
        page as dead. A block with many dead pages is worth cleaning."""
        self.ppa_of[lpa] = ppa
        if self.writes_of[lpa] < 255:
            self.writes_of[lpa] += 1

    def unbind(self, lpa: int) -> None:
        """``lpa`` was trimmed. The engine calls this only for a mapped page."""
        self.ppa_of[lpa] = NOWHERE

    # --- checkpoints: without these, the engine asks lookup() for every page and saves the answers

    @staticmethod
    def save_bytes(lpas: int) -> int:
        """The most bytes that save() ever returns: the engine reserves that much flash."""
        return 5 * lpas

    def save(self) -> bytes:
        """What load() needs. Before a checkpoint counts, the engine has a second object load this, and compares the two
        maps, so that no checkpoint of an incomplete save() is ever used."""
        return _little_endian(self.ppa_of).tobytes() + self.writes_of

    def load(self, saved: bytes) -> None:
        """The inverse, called on a new object."""
        lpas = len(saved) // 5
        self.ppa_of = _little_endian(array("I", saved[: 4 * lpas]))
        self.writes_of = bytearray(saved[4 * lpas :])

    # --- for people: what `stats.json`, `--dram` and `flashfs dump` show

    def dram(self) -> dict[str, int]:
        """Bytes by structure, as a controller would hold them. `--dram 1M` refuses an FTL that needs more."""
        return {"page_table": 4 * len(self.ppa_of), "write_counts": len(self.writes_of)}

    def figures(self) -> dict[str, Any]:
        """The scheme's own statistics."""
        return {"hot_pages": sum(n >= self.hot for n in self.writes_of)}

    def explain(self, lpa: int) -> dict[str, Any]:
        """What the structures have on one page; the engine adds its PPA."""
        return {"writes": self.writes_of[lpa], "hot": self.writes_of[lpa] >= self.hot}

    def check(self) -> list[str]:
        """A line for each broken invariant of this class, for `flashfs fsck`. The engine itself checks that the map
        agrees with flash."""
        pages = enumerate(zip(self.ppa_of, self.writes_of, strict=True))
        return [f"LPA {lpa}: mapped, and never written" for lpa, (ppa, n) in pages if ppa != NOWHERE and n == 0]


def _little_endian(table: array[int]) -> array[int]:
    """A copy in little-endian order, on any machine."""
    table = array("I", table)
    if sys.byteorder == "big":
        table.byteswap()
    return table
