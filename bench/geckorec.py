"""What the recoveries of GeckoFTL, LazyFTL and IB-FTL cost, step by step, against the formulas of GeckoFTL's paper
(flashfs.formulas.recovery).

Each device is filled, overwritten at random once, and loses power between two requests at a random point; then it
is mounted again. 4 KiB pages, 128 a block, R = 0.7, one cache entry for 64 pages of flash.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

import numpy as np

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ftl", nargs="*", default=list(SAME), choices=list(SAME))
    parser.add_argument("--blocks", type=int, nargs="*", default=[256, 1024, 4096])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    rows = [row for ftl in said.ftl for blocks in said.blocks for row in measure(ftl, blocks, said.seed)]
    for row in rows:
        print(row)
    if said.out:
        said.out.write_text(json.dumps(rows, indent=1) + "\n")
