"""What commands cost on chips of 16 GiB to 2 TiB, by how full they are: seconds, memory, host disk.

For each FTL and size an image is made, mounted, written to (64 KiB), cut, recovered, unmounted, mounted again, and
inspected. With `--full 0.125` the first eighth is written in order before, on the `meta` backend, because the data of
terabytes does not fit on the host disk. `--before TREE` does the same with another built tree, taking turns, so that
both are measured in one run. Tables are reserved, so one image of 2 TiB takes 18 to 24 GB of the disk under
`--folder`; with `--full` they are sparse.

    python bench scale                          # all FTLs, five sizes
    python bench scale --ftl pagemap --sizes 16,2048 --before ../old
    python bench scale --full 0.125 --add       # keep saved results of other FTLs, sizes and fills
    python bench scale --page                   # docs/performance.md and its picture, from the raw results
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import common
from flashfs.ftl import SCHEMES
from flashfs.replay.plots import Figure, Panel, Series, draw

GIB = 2**30
SIZES = (16, 64, 256, 1024, 2048)
LOOKS = {
    "fsck": ("fsck", "{image}"),
    "dump lpa": ("dump", "{image}", "lpa", "5"),
    "dump log": ("dump", "{image}", "log"),
    "dump blocks": ("dump", "{image}", "blocks"),
    "dump --html": ("dump", "--html", "{image}.html", "{image}"),
    "smart": ("smart", "{image}"),
    "clone": ("clone", "{image}", "{image}.copy"),
}
MOUNTED = {"status": ("status",), "top": ("top", "{mount}", "--once", "--interval", "0.1")}  #: looks at a mount


OP = "0.2"  #: enough for every FTL
FILL = """
import sys
from flashfs.device import Device
image, ftl, share = sys.argv[1:]
with Device.open(image, ftl=ftl) as device:
    piece = bytes(1 << 20)
    for at in range(0, int(device.size * float(share)) >> 20 << 20, 1 << 20):
        device.write(at, piece)
"""


class Run:
    """The commands of one tree on one image."""

    def __init__(self, tree: Path, folder: Path, ftl: str, gib: int, full: float) -> None:
        self.tree, self.ftl, self.gib, self.full = tree, ftl, gib, full
        self.image, self.mount = folder / "chip.img", folder / "mnt"
        self.rows: dict[str, dict[str, float]] = {}

    def command(self, what: str, *words: str) -> str:
        """Run a command and note its seconds and peak memory as ``what``; returns what it printed."""
        env = {**os.environ, "PYTHONPATH": str(self.tree), "COLUMNS": "200"}
        began = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-m", "flashfs", *words], env=env, cwd=self.image.parent,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"bench: flashfs {' '.join(words)}: exit code {child.returncode}\n{said}")
        self.rows[what] = {"s": round(time.perf_counter() - began, 3), "mb": usage.ru_maxrss // 1024}
        return said

    def daemon_mb(self) -> int:
        """Peak memory of the daemon."""
        pid = json.loads((self.mount / "config.json").read_text())["pid"]
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) // 1024 if found else 0

    def all(self) -> dict[str, Any]:
        """Every command once; {command: {s, mb}}, pages of the clean checkpoint, bytes of host disk."""
        image, mount = str(self.image), str(self.mount)
        kind = ["--backend", "meta", "--tables", "sparse"] if self.full else []
        self.command("create", "create", image, "--size", f"{self.gib}G", "--op", OP, *kind)
        if self.full:
            self.fill()
        self.command("first mount", "mount", "--ftl", self.ftl, image, mount)
        with (self.mount / "disk").open("r+b", buffering=0) as disk:
            disk.write(os.urandom(64 << 10))
            os.fsync(disk.fileno())
        self.command("cut", "cut", mount)
        self.command("recovery", "mount", image, mount)
        self.rows["recovery"]["mb"] = self.daemon_mb()
        self.command("unmount", "umount", mount)
        said = self.command("clean mount", "mount", image, mount)
        self.rows["clean mount"]["mb"] = self.daemon_mb()
        for what, words in MOUNTED.items():
            self.command(what, *(word.format(mount=mount) for word in words))
        self.command("umount", "umount", mount)
        disk_bytes = self.image.stat().st_blocks * 512
        for what, words in LOOKS.items():
            self.command(what, *(word.format(image=image) for word in words))
        pages = re.search(r"a checkpoint of (\d+) pages", said)
        return {"ftl": self.ftl, "gib": self.gib, "full": self.full, "commands": self.rows, "host_disk": disk_bytes,
                "checkpoint_pages": int(pages[1]) if pages else None}  # fmt: skip

    def fill(self) -> None:
        """Write the first part of the device in order, and unmount it."""
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", FILL, str(self.image), self.ftl, str(self.full)], check=True,
                       cwd=self.image.parent, env={**os.environ, "PYTHONPATH": str(self.tree)})  # fmt: skip
        self.rows["fill"] = {"s": round(time.perf_counter() - began, 3), "mb": 0}

    def end(self) -> None:
        """Unmount after a failure."""
        subprocess.run([sys.executable, "-m", "flashfs", "umount", str(self.mount)], capture_output=True, check=False,
                       cwd="/", env={**os.environ, "PYTHONPATH": str(self.tree)})  # fmt: skip


def measured(tree: Path, where: Path, ftl: str, gib: int, full: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = Run(tree, Path(folder), ftl, gib, full)
        try:
            return run.all()
        finally:
            if run.mount.is_mount():
                run.end()


PAGE = common.HERE.parent / "docs" / "performance.md"
PICTURE = common.HERE.parent / "docs" / "img" / "scale.svg"
MARKS = ("<!-- python bench scale --page: -->\n", "<!-- so far -->\n")
SHOWN = ("first mount", "recovery", "clean mount", "fsck", "dump lpa", "dump log", "dump --html", "smart", "clone",
         "status", "top")  # fmt: skip
DRAWN = ("recovery", "clean mount", "fsck", "dump --html")
CURVES = ("pagemap", "fast", "dftl", "geckoftl", "slimftl", "remapssd", "leaftl", "learnedftl")  #: of each kind of map
LARGEST = max(SIZES)


def kept() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((common.RESULTS / "scale.json").read_text())["rows"]
    return rows


def of(row: dict[str, Any]) -> tuple[str, str, int, float]:
    return row["tree"], row["ftl"], row["gib"], row["full"]


def table(rows: list[dict[str, Any]], full: float) -> str:
    """The raw results as Markdown: seconds of each command on the largest chips, ``before / now`` where both were
    measured."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["gib"] == LARGEST and row["full"] == full:
            found.setdefault(row["ftl"], {})[row["tree"]] = row
    head = ("FTL", "pages of a clean checkpoint", *(f"{what}, s" for what in SHOWN), "daemon, MB", "fsck, MB")
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " --: |" * (len(head) - 1)]
    for ftl, trees in found.items():
        runs = [trees[name] for name in ("before", "now") if name in trees]
        cells = [both(f"{one['checkpoint_pages']:,}" for one in runs)]
        cells += [both(seconds(one["commands"].get(what)) for one in runs) for what in SHOWN]
        cells += [both(f"{one['commands'][what]['mb']:,}" for one in runs) for what in ("clean mount", "fsck")]
        lines.append(f"| `{ftl}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def seconds(measured: dict[str, float] | None) -> str:
    return "" if measured is None else f"{measured['s']:.1f}"


def both(cells: Iterable[str]) -> str:
    return " / ".join(cells)


def curves(rows: list[dict[str, Any]]) -> Figure:
    """Seconds by the size of the chip, a panel for each command: nearly blank chips, and those one eighth full."""
    panels = []
    for full, said in ((0.0, "64 KiB written"), (0.125, "one eighth full")):
        for what in DRAWN:
            series = []
            for ftl in CURVES:
                points = sorted(
                    (row["gib"], row["commands"][what]["s"])
                    for row in rows
                    if row["ftl"] == ftl and row["full"] == full and row["tree"] == "now"
                )
                if points:
                    series.append(Series(ftl, [y for _, y in points], [x * float(GIB) for x, _ in points]))
            if series:
                title = f"{what}, {said}"
                panels.append(Panel("lines", "chip", "seconds", series, title, x_scale="sizes", y_scale="log"))
    return Figure("scale", panels, 2)


def page(text: str) -> str:
    """The page with the tables of the raw results between its marks."""
    before, _, rest = text.partition(MARKS[0])
    rows = kept()
    said = [f"Nearly blank, {LARGEST:,} GiB:\n\n{table(rows, 0.0)}"]
    if any(row["full"] for row in rows):
        said.append(f"One eighth full, {LARGEST:,} GiB, backend `meta`:\n\n{table(rows, 0.125)}")
    return before + MARKS[0] + "\n" + "\n".join(said) + "\n" + MARKS[1] + rest.partition(MARKS[1])[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench scale", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ftl", default=",".join(SCHEMES))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="GiB")
    parser.add_argument("--full", type=float, default=0.0, help="the share that is written before")
    parser.add_argument("--before", type=Path, help="another built tree")
    parser.add_argument("--add", action="store_true", help="keep the results of what is not measured now")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--page", action="store_true", help="write the table into docs/performance.md, measure nothing")
    args = parser.parse_args()
    if args.page:
        PAGE.write_text(page(PAGE.read_text()))
        draw(curves(kept()), PICTURE)
        return 0
    trees = {"now": common.HERE.parent} | ({"before": args.before.resolve()} if args.before else {})
    rows = []
    for ftl in args.ftl.split(","):
        for gib in map(int, args.sizes.split(",")):
            for name, tree in trees.items():
                row = {"tree": name, **measured(tree, args.folder, ftl, gib, args.full)}
                rows.append(row)
                told = {what: one["s"] for what, one in row["commands"].items()}
                print(f"{ftl} {gib} GiB, {name}: {row['checkpoint_pages']} pages of checkpoint; {told}", flush=True)
    if args.add:
        again = {of(row) for row in rows}
        rows = [row for row in kept() if of(row) not in again] + rows
    print(common.save("scale", {"rows": rows}))
    return 0
