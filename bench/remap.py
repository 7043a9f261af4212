"""How many pages a second `remapssd` remaps, by the size of the request: `python bench remap`.

The device is the preset remapssd-2g, filled; each request remaps pages from its upper half to its lowest quarter, both
drawn uniformly, so that NVRAM has room for all entries that are valid at once. Wall time of this process, including a
call from Python for each request. The table goes to stdout, and with ``--out FILE`` the figures go there as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flashfs.device import Device
from flashfs.engine.device.remaps import remap_pages
from nandimg import PRESETS

SIZES = (1, 8, 64, 256)
PAGES = 4_000_000


def measured(pages: int, total: int = PAGES) -> dict[str, Any]:
    """Remaps of so many pages each."""
    geometry = PRESETS["remapssd-2g"].geometry
    device = Device.memory(geometry, "remapssd", {"buffer": 0}, backend="meta")
    device.ssd.write_pages(np.arange(geometry.lpas, dtype=np.uint32))
    rng = np.random.default_rng(1)
    n = total // pages
    quarter = geometry.lpas // 4 // pages
    targets, sources = rng.integers(0, quarter, n) * pages, rng.integers(2 * quarter, 4 * quarter, n) * pages
    rows = list(zip(targets.tolist(), sources.tolist(), strict=True))
    remap = partial(remap_pages, device.ssd)
    began = time.perf_counter()
    for target, source in rows:
        remap(target, source, pages)
    took = time.perf_counter() - began
    figures = device.stats()["scheme"]
    return {"pages": pages, "remapped": figures["remap_done"], "written": device.stats()["nand"]["program"],
            "mpages_s": round(n * pages / took / 1e6, 2)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [measured(pages) for pages in SIZES]
    print("| pages a request | M pages/s | remapped |\n| --: | --: | --: |")
    for row in rows:
        print(f"| {row['pages']} | {row['mpages_s']} | {row['remapped'] / PAGES:.2f} |")
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
