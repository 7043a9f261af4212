"""DFTL's cache on traces and workloads: hit ratio, translation reads a look-up and translation programs a write, by the
bytes of the CMT; and whether look-ups, hits and reads for misses are those of the model in tests/ftl/dftl/slru.py.

    python bench dftl TRACE... [--sizes 128 32 8 4 2 1] [--most 400000] [--out FILE]

Each source runs on a device of its own size (workloads: 1 GiB) on the `meta` backend, without a write buffer, so that
a look-up is a page of the host. A size is a share of the entries that the source touches. A source longer than `--most`
pages is cut there: the model is Python.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.replay.open_source import device_for, open_source
from flashfs.replay.request_source import READ, WRITE, Source
from flashfs.replay.workloads import is_workload
from nandimg import Geometry

PAGE = 4096
ROOT = Path(__file__).parent.parent
SegmentedLru = common.of_tests("ftl/dftl", "slru").SegmentedLru
RESULTS = ROOT / "bench" / "results" / "dftl.json"


def source_of(text: str) -> tuple[Source, int]:
    """The source, and bytes of a device for it."""
    if is_workload(text):
        return open_source(text, 1 << 30), 1 << 30
    size, options, _ = device_for(text)
    return open_source(text, size, options=options), size


def requests(text: str, most: int) -> tuple[list[tuple[int, int, bool]], int]:
    """[(first LPA, pages, is it a write)] up to ``most`` pages, and the device's bytes. Trims and flushes are left out:
    the model has none."""
    source, size = source_of(text)
    out: list[tuple[int, int, bool]] = []
    pages = 0
    for batch in source.batches():
        for op, offset, length in zip(batch.op.tolist(), batch.offset.tolist(), batch.length.tolist(), strict=True):
            if op in (READ, WRITE) and pages < most:
                first, end = offset // PAGE, -(-(offset + length) // PAGE)
                out.append((first, end - first, op == WRITE))
                pages += end - first
        if pages >= most:
            break
    return out, size


def run(asked: list[tuple[int, int, bool]], size: int, share: int) -> dict[str, Any]:
    """One device, one size of the CMT."""
    geometry = Geometry.sized(size, op=0.15, channels=8, dies=8, oob_bytes=64)
    touched = len({lpa for first, n, _ in asked for lpa in range(first, first + n)})
    slots = max(64, touched // share)
    device = Device.memory(geometry, "dftl", {"buffer": 0, "cmt_bytes": slots * ENTRY_BYTES, "wear_spread": 1 << 20},
                           backend="meta")  # fmt: skip
    mapping: Any = device.ssd.mapping
    slots = mapping.cmt.slots
    model = SegmentedLru(slots, slots // 2, PAGE // 4)
    began = time.process_time()
    for first, n, writing in asked:
        some: Any = np.arange(first, first + n, dtype=np.uint32)
        (device.ssd.write_pages if writing else device.ssd.read_pages)(some)
    seconds = time.process_time() - began
    for first, n, writing in asked:
        for lpa in range(first, first + n):
            model.look_up(lpa, writing)
    found = mapping.figures()
    written = sum(n for _, n, writing in asked if writing)
    return {
        "share": f"1/{share}",
        "cmt_bytes": slots * ENTRY_BYTES,
        "lookups": found["lookups"],
        "hit_ratio": round(found["hits"] / found["lookups"], 6),
        "reads_a_lookup": round(found["translation_reads"] / found["lookups"], 6),
        "programs_a_write": round(found["translation_programs"] / written, 6) if written else None,
        "as_the_model": (found["lookups"], found["hits"], found["loads"]) == (model.lookups, model.hits, model.loads),
        "pages_per_s": round(found["lookups"] / seconds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="TRACE|WORKLOAD")
    parser.add_argument("--sizes", nargs="+", type=int, default=[128, 32, 8, 4, 2], metavar="N")
    parser.add_argument("--most", type=int, default=10_000_000, metavar="PAGES")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = []
    for text in args.sources:
        asked, size = requests(text, args.most)
        for share in args.sizes:
            row = {"source": Path(text).name, "device": size, **run(asked, size, share)}
            print(json.dumps(row), flush=True)
            results.append(row)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["as_the_model"] for row in results) else 1
