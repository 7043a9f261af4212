"""What SPEC.md says of geckoftl's runs and sections [10], read without flashfs: which pages live, by a checkpoint."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from reader import NONE, Image


@dataclass
class Run:
    number: int
    pages: list[tuple[int, int, int]]  #: (first slot, page number, PPA)
    data_pages: int


class Gecko:
    """Logarithmic Gecko as a whole checkpoint has it."""

    def __init__(self, image: Image, sections: dict[str, bytes]) -> None:
        self.image, self.sections = image, sections
        options = image.header["options"]
        per_block = image.pages_per_block
        parts = min(int(options["parts"]) or max(1, per_block // 32), per_block)
        self.c = -(-per_block // parts)
        self.parts = -(-per_block // self.c)
        self.entry = 4 + -(-self.c // 8)
        self.runs: list[Run] = []
        raw, at = sections["gkruns"], 0
        while at < len(raw):
            number, n, data = struct.unpack_from("<QII", raw, at)
            pages = [struct.unpack_from("<III", raw, at + 16 + 12 * i) for i in range(n)]
            self.runs.append(Run(number, pages, data))
            at += 16 + 12 * n
        self.partial = dict(struct.iter_unpack("<II", sections["gkpart"]))

    def page(self, run: Run, index: int) -> tuple[list[tuple[int, bytes]], list[int], int]:
        """Entries of a page of a run, the items that are in it, and how many the run has."""
        slot, number, ppa = run.pages[index]
        page = self.image.page(ppa)
        assert page.status == "whole" and page.kind == 3 and page.lpa == number
        magic, n, of, at, items, _, here = struct.unpack_from("<4sIQIIII", page.data)
        assert (magic, of, at) == (b"GKRN", run.number, index)
        entries = self.entries(page.data[32 : 32 + n * self.entry])
        assert (n > 0) == (index < run.data_pages) and (not n or entries[0][0] >> 1 == slot)
        end = -(-(32 + n * self.entry) // 8) * 8
        return entries, list(struct.unpack_from(f"<{here}Q", page.data, end)), items

    def entries(self, raw: bytes) -> list[tuple[int, bytes]]:
        """(key, bitmap), ascending."""
        found = [(struct.unpack_from("<I", raw, i)[0], raw[i + 4 : i + self.entry])
                 for i in range(0, len(raw), self.entry)]  # fmt: skip
        slots = [key >> 1 for key, _ in found]
        assert slots == sorted(set(slots))
        return found

    def places(self) -> list[list[tuple[int, bytes]]]:
        """All entries, of the buffer and of each run, the newest first; postambles agree with the section."""
        places = [self.entries(self.sections["gkbuf"])]
        for k, run in enumerate(self.runs):
            entries: list[tuple[int, bytes]] = []
            said: list[int] = []
            for index in range(len(run.pages)):
                more, items, total = self.page(run, index)
                entries += more
                said += items
            assert said[: run.data_pages] == [slot << 32 | number for slot, number, _ in run.pages[: run.data_pages]]
            assert len(said) == total
            assert not {other.number for other in self.runs[k:]} & set(said[run.data_pages :])
            places.append(entries)
        return places

    def live(self) -> set[int]:
        """PPAs of the pages that live in blocks that Gecko knows."""
        places = [{key >> 1: (key & 1, bits) for key, bits in place} for place in self.places()]
        counts = struct.unpack(f"<{self.image.blocks}H", self.sections["bvc"])
        found = set()
        for block, count in enumerate(counts):
            if not count:
                continue
            live = [page for page in range(self.partial.get(block, self.image.pages_per_block))
                    if not self.is_invalid(places, block, page)]  # fmt: skip
            assert len(live) == count, block
            found |= {block * self.image.pages_per_block + page for page in live}
        return found

    def is_invalid(self, places: list[dict[int, tuple[int, bytes]]], block: int, page: int) -> bool:
        part, bit = divmod(page, self.c)
        for place in places:
            bits = place.get(block * self.parts + part, (0, bytes(self.entry - 4)))[1]
            if bits[bit // 8] >> bit % 8 & 1:
                return True
            if place.get(block * self.parts, (0, b""))[0]:
                return False
        return False

    def own(self) -> set[int]:
        """PPAs of translation pages and of pages of runs."""
        named = {ppa for run in self.runs for _, _, ppa in run.pages}
        return named | {ppa for (ppa,) in struct.iter_unpack("<I", self.sections["gtd"]) if ppa != NONE}
