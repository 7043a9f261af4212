"""What Logarithmic Gecko costs against a bitmap in flash: reads and programs for validity a page written, at steady
state under uniform random updates of one page (GeckoFTL, SIGMOD 2016, section 5).

    python bench gecko [--blocks 8192] [--pages-per-block 128] [--ratio 0.7] [--writes 1000000] [T ...]

R is the share of the pages that are logical, delta = 10, the cache has as many entries as the paper's 2^19 at 2^22
blocks. Prints a line of JSON for each device: T of Gecko, then the bitmap in flash under the page map, with one page of
it cached and room in its log for the reports of one block's move.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np

from flashfs.device import Device
from flashfs.ftl import SCHEMES
from flashfs.ftl.common import streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.validity.flash_bitmap import FlashBitmap
from nandimg import Geometry

DELTA = 10


def bitmap(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, 1, log=1)
    spares = (validity.pages_in_flash.stream,)
    return PageTable(ssd), validity, streams_for(ssd, options, "bitmap"), Greedy(ssd, spares=spares)


def register() -> None:
    """Register the page map over a bitmap in flash as a scheme of this process."""
    SCHEMES["flash-bitmap"] = replace(
        SCHEMES["pagemap"], name="flash-bitmap", build=bitmap,
        sections=lambda geometry, options, dram: {"map": 4 * geometry.lpas, **FlashBitmap.section_bytes(geometry, 1)},
    )  # fmt: skip


def measure(ftl: str, geometry: Geometry, writes: int, **options: int) -> dict[str, Any]:
    how = {"buffer": "0", "wear_spread": "1000000", **{name: str(value) for name, value in options.items()}}
    device = Device.memory(geometry, ftl, backend="meta", options=how)
    ssd, rng = device.ssd, np.random.default_rng(1)
    for first in range(0, geometry.lpas, 256):
        ssd.write_pages(np.arange(first, min(first + 256, geometry.lpas), dtype=np.uint32))

    def update(n: int) -> None:
        for part in range(0, n, 1 << 16):
            lpas = rng.integers(0, geometry.lpas, min(1 << 16, n - part), dtype=np.uint32)
            for i in range(len(lpas)):
                ssd.write_pages(lpas[i : i + 1])

    update(2 * geometry.blocks * geometry.pages_per_block - geometry.lpas)
    before = ssd.operations()[1]
    update(writes)
    after = ssd.operations()[1]

    def spent(operation: str, cause: str) -> float:
        return (after[operation].get(cause, 0) - before[operation].get(cause, 0)) / writes

    figures = {**ssd.mapping.figures(), **ssd.validity.figures()}
    row = {
        "ftl": ftl, "blocks": geometry.blocks, "pages_per_block": geometry.pages_per_block,
        "R": round(geometry.lpas / (geometry.blocks * geometry.pages_per_block), 3), **options,
        "validity_programs": round(spent("program", "validity"), 5),
        "validity_reads": round(spent("read", "validity"), 5),
        "validity_wa": round(spent("program", "validity") + spent("read", "validity") / DELTA, 5),
        "map_programs": round(spent("program", "map"), 4), "map_reads": round(spent("read", "map"), 4),
        "gc_programs": round(spent("program", "gc"), 4), "erases": round(sum(
            spent("erase", cause) for cause in after["erase"]), 5),
        "waf": round(1 + sum(spent("program", cause) for cause in after["program"] if cause != "host"), 4),
        "escapes": getattr(ssd.cleaning, "escapes", 0),
        "dram": {name: packed for name, (packed, _) in ssd.dram().items()},
        **{name: figures[name] for name in figures if name.startswith("gecko_") or name in ("uip", "pending")},
    }  # fmt: skip
    device.close(clean=False)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("T", nargs="*", type=int, default=[2])
    parser.add_argument("--blocks", type=int, default=8192)
    parser.add_argument("--pages-per-block", type=int, default=128)
    parser.add_argument("--ratio", type=float, default=0.7)
    parser.add_argument("--writes", type=int, default=1_000_000)
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--held", type=int, default=5)
    parser.add_argument("--no-bitmap", action="store_true")
    asked = parser.parse_args()
    pages = asked.blocks * asked.pages_per_block
    geometry = Geometry(page_bytes=4096, pages_per_block=asked.pages_per_block, blocks=asked.blocks, dies=1,
                        oob_bytes=128, lpas=int(asked.ratio * pages), read_ns=100_000, program_ns=1_000_000,
                        transfer_ns=0, spare_ns=3_000)  # fmt: skip
    slots = max(64, pages >> 10)
    for ratio in asked.T:
        row = measure("geckoftl", geometry, asked.writes, ratio=ratio, cmt_bytes=slots * ENTRY_BYTES,
                      parts=asked.parts, held=asked.held)  # fmt: skip
        print(json.dumps(row), flush=True)
    if not asked.no_bitmap:
        register()
        print(json.dumps(measure("flash-bitmap", geometry, asked.writes)), flush=True)
