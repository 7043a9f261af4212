"""`cp --reflink` on `disk` itself: a range cloned by copy_file_range, compared with one that is copied.

    python examples/clone.py MOUNTPOINT SOURCE TARGET LENGTH

Both ranges have LENGTH bytes. TARGET is written twice, by reads and writes, and by a clone; each time the seconds and
the number of programmed pages are printed. Under an FTL that remaps, a clone programs next to none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PART = 1 << 20


def clone(fd: int, source: int, target: int, length: int) -> None:
    """Clone ``length`` bytes of ranges that do not overlap; one call may do only a part."""
    done = 0
    while done < length:
        done += os.copy_file_range(fd, fd, length - done, source + done, target + done)


def copy(fd: int, source: int, target: int, length: int) -> None:
    """Copy through this process, as `dd` does."""
    for at in range(0, length, PART):
        os.pwrite(fd, os.pread(fd, min(PART, length - at), source + at), target + at)


def measured(disk: Path, how: Callable[[int, int, int, int], None], *ranges: int) -> dict[str, float]:
    """Seconds and programmed pages of ``how`` and a flush."""
    before = json.loads((disk.parent / "stats.json").read_text())["nand"]["program"]
    fd = os.open(disk, os.O_RDWR)
    try:
        os.fsync(fd)
        started = time.perf_counter()
        how(fd, *ranges)
        os.fsync(fd)
        seconds = time.perf_counter() - started
    finally:
        os.close(fd)
    after = json.loads((disk.parent / "stats.json").read_text())["nand"]["program"]
    return {"seconds": seconds, "programs": after - before}


def main() -> None:
    if len(sys.argv) != 5:
        raise SystemExit("usage: clone.py MOUNTPOINT SOURCE TARGET LENGTH, in bytes")
    disk, ranges = Path(sys.argv[1], "disk"), [int(word) for word in sys.argv[2:]]
    for how in (copy, clone):
        found = measured(disk, how, *ranges)
        rate = ranges[2] / found["seconds"] / 1e6
        print(f"{how.__name__:6}{found['seconds']:10.3f} s {rate:10,.0f} MB/s {found['programs']:10,} pages programmed")


if __name__ == "__main__":
    main()
