#!/usr/bin/env python3
"""Makes the pictures of docs/watching.md: `flashfs top` of a mount under load (SVG), and the page of `flashfs
dump --html` of the same image after a kill (PNG, by a headless browser).

The load: a third of the disk written once in order, a third overwritten at random, the rest rarely or never written.
It takes about a minute, and removes the mount and the image.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from browser import Browser  # noqa: E402
from rich.console import Console  # noqa: E402

from flashfs import inspect, watch  # noqa: E402
from flashfs.fuse import daemon, mounts  # noqa: E402
from nandimg import PRESETS, image  # noqa: E402

OUT = HERE.parent / "docs" / "img"
SIZE = (118, 37)  # characters of the terminal
WINDOW = (1180, 2190)  # pixels of the browser's window
LOOKS = 26
MIB = 1 << 20


def fill(disk: int, size: int) -> None:
    """Write the first two thirds in order."""
    block = random.Random(1).randbytes(MIB)
    for offset in range(0, 2 * size // 3, MIB):
        os.pwrite(disk, block, offset)
    os.fsync(disk)


def load(disk: int, size: int, stop: threading.Event) -> None:
    """Overwrites of 4 to 64 KiB in the middle third, more of them near its middle; a read after every 3, a flush after
    every 200; a slow stream into the last third."""
    rnd, third, block = random.Random(2), size // 3, random.Random(3).randbytes(MIB)
    turn = stream = 0
    while not stop.is_set():
        length = 4096 << rnd.randrange(5)
        at = int(rnd.triangular(0, third - length)) // 4096 * 4096
        os.pwrite(disk, block[:length], third + at)
        turn += 1
        if turn % 3 == 0:
            os.pread(disk, 16384, rnd.randrange(size // 16384) * 16384)
        if turn % 200 == 0:
            os.fsync(disk)
        if turn % 500 == 0 and stream < third // 2:
            os.pwrite(disk, block, 2 * third + stream)
            stream += MIB


def top_picture(folder: Path, out: Path) -> None:
    """Watch the mount for a while, and draw the last view, with the paths of an imaginary user."""
    history: list[dict[str, Any]] = []
    shots = watch.shots(folder, 0.5)
    for found, now in itertools.islice(shots, LOOKS):
        history.append({**found, "mountpoint": "/mnt/ssd", "image": "/home/ada/ssd.img"})
        last = now
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            file=nowhere, record=True, force_terminal=True, color_system="truecolor", width=SIZE[0], height=SIZE[1]
        )
        console.print(watch.Picture(history[-1], last, history, "q quits "), height=SIZE[1])
        drawn = console.export_svg(title="flashfs top /mnt/ssd", clear=False)
    drawn = re.sub(r"@font-face\s*{.*?}", "", drawn, flags=re.DOTALL)  # no fetch: any monospace font is enough
    out.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


def page_picture(path: Path, out: Path) -> None:
    page = path.with_suffix(".html")
    inspect.write_html(path, page)
    with Browser() as browser:
        browser.screen(*WINDOW)
        browser.open(page, "#block=500")
        if browser.complaints:
            raise SystemExit(f"screenshots: the page complains: {browser.complaints}")
        browser.picture(out)


def used(folder: Path, ftl: str, times: float, picture: Path) -> Path:
    """Mount an image, load it, take the picture of `top`, kill the mount. Returns the image's path."""
    path, mountpoint = folder / "ssd.img", folder / "mnt"
    image.create(path, PRESETS["demo-1g"].geometry)
    mountpoint.mkdir()
    mounted = daemon.mount(daemon.Request(path, mountpoint, ftl=ftl, sync="none"))
    stop, disk = threading.Event(), -1
    worker = None
    try:
        disk = os.open(mountpoint / "disk", os.O_RDWR)
        fill(disk, mounted.size)
        worker = threading.Thread(target=load, args=(disk, mounted.size, stop))
        worker.start()
        while json.loads((mountpoint / "stats.json").read_text())["server"]["bytes"]["write"] < times * mounted.size:
            time.sleep(1)
        top_picture(mountpoint, picture)
    finally:
        stop.set()
        if worker:
            worker.join()
        if disk >= 0:
            os.close(disk)
        os.kill(mounted.pid, 9)
        while Path(f"/proc/{mounted.pid}/fd").exists() and list(Path(f"/proc/{mounted.pid}").glob("fd/*")):
            time.sleep(0.05)
        mounts.clear_corpse(mountpoint)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ftl", default="pagemap")
    parser.add_argument("--times", type=float, default=4.0, help="the disk's size, written before the first look")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flashfs-screenshots-", dir="/var/tmp") as name:
        path = used(Path(name), given.ftl, given.times, given.out / "top.svg")
        page_picture(path, given.out / "page.png")
    for made in ("top.svg", "page.png"):
        print(f"{given.out / made}: {(given.out / made).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"screenshots: {error}")
