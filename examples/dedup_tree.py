"""A tree of files and copies of it, on a file system whose device deduplicates pages.

    flashfs up ssd.img MOUNTPOINT --fs ext4 --ftl remapssd --opt dedup=on
    python examples/dedup_tree.py DEVICE FOLDER TREE [COPIES]

FOLDER, in the file system, gets TREE and COPIES copies of it (3), each in a folder of its own, and each made durable
by one sync of the file system. DEVICE is the folder of `disk` and `stats.json`; `flashfs status` prints it. For each
copy this prints the bytes of the files, the pages that the file system wrote, those programmed, and those found in
flash and not programmed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


def figures(device: Path) -> dict[str, int]:
    """Pages since the mount: written by the host, programmed, and found (by an FTL that deduplicates)."""
    stats = json.loads((device / "stats.json").read_text())
    return {"written": stats["host"]["write"], "programmed": stats["nand"]["program"],
            "found": stats["scheme"].get("dedup_found", 0)}  # fmt: skip


def sync(folder: Path) -> None:
    """Sync this file system alone."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(fd)


def played(device: Path, folder: Path, tree: Path, copies: int) -> Iterator[dict[str, int]]:
    """The figures of the tree, and then of each copy."""
    for n in range(1 + copies):
        before = figures(device)
        made = folder / f"{tree.name}-{n}"
        shutil.copytree(tree, made, symlinks=True)
        sync(folder)
        after = figures(device)
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file() and not path.is_symlink())
        yield {"bytes": size, **{name: after[name] - before[name] for name in after}}


def main() -> None:
    if len(sys.argv) not in (4, 5):
        raise SystemExit("usage: dedup_tree.py DEVICE FOLDER TREE [COPIES]")
    device, folder, tree = (Path(word) for word in sys.argv[1:4])
    copies = int(sys.argv[4]) if len(sys.argv) == 5 else 3
    total = dict.fromkeys(("bytes", "written", "programmed", "found"), 0)
    for n, took in enumerate(played(device, folder, tree.resolve(), copies)):
        print(("the tree" if n == 0 else f"copy {n}").ljust(10) + line(took))
        total = {name: total[name] + took[name] for name in total}
    print("in all".ljust(10) + line(total))


def line(took: dict[str, int]) -> str:
    return (f"{took['bytes']:14,} bytes {took['written']:10,} pages written {took['programmed']:10,} programmed "
            f"{took['found']:10,} found")  # fmt: skip


if __name__ == "__main__":
    main()
