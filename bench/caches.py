"""The caches of demand-paged schemes at equal DRAM: hit ratio, translation reads a page of the host and translation
programs a page written, by the bytes of the cache.

    python bench caches TRACE|WORKLOAD... [--ftl dftl,sftl,tpftl] [--sizes 128 32 8 2] [--opt NAME=VALUE ...]
                                 [--fill order|random] [--out FILE]

Each source runs on a device of its own size (workloads: 1 GiB) with one die, on the `meta` backend, without a write
buffer, so that a look-up is a page of the host. The device is filled first, in order or at random (`--fill random`);
the fill is not counted. A size of 1/N is the bytes with which DFTL caches an N-th of the entries that the source
touches.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.dftl import requests
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from nandimg import Geometry

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "caches.json"
STEP = 1 << 14  #: pages of a write of the fill


def run(
    ftl: str, asked: list[tuple[int, int, bool]], size: int, cmt_bytes: int, fill: str, more: dict[str, str]
) -> dict[str, Any]:
    """One scheme, one size of its cache."""
    geometry = Geometry.sized(size, op=0.15, oob_bytes=64)
    options = {"buffer": 0, "cmt_bytes": cmt_bytes, "wear_spread": 1 << 20, **more}
    device = Device.memory(geometry, ftl, options, backend="meta")
    lpas: Any = np.arange(geometry.lpas, dtype=np.uint32)
    if fill == "random":
        np.random.default_rng(1).shuffle(lpas)
    for first in range(0, geometry.lpas, STEP):
        device.ssd.write_pages(lpas[first : first + STEP])
    mapping: Any = device.ssd.mapping
    mapping.forget_counts()
    began = time.process_time()
    for first, n, writing in asked:
        some: Any = np.arange(first, first + n, dtype=np.uint32)
        (device.ssd.write_pages if writing else device.ssd.read_pages)(some)
    seconds = time.process_time() - began
    found, written = mapping.figures(), sum(n for _, n, writing in asked if writing)
    return {
        "ftl": ftl,
        "cmt_bytes": cmt_bytes,
        "lookups": found["lookups"],
        "hit_ratio": round(found["hits"] / found["lookups"], 6),
        "reads_a_page": round(found["translation_reads"] / found["lookups"], 6),
        "programs_a_write": round(found["translation_programs"] / written, 6) if written else None,
        "pages_per_s": round(found["lookups"] / seconds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="TRACE|WORKLOAD")
    parser.add_argument("--ftl", default="dftl,sftl,tpftl")
    parser.add_argument("--sizes", nargs="+", type=int, default=[128, 32, 8, 2], metavar="N")
    parser.add_argument("--opt", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fill", choices=("order", "random"), default="order")
    parser.add_argument("--most", type=int, default=10_000_000, metavar="PAGES")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    more, results = dict(one.split("=", 1) for one in args.opt), []
    for text in args.sources:
        asked, size = requests(text, args.most)
        touched = len({lpa for first, n, _ in asked for lpa in range(first, first + n)})
        for share in args.sizes:
            cmt_bytes = max(64, touched // share) * ENTRY_BYTES
            for ftl in args.ftl.split(","):
                row = {"source": Path(text).name, "device": size, "share": f"1/{share}", "fill": args.fill,
                       **run(ftl, asked, size, cmt_bytes, args.fill, more)}  # fmt: skip
                print(json.dumps(row), flush=True)
                results.append(row)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0
