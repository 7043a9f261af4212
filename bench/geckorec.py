"""What the recoveries of GeckoFTL, LazyFTL and IB-FTL cost, step by step, against the formulas of GeckoFTL's paper
(flashfs.formulas.recovery).

Each device is filled, overwritten at random once, and loses power between two requests at a random point; then it
is mounted again. 4 KiB pages, 128 a block, R = 0.7, one cache entry for 64 pages of flash.

    python bench geckorec [--ftl geckoftl] [--blocks 1024]
    python bench geckorec --save     # the tables of docs/ftl/geckoftl.md and docs/recovery-model.md
    python bench geckorec --page     # those pages, from what was saved
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from flashfs.device import Device
from flashfs.formulas.chip import Chip
from flashfs.formulas.recovery import beside
from flashfs.parts.paged.cmt import ENTRY_BYTES
from nandimg import Geometry, create

FIRST = {"headers": "blocks", "translation": "gmd"}
SAME = {
    "geckoftl": {**FIRST, "runs": "runs", "reports": "buffer", "counts": "bvc", "scan": "cache"},
    "lazyftl": {**FIRST, "named": "pvb", "sync": "cache"},
    "ibftl": {**FIRST, "named": "pvl", "sync": "cache"},
}


def measure(ftl: str, blocks: int, seed: int) -> list[dict[str, object]]:
    """The rows of one device: the formula of each step, and its measured operations."""
    geometry = Geometry(blocks=blocks, pages_per_block=128, page_bytes=4096, oob_bytes=64, lpas=int(0.7 * blocks * 128))
    cached = blocks * 128 // 64
    rnd = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chip.nand"
        create(path, geometry)
        how = {"buffer": "0", "fence": "1", "cmt_bytes": str(cached * ENTRY_BYTES)}
        device = Device.open(path, ftl=ftl, options=how)
        for first in range(0, geometry.lpas, 128):
            device.ssd.write_pages(np.arange(first, min(first + 128, geometry.lpas), dtype=np.uint32))
        for _ in range(geometry.lpas + rnd.randrange(cached)):
            device.ssd.write_pages(np.array([rnd.randrange(geometry.lpas)], np.uint32))
        pages = sum(run["pages"] for run in device.ssd.validity.gecko.run_list()) if ftl == "geckoftl" else None
        device.close(clean=False)
        device = Device.open(path, options=how)
        report = device.recovery
        assert device.problems() == []
        device.close()
    chip = Chip(capacity=blocks * 128 * 4096, cache_bytes=8 * cached, parts=4)
    rows = [
        {"ftl": ftl, "blocks": blocks, "step": step.name, "spare_reads": step.spare_reads, "reads": step.reads,
         "measured_spare_reads": found["spare_reads"], "measured_reads": found["reads"],
         "measured_programs": found["programs"]}
        for step, found in beside(ftl, chip, report.steps, SAME[ftl])
    ]  # fmt: skip
    return rows if pages is None else [*rows, {"ftl": ftl, "blocks": blocks, "step": "pages of runs", "reads": pages}]


BLOCKS = (1024, 4096, 16_384)
DOCS = common.HERE.parent / "docs"
MARKS = ("<!-- python bench geckorec --page: -->\n", "<!-- so far -->\n")
#: step of the model -> what counts there; of the steps of GeckoFTL, in the order of its table
GECKO = {"blocks": "spare_reads", "gmd": "spare_reads", "runs": "spare_reads", "bvc": "reads", "buffer": "reads",
         "cache": "spare_reads"}  # fmt: skip


def by_device(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, dict[str, Any]]]:
    """{(FTL, blocks): {step: its row}}"""
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["ftl"], row["blocks"]), {})[row["step"]] = row
    return found


def gecko_table(rows: list[dict[str, Any]]) -> str:
    """Of GeckoFTL: two lines for each device, measured and by formula."""
    lines = ["| blocks | `headers` | `translation` | `runs` | `counts`, reads | `reports`, reads | `scan` | "
             "all others | reads | programs |", "|" + " --: |" * 10]  # fmt: skip
    for (ftl, blocks), steps in by_device(rows).items():
        if ftl == "geckoftl":
            measured = [steps[step][f"measured_{what}"] for step, what in GECKO.items()]
            beside = [steps["beside"][f"measured_{what}"] for what in ("spare_reads", "reads", "programs")]
            lines.append(" | ".join(["", *(f"{n:,}" for n in (blocks, *measured, *beside)), ""]).strip())
            lines.append("| by formula | " + " | ".join(f"{steps[step][what]:,}" for step, what in GECKO.items())
                         + " | | | |")  # fmt: skip
    return "\n".join(lines) + "\n"


def others_table(rows: list[dict[str, Any]]) -> str:
    """Of LazyFTL and IB-FTL: measured / by formula."""
    lines = ["| FTL | blocks | `blocks`, spare reads | `gmd`, spare reads | `pvb` or `pvl`, reads | `cache`, reads | "
             "programs | beside: spare reads | reads | programs |", "| --- |" + " --: |" * 9]  # fmt: skip
    for (ftl, blocks), steps in by_device(rows).items():
        if ftl != "geckoftl":
            named = steps["pvb" if "pvb" in steps else "pvl"]
            cells = [f"{row[f'measured_{what}']:,} / {row[what]:,}" for row, what in (
                (steps["blocks"], "spare_reads"), (steps["gmd"], "spare_reads"), (named, "reads"),
                (steps["cache"], "reads"))]  # fmt: skip
            cells.append(f"{steps['cache']['measured_programs']:,} / {steps['cache']['reads']:,}")
            cells += [f"{steps['beside'][f'measured_{what}']:,}" for what in ("spare_reads", "reads", "programs")]
            lines.append(f"| {ftl} | {blocks:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


PAGES = {DOCS / "ftl" / "geckoftl.md": gecko_table, DOCS / "recovery-model.md": others_table}


def page(path: Path, text: str) -> str:
    """The page with the table of the raw results between its marks."""
    rows = json.loads((common.RESULTS / "geckorec.json").read_text())["rows"]
    before, found, rest = text.partition(MARKS[0])
    if not found:
        raise SystemExit(f"{path}: {MARKS[0].strip()} is missing")
    return f"{before}{MARKS[0]}\n{PAGES[path](rows)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ftl", nargs="*", default=list(SAME), choices=list(SAME))
    parser.add_argument("--blocks", type=int, nargs="*", default=list(BLOCKS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="keep what is measured; the pages have tables of it")
    parser.add_argument("--page", action="store_true", help="write the tables into the pages, measure nothing")
    asked = parser.parse_args()
    if asked.page:
        for path in PAGES:
            path.write_text(page(path, path.read_text()))
        return
    rows = []
    for ftl in asked.ftl:
        for blocks in asked.blocks:
            rows += measure(ftl, blocks, asked.seed)
    for row in rows:
        print(row)
    if asked.save:
        common.save("geckorec", {"rows": rows})


if __name__ == "__main__":
    main()
