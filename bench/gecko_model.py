"""What GeckoFTL and the FTLs that it is compared with cost by their paper, counted without flashfs (N. Dayan et al.,
GeckoFTL, SIGMOD 2016): a page map under uniform updates, greedy cleaning of blocks of user pages, the LRU cache of
section 4 with what each FTL does otherwise (5.3), and validity in Logarithmic Gecko (3), in a bitmap in flash, or in a
log with a chain for each block (Appendix E). Blocks of metadata are not modelled, so nothing of them is ever moved.

    python bench gecko_model [--blocks 2048] [FTL ...]     # a line of JSON for each

An entry of a moved page is a dirty one of the cache, as in the paper. What flashfs does otherwise docs/ftl/geckoftl.md
says so beside the figures.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from typing import Any

PAGE = 4096
ENTRIES = PAGE // 4  #: of a translation page
DELTA = 10  #: a program costs as much as so many reads


class Cost:
    """Reads and programs for one purpose."""

    def __init__(self) -> None:
        self.reads = self.programs = 0

    def a_write(self, writes: int) -> dict[str, float]:
        reads, programs = self.reads / writes, self.programs / writes
        return {"programs": round(programs, 5), "reads": round(reads, 5), "wa": round(programs + reads / DELTA, 5)}


class NoValidity:
    """A bitmap in DRAM."""

    def __init__(self, *_: int) -> None:
        self.cost = Cost()

    def dead(self, ppa: int) -> None:
        pass

    def asked(self, block: int) -> None:
        pass

    def erased(self, block: int) -> None:
        pass


class BitmapInFlash(NoValidity):
    """Each report rewrites its page of the bitmap; ``frames`` pages of it are in DRAM for reading."""

    def __init__(self, blocks: int, pages: int, frames: int = 4) -> None:
        super().__init__()
        self.pages, self.blocks_a_page, self.frames = pages, PAGE * 8 // pages, frames
        self.held: OrderedDict[int, None] = OrderedDict()

    def fetch(self, page: int) -> None:
        if page in self.held:
            self.held.move_to_end(page)
            return
        self.cost.reads += 1
        self.held[page] = None
        if len(self.held) > self.frames:
            self.held.popitem(last=False)

    def dead(self, ppa: int) -> None:
        self.fetch(ppa // self.pages // self.blocks_a_page)
        self.cost.programs += 1

    def asked(self, block: int) -> None:
        self.fetch(block // self.blocks_a_page)


class ChainedLog(NoValidity):
    """Appendix E: an entry a report, {PPA, clock, previous entry of the block}; beyond ``most`` entries the oldest page
    goes, and of its entries those that count are logged again."""

    def __init__(self, blocks: int, pages: int, most: int) -> None:
        super().__init__()
        self.pages, self.most, self.entries_a_page = pages, most, PAGE // 12
        self.buffer: list[int] = []
        self.log: OrderedDict[int, list[int]] = OrderedDict()   # page of the log -> PPAs
        self.pages_of: dict[int, set[int]] = defaultdict(set)   # block -> pages of the log with entries of it
        self.gone: dict[int, int] = {}                          # block -> the log's page number when it was erased
        self.number = 0

    def dead(self, ppa: int) -> None:
        self.buffer.append(ppa)
        if len(self.buffer) >= self.entries_a_page:
            self.flush()

    def flush(self) -> None:
        self.number += 1
        self.cost.programs += 1
        self.log[self.number], self.buffer = self.buffer, []
        for ppa in self.log[self.number]:
            self.pages_of[ppa // self.pages].add(self.number)
        while len(self.log) * self.entries_a_page > self.most:
            number, entries = self.log.popitem(last=False)
            self.cost.reads += 1
            for ppa in entries:
                self.pages_of[ppa // self.pages].discard(number)
                if self.gone.get(ppa // self.pages, -1) < number:
                    self.dead(ppa)

    def asked(self, block: int) -> None:
        self.cost.reads += len(self.pages_of[block])

    def erased(self, block: int) -> None:
        self.gone[block] = self.number
        self.pages_of[block].clear()
        self.buffer = [ppa for ppa in self.buffer if ppa // self.pages != block]


class LogarithmicGecko(NoValidity):
    """Section 3: a buffer of one page of ``room`` entries; one run a level, of ``ratio``^level pages and more; a merge
    takes all runs at once that it reaches (Appendix A). An entry is a key with a piece of a block's bitmap."""

    ERASE = -1

    def __init__(self, blocks: int, pages: int, parts: int = 4, room: int = 496, ratio: int = 2) -> None:
        super().__init__()
        self.pages, self.parts, self.room, self.ratio = pages, parts, room, ratio
        self.buffer: dict[int, set[int]] = {}
        self.runs: list[tuple[list[int], dict[int, set[int]]]] = []  # the newest first: keys that begin pages, entries

    def size(self, entries: int) -> int:
        return -(-entries // self.room)

    def level(self, pages: int) -> int:
        found = 0
        while pages >= self.ratio ** (found + 1):
            found += 1
        return found

    def key_of(self, ppa: int) -> int:
        block, page = divmod(ppa, self.pages)
        return block * self.parts + page * self.parts // self.pages

    def dead(self, ppa: int) -> None:
        self.buffer.setdefault(self.key_of(ppa), set()).add(ppa % self.pages)
        self.flush_full()

    def erased(self, block: int) -> None:
        for key in range(block * self.parts, (block + 1) * self.parts):
            self.buffer.pop(key, None)
        self.buffer[block * self.parts] = {self.ERASE}
        self.flush_full()

    def flush_full(self) -> None:
        if len(self.buffer) < self.room:
            return
        total, take = self.size(len(self.buffer)), 0
        while take < len(self.runs) and self.level(total) >= self.level(len(self.runs[take][0])):
            total += len(self.runs[take][0])
            take += 1
        self.merge([self.buffer, *(entries for _, entries in self.runs[:take])], take)
        self.buffer = {}
        while len(self.runs) > 1 and self.level(len(self.runs[0][0])) >= self.level(len(self.runs[1][0])):
            self.merge([entries for _, entries in self.runs[:2]], 2)

    def merge(self, inputs: list[dict[int, set[int]]], take: int) -> None:
        self.cost.reads += sum(len(starts) for starts, _ in self.runs[:take])
        made: dict[int, set[int]] = {}
        hidden: set[int] = set()
        for entries in inputs:              # the newest first
            flagged = set()
            for key, piece in entries.items():
                if key // self.parts in hidden:
                    continue
                if self.ERASE in piece:
                    flagged.add(key // self.parts)
                made[key] = made.get(key, set()) | piece
            hidden |= flagged
        if take == len(self.runs):          # nothing is older: flags hide nothing
            made = {key: piece - {self.ERASE} for key, piece in made.items() if piece != {self.ERASE}}
        keys = sorted(made)
        starts = keys[:: self.room]
        self.cost.programs += len(starts)
        self.runs[:take] = [(starts, made)] if keys else []

    def asked(self, block: int) -> None:
        first, last = block * self.parts, (block + 1) * self.parts - 1
        if self.ERASE in self.buffer.get(first, ()):
            return
        for starts, entries in self.runs:
            at, end = max(0, bisect_right(starts, first) - 1), bisect_right(starts, last)
            self.cost.reads += max(0, end - at)
            if self.ERASE in entries.get(first, ()):
                return


class Model:
    """A device of ``blocks`` blocks of ``pages`` user pages, ``share`` of them logical, with a cache of ``slots``
    entries. ``lazy``: a write reads no translation page, and old pages are identified when that is rewritten (4.1).
    ``dirty``: per cent of the cache that may be dirty. ``fences``: entries that were dirty at the fence before and have
    not changed, are written each ``slots`` changes of the cache (4.3)."""

    def __init__(
        self, blocks: int, pages: int, share: float, slots: int, validity: NoValidity, *, lazy: bool = False,
        dirty: int = 100, fences: bool = False, seed: int = 1,
    ) -> None:  # fmt: skip
        self.pages, self.slots, self.validity, self.lazy, self.fences = pages, slots, validity, lazy, fences
        self.dirty_most = max(1, slots * dirty // 100)
        self.lpas = int(blocks * pages * share)
        self.draw = random.Random(seed)
        self.map = Cost()
        self.newest = [-1] * self.lpas      # PPA by LPA
        self.stored = [-1] * self.lpas      # ... as translation pages say
        self.lpa_at = [-1] * (blocks * pages)
        self.live = [0] * blocks
        self.free = list(range(blocks - 1, -1, -1))
        self.open: dict[str, tuple[int, int]] = {}
        self.closed: set[int] = set()
        self.heap: list[tuple[int, int]] = []
        self.cache: OrderedDict[int, list[Any]] = OrderedDict()  # LPA -> [dirty, old page unknown, fence of its change]
        self.dirty: dict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)  # translation page -> its dirty LPAs
        self.oldest_dirty: OrderedDict[int, None] = OrderedDict()
        self.changes = self.fence = self.writes = self.moves = 0

    # --- the cache

    def write_back(self, page: int) -> None:
        self.map.reads += 1
        self.map.programs += 1
        for lpa in self.dirty.pop(page, ()):
            entry = self.cache[lpa]
            if entry[1] and self.stored[lpa] >= 0 and self.stored[lpa] != self.newest[lpa]:
                self.report(self.stored[lpa])
            entry[0] = entry[1] = False
            self.oldest_dirty.pop(lpa, None)
            self.stored[lpa] = self.newest[lpa]

    def changed(self, lpa: int, unknown: bool) -> None:
        """The entry of an LPA is set by a write or a move."""
        entry = self.cache.get(lpa)
        if entry is None:
            while len(self.cache) >= self.slots:
                coldest, there = next(iter(self.cache.items()))
                if there[0]:
                    self.write_back(coldest // ENTRIES)
                del self.cache[coldest]
            entry = self.cache[lpa] = [False, unknown, self.fence]
        if not entry[0]:
            while len(self.oldest_dirty) >= self.dirty_most:
                self.write_back(next(iter(self.oldest_dirty)) // ENTRIES)
            entry[0] = True
            self.oldest_dirty[lpa] = None
            self.dirty[lpa // ENTRIES][lpa] = None
        entry[2] = self.fence
        self.cache.move_to_end(lpa)
        self.changes += 1
        if self.fences and self.changes % self.slots == 0:
            late = [lpa for lpa, one in self.cache.items() if one[0] and one[2] < self.fence]
            for lpa in late:
                if self.cache[lpa][0]:
                    self.write_back(lpa // ENTRIES)
            self.fence += 1

    # --- user pages

    def report(self, ppa: int) -> None:
        block = ppa // self.pages
        self.validity.dead(ppa)
        self.live[block] -= 1
        if block in self.closed:
            heapq.heappush(self.heap, (self.live[block], block))

    def program(self, stream: str, lpa: int) -> None:
        block, page = self.open.get(stream, (-1, self.pages))
        if page == self.pages:
            if block >= 0:
                self.closed.add(block)
                heapq.heappush(self.heap, (self.live[block], block))
            block, page = self.free.pop(), 0
        self.open[stream] = (block, page + 1)
        ppa = block * self.pages + page
        self.lpa_at[ppa], self.newest[lpa] = lpa, ppa
        self.live[block] += 1

    def clean(self) -> None:
        while True:
            live, victim = heapq.heappop(self.heap)
            if victim in self.closed and self.live[victim] == live:
                break
        self.closed.discard(victim)
        self.validity.asked(victim)
        moved = []
        for ppa in range(victim * self.pages, (victim + 1) * self.pages):
            lpa = self.lpa_at[ppa]
            if lpa >= 0 and self.newest[lpa] == ppa:
                self.program("gc", lpa)
                moved.append(lpa)
            elif lpa in self.cache and self.stored[lpa] == ppa:
                self.cache[lpa][1] = False  # its old page was not identified, and goes with this block
            self.lpa_at[ppa] = -1
        self.live[victim] = 0
        self.validity.erased(victim)
        self.free.insert(0, victim)
        self.moves += len(moved)
        for lpa in moved:
            self.changed(lpa, unknown=False)

    def write(self, lpa: int) -> None:
        while len(self.free) < 4:
            self.clean()
        old, known = self.newest[lpa], lpa in self.cache
        if not known and not self.lazy and self.stored[lpa] >= 0:
            self.map.reads += 1
        self.program("host", lpa)
        if old >= 0 and (known or not self.lazy):
            self.report(old)
        self.changed(lpa, unknown=self.lazy and not known and old >= 0)
        self.writes += 1

    def run(self, writes: int) -> dict[str, Any]:
        """Fill the device, overwrite it 1.75 times, then count ``writes`` more."""
        for lpa in range(self.lpas):
            self.write(lpa)
        for _ in range(self.lpas * 7 // 4):
            self.write(self.draw.randrange(self.lpas))
        self.writes = self.moves = 0
        self.map = Cost()
        self.validity.cost = Cost()
        for _ in range(writes):
            self.write(self.draw.randrange(self.lpas))
        return {"map": self.map.a_write(writes), "validity": self.validity.cost.a_write(writes),
                "moves": round(self.moves / writes, 4)}  # fmt: skip


def modelled(ftl: str, blocks: int, pages: int, share: float, slots: int, writes: int) -> dict[str, Any]:
    """What ``ftl`` costs a page written: programs, reads and WA for the map and for validity."""
    beyond = blocks * pages - int(blocks * pages * share)
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "dftl": (NoValidity, {}),
        "lazyftl": (NoValidity, {"dirty": 10, "fences": True}),
        "muftl": (BitmapInFlash, {}),
        "ibftl": (lambda *size: ChainedLog(*size, 2 * beyond), {"dirty": 10, "fences": True}),
        "geckoftl": (LogarithmicGecko, {"lazy": True, "fences": True}),
    }
    validity, how = made[ftl]
    return {"ftl": ftl, "blocks": blocks, "C": slots, **Model(
        blocks, pages, share, slots, validity(blocks, pages), **how).run(writes)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ftl", nargs="*", default=["dftl", "lazyftl", "muftl", "ibftl", "geckoftl"])
    parser.add_argument("--blocks", type=int, default=2048)
    parser.add_argument("--pages-per-block", type=int, default=128)
    parser.add_argument("--ratio", type=float, default=0.7)
    parser.add_argument("--writes", type=int, default=300_000)
    asked = parser.parse_args()
    for ftl in asked.ftl:
        print(json.dumps(modelled(ftl, asked.blocks, asked.pages_per_block, asked.ratio, asked.blocks // 8,
                                  asked.writes)), flush=True)  # fmt: skip
