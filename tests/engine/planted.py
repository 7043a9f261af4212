"""A good FTL with every method that one can have, and a way to make it err: tests plant mistakes in it one by one.

`use(cls)` puts a class under the name that images are bound to, so that the same image can be opened with another.
"""

from __future__ import annotations

import struct
import sys
from types import ModuleType
from typing import Any, ClassVar

from flashfs.plugin import Chip

NAME = "planted:Ftl"


def use(cls: type, name: str = NAME) -> str:
    """From now on `planted:Ftl`, or another name, is this class."""
    module_name, _, class_name = name.partition(":")
    module = ModuleType(module_name)
    setattr(module, class_name, cls)
    sys.modules[module_name] = module
    return name


class Good:
    """A page map in a dict."""

    armed: ClassVar[bool] = False  # mistakes wait for this

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.at: dict[int, int] = {}

    def lookup(self, lpa: int) -> Any:
        return self.at.get(lpa)

    def bind(self, lpa: int, ppa: int) -> None:
        self.at[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        del self.at[lpa]


class Saving(Good):
    """Its own form of a checkpoint: only what is mapped."""

    @staticmethod
    def save_bytes(lpas: int) -> int:
        return 8 * lpas

    def save(self) -> Any:
        return b"".join(struct.pack("<II", *item) for item in sorted(self.at.items()))

    def load(self, saved: bytes) -> None:
        self.at = dict(struct.iter_unpack("<II", saved))


class Stamping(Saving):
    """Each page carries its LPA and its PPA once more."""

    oob_bytes = 8

    def stamp(self, lpa: int, ppa: int) -> Any:
        return struct.pack("<II", lpa, ppa)

    def recovered(self, lpa: int, ppa: int, oob: bytes) -> None:
        stamped = struct.unpack("<II", oob)
        if stamped[0] != lpa:
            raise AssertionError(f"LPA {lpa} has the stamp of {stamped[0]}")
        self.at[lpa] = ppa


class Guessing(Saving):
    """lookup says the block alone, and guesses its first page; after_miss goes through the others in turn."""

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.per_block = chip.pages_per_block

    def lookup(self, lpa: int) -> Any:
        ppa = self.at.get(lpa)
        return None if ppa is None else ppa - ppa % self.per_block

    def after_miss(self, lpa: int, ppa: int) -> Any:
        return ppa + 1 if (ppa + 1) % self.per_block else None


class Validating(Good):
    """A set of live pages."""

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.living: set[int] = set()

    def live(self, ppa: int) -> None:
        self.living.add(ppa)

    def dead(self, ppa: int) -> None:
        self.living.remove(ppa)

    def is_live(self, ppa: int) -> Any:
        return ppa in self.living


class Late(Validating):
    """Learns of a death when seven more have come."""

    late = True

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.queue: list[int] = []

    def live(self, ppa: int) -> None:
        if ppa in self.queue:
            self.queue.remove(ppa)
        super().live(ppa)

    def dead(self, ppa: int) -> None:
        self.queue.append(ppa)
        if len(self.queue) > 7:
            super().dead(self.queue.pop(0))


class Placing(Good):
    """Even and odd LPAs in blocks of their own, which go on to be filled after a clean mount."""

    host_blocks = 2
    gc_blocks = 2

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.open: dict[Any, int] = {}

    def place(self, stream: str, lpas: list[int]) -> Any:
        lane = (stream, lpas[0] % 2)
        if lane not in self.open:
            self.open[lane] = self.chip.open_block(die=self.chip.dies - 1)
        return self.open[lane], 1

    def closed(self, block: int) -> None:
        self.open = {lane: its for lane, its in self.open.items() if its != block}

    def attach(self, blocks: dict[int, str]) -> Any:
        for wanted in ("host", "gc"):
            mine = [block for block, stream in blocks.items() if stream == wanted]
            self.open.update(zip(((wanted, 0), (wanted, 1)), mine, strict=False))
        return self.open.values()


class Cleaning(Good):
    """The block with the fewest live pages, the youngest of several."""

    def victim(self) -> Any:
        return min(self.chip.closed_blocks(), key=lambda block: (self.chip.live(block), self.chip.age(block)))


GOOD = (Good, Saving, Stamping, Guessing, Validating, Late, Placing, Cleaning)
