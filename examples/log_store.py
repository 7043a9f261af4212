"""A log-structured store on `disk` itself, whose segments are cleaned by remaps: the valid blocks of a segment move to
the log's end, and no page is written again.

    python examples/log_store.py MOUNTPOINT [BLOCKS [CHANGES]]

plays the same random changes twice, once with a cleaner that reads and writes and once with one that remaps, and
prints the programmed pages. The store keeps the places of its blocks in memory only: it shows cleaning, not recovery.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
from pathlib import Path

from flashfs.fuse import commands

PAGE = 4096
PUNCH = 3  #: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
LIBC = ctypes.CDLL(None, use_errno=True)


class Store:
    """Numbered blocks of one page each, in the first ``segments`` segments of ``pages`` pages of a disk."""

    def __init__(self, disk: Path, segments: int, pages: int = 512, *, remaps: bool = True) -> None:
        self.fd = os.open(disk, os.O_RDWR)
        self.pages, self.remaps = pages, remaps
        self.at: dict[int, int] = {}  # block: its page on the disk
        self.holds: list[dict[int, int]] = [{} for _ in range(segments)]  # for each segment: {valid page: its block}
        self.free = list(range(segments))[::-1]
        self.segment, self.used = self.free.pop(), 0
        self.moved = 0

    def close(self) -> None:
        os.close(self.fd)

    def write(self, block: int, data: bytes) -> None:
        """Write one page of ``data``; it is durable after the next ``sync``."""
        page = self._next()
        os.pwrite(self.fd, data, page * PAGE)
        self._put(block, page)

    def read(self, block: int) -> bytes:
        return os.pread(self.fd, PAGE, self.at[block] * PAGE)

    def sync(self) -> None:
        os.fsync(self.fd)

    def _next(self) -> int:
        """The page at the log's end; cleans if segments run out."""
        if self.used == self.pages:
            if len(self.free) < 3:
                self._clean()
            self._open()
        self.used += 1
        return self.segment * self.pages + self.used - 1

    def _open(self) -> None:
        if self.used == self.pages:
            self.segment, self.used = self.free.pop(), 0

    def _put(self, block: int, page: int) -> None:
        if (old := self.at.get(block)) is not None:
            del self.holds[old // self.pages][old]
        self.at[block] = page
        self.holds[page // self.pages][page] = block

    def _clean(self) -> None:
        """Clean the segments with the fewest valid blocks, until six are free."""
        while len(self.free) < 6:
            self._open()
            closed = [one for one in range(len(self.holds)) if one != self.segment and one not in self.free]
            victim = min(closed, key=lambda one: len(self.holds[one]))
            if len(self.holds[victim]) == self.pages:
                raise SystemExit("log_store: every segment is full of valid blocks: use fewer blocks")
            for first, n in runs(sorted(self.holds[victim])):
                self._move(first, n)
            self.sync()  # the moved blocks are durable: the segment may be trimmed
            LIBC.fallocate(self.fd, PUNCH, ctypes.c_long(victim * self.pages * PAGE), ctypes.c_long(self.pages * PAGE))
            self.free.insert(0, victim)

    def _move(self, first: int, n: int) -> None:
        """Move ``n`` adjacent valid pages to the log's end."""
        while n:
            self._open()
            part = min(n, self.pages - self.used)
            target = self.segment * self.pages + self.used
            if self.remaps:
                commands.remap(self.fd, first * PAGE, target * PAGE, part * PAGE)
            else:
                os.pwrite(self.fd, os.pread(self.fd, part * PAGE, first * PAGE), target * PAGE)
            for i in range(part):
                self._put(self.holds[first // self.pages][first + i], target + i)
            self.used += part
            self.moved += part
            first, n = first + part, n - part


def runs(pages: list[int]) -> list[tuple[int, int]]:
    """[(first, count)] of runs of consecutive numbers."""
    out: list[tuple[int, int]] = []
    for page in pages:
        if out and sum(out[-1]) == page:
            out[-1] = out[-1][0], out[-1][1] + 1
        else:
            out.append((page, 1))
    return out


def programs(mountpoint: Path) -> int:
    """Pages programmed since the mount."""
    return int(json.loads((mountpoint / "stats.json").read_text())["nand"]["program"])


def play(mountpoint: Path, blocks: int, changes: int, *, remaps: bool, pages: int = 512) -> dict[str, int]:
    """Fill the store, change blocks at random, verify all of them. Returns the counts."""
    rnd = random.Random(1)
    segments = blocks * 5 // 4 // pages + 8
    store = Store(mountpoint / "disk", segments, pages, remaps=remaps)
    try:
        LIBC.fallocate(store.fd, PUNCH, ctypes.c_long(0), ctypes.c_long(segments * pages * PAGE))
        store.sync()
        before, held = programs(mountpoint), {}
        for number in range(blocks + changes):
            block = number if number < blocks else rnd.randrange(blocks)
            held[block] = rnd.randbytes(16) * (PAGE // 16)
            store.write(block, held[block])
            if number % 256 == 0:
                store.sync()
        store.sync()
        for block, data in held.items():
            assert store.read(block) == data, f"block {block} is not what was written last"
        return {"written": blocks + changes, "moved": store.moved, "programs": programs(mountpoint) - before}
    finally:
        store.close()


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit("usage: log_store.py MOUNTPOINT [BLOCKS [CHANGES]]")
    mountpoint, numbers = Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    blocks, changes = (*numbers, *(16_384, 65_536)[len(numbers) :])
    for remaps in (False, True):
        found = play(mountpoint, blocks, changes, remaps=remaps)
        how = "remaps" if remaps else "copies"
        print(f"{how}: {found['written']:,} blocks written, {found['moved']:,} moved by cleaning, "
              f"{found['programs']:,} pages programmed")  # fmt: skip


if __name__ == "__main__":
    main()
