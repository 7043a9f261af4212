"""What commands cost on chips of 16 GiB to 2 TiB that hold next to nothing: seconds, memory, host disk.

For each FTL and size an image is made, mounted, written to (64 KiB), cut, recovered, unmounted, mounted again, and
looked at. `--before TREE` does the same with another built tree, taking turns, so that a comparison is of one run. One
image of 2 TiB takes 20 to 24 GB of the disk under `--folder`.

    python bench scale                          # six FTLs, five sizes
    python bench scale --ftl pagemap --sizes 16,2048 --before ../old
    python bench scale --page                   # docs/performance.md again, from the raw results
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

GIB = 2**30
FTLS = ("pagemap", "slimftl", "dftl", "leaftl", "geckoftl", "fast")
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


class Run:
    """The commands of one tree on one image."""

    def __init__(self, tree: Path, folder: Path, ftl: str, gib: int) -> None:
        self.tree, self.ftl, self.gib = tree, ftl, gib
        self.image, self.mount = folder / "chip.img", folder / "mnt"
        self.rows: dict[str, dict[str, float]] = {}

    def command(self, what: str, *words: str) -> str:
        """Seconds and the most memory of the command itself, under that name; what it printed."""
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
        """The most memory that the daemon had."""
        pid = json.loads((self.mount / "config.json").read_text())["pid"]
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) // 1024 if found else 0

    def all(self) -> dict[str, Any]:
        """Every command once; {command: {s, mb}}, pages of the clean checkpoint, bytes of host disk."""
        image, mount = str(self.image), str(self.mount)
        size = ["--preset", "leaftl-2t"] if self.gib == 2048 else ["--size", f"{self.gib}G"]
        self.command("create", "create", image, *size)
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
        self.command("umount", "umount", mount)
        disk_bytes = self.image.stat().st_blocks * 512
        for what, words in LOOKS.items():
            self.command(what, *(word.format(image=image) for word in words))
        pages = re.search(r"a checkpoint of (\d+) pages", said)
        return {"ftl": self.ftl, "gib": self.gib, "commands": self.rows, "host_disk": disk_bytes,
                "checkpoint_pages": int(pages[1]) if pages else None}  # fmt: skip

    def end(self) -> None:
        """Leave nothing mounted."""
        subprocess.run([sys.executable, "-m", "flashfs", "umount", str(self.mount)], capture_output=True, check=False,
                       cwd="/", env={**os.environ, "PYTHONPATH": str(self.tree)})  # fmt: skip


def measured(tree: Path, where: Path, ftl: str, gib: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=where) as folder:
        run = Run(tree, Path(folder), ftl, gib)
        try:
            return run.all()
        finally:
            if run.mount.is_mount():
                run.end()


PAGE = common.HERE.parent / "docs" / "performance.md"
MARKS = ("<!-- python bench scale --page: -->\n", "<!-- so far -->\n")
SHOWN = ("first mount", "recovery", "clean mount", "fsck", "dump lpa", "dump log", "dump --html", "clone")


def table(rows: list[dict[str, Any]]) -> str:
    """Of the raw results, as markdown: seconds of each command, ``before / now`` where both were measured."""
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["ftl"], row["gib"]), {})[row["tree"]] = row
    head = ("FTL", "GiB", "pages of a clean checkpoint", *(f"{what}, s" for what in SHOWN), "daemon, MB", "fsck, MB")
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " --: |" * (len(head) - 1)]
    for (ftl, gib), trees in found.items():
        of = [trees[name] for name in ("before", "now") if name in trees]
        cells = [both(f"{one['checkpoint_pages']:,}" for one in of)]
        cells += [both(f"{one['commands'][what]['s']:.1f}" for one in of) for what in SHOWN]
        cells += [both(f"{one['commands'][what]['mb']:,}" for one in of) for what in ("clean mount", "fsck")]
        lines.append(f"| `{ftl}` | {gib:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def both(cells: Iterable[str]) -> str:
    return " / ".join(cells)


def page(text: str) -> str:
    """The page with the table of the raw results between its marks."""
    before, _, rest = text.partition(MARKS[0])
    rows = json.loads((common.RESULTS / "scale.json").read_text())["rows"]
    return before + MARKS[0] + "\n" + table(rows) + "\n" + MARKS[1] + rest.partition(MARKS[1])[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench scale", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ftl", default=",".join(FTLS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="GiB")
    parser.add_argument("--before", type=Path, help="another built tree")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--page", action="store_true", help="write the table into docs/performance.md, measure nothing")
    args = parser.parse_args()
    if args.page:
        PAGE.write_text(page(PAGE.read_text()))
        return 0
    trees = {"now": common.HERE.parent} | ({"before": args.before.resolve()} if args.before else {})
    rows = []
    for ftl in args.ftl.split(","):
        for gib in map(int, args.sizes.split(",")):
            for name, tree in trees.items():
                row = {"tree": name, **measured(tree, args.folder, ftl, gib)}
                rows.append(row)
                told = {what: one["s"] for what, one in row["commands"].items()}
                print(f"{ftl} {gib} GiB, {name}: {row['checkpoint_pages']} pages of checkpoint; {told}", flush=True)
    print(common.save("scale", {"rows": rows}))
    return 0
