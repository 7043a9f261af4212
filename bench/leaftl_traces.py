"""LeaFTL on real traces: bytes of the map against a page map's and against 8 bytes a page, at each gamma.

Each trace of the folder that FLASHFS_TRACES names is packed (a MiB at a time, so that gaps inside stay) onto a device
that just holds it, and looped until three times the device, or MOST pages, have been written. Bytes as the paper counts
them: segments and CRB. For comparison, pagemap with equal settings: LeaFTL's write buffer, and blocks instead of
stripes. Traces that write next to nothing are left out.

    leaftl_traces.py [--only TEXT] [--no-save]
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from flashfs.replay import equal_settings
from flashfs.replay.open_source import open_source
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import TRIM, WRITE, Source
from flashfs.replay.traces import Options
from nandimg import Geometry

PAGE = 4096
GAMMAS = (0, 1, 4, 16)
MOST = 12_000_000  # pages written
ROUND = 64 << 20  # devices are multiples of it
DEPTH = 16


@dataclass
class Work:
    """A trace, and the figures of it that playing needs."""

    path: Path
    end: int = 0  #: bytes of the device that it needs when packed
    requests: int = 0
    written: int = 0  #: pages, in one loop
    mapped: int = 0  #: pages that are mapped after it

    @property
    def geometry(self) -> Geometry:
        size = -(-self.end // ROUND) * ROUND
        return Geometry.sized(size, op=0.2, channels=4, dies=16 if size >= 4 << 30 else 4, oob_bytes=160)

    @property
    def loops(self) -> int:
        wanted = min(MOST, 3 * self.geometry.lpas)
        return max(1, -(-wanted // max(1, self.written)))


def look(path: Path) -> Work:
    work = Work(path)
    source = packed(path)
    for batch in source.batches():
        work.end = max(work.end, int((batch.offset + batch.length).max()))
    live = np.zeros(-(-work.end // PAGE) + 1, np.bool_)
    for batch in packed(path).batches():
        work.requests += len(batch.op)
        first, last = batch.offset // PAGE, (batch.offset + batch.length - 1) // PAGE
        for op, one, two in zip(batch.op.tolist(), first.tolist(), last.tolist(), strict=True):
            if op == WRITE:
                live[one : two + 1] = True
                work.written += two + 1 - one
            elif op == TRIM:
                live[one : two + 1] = False
    work.mapped = int(live.sum())
    return work


def packed(path: Path) -> Source:
    return open_source(str(path), 1 << 60, options=Options(fit="pack"))


def play(work: Work, ftl: str, options: dict[str, Any]) -> dict[str, Any]:
    trace = Options(fit="pack", loops=work.loops, speedup=1000)  # in a closed loop times do not count
    return run(Setup(str(work.path), ftl, options=options, geometry=work.geometry, trace=trace, qd=DEPTH))


def rows_of(work: Work) -> list[dict[str, Any]]:
    shared = {
        "trace": work.path.name.partition("__")[0], "device_gib": work.geometry.logical_bytes / 2**30,
        "mapped_pages": work.mapped, "loops": work.loops,
    }  # fmt: skip
    even = equal_settings.common(["pagemap", "leaftl"], work.geometry)
    made = play(work, "pagemap", even)
    rows = [{**shared, "ftl": "pagemap", "waf": made["waf"], "pages_per_s": made["pages_per_s"]}]
    for gamma in GAMMAS:
        made = play(work, "leaftl", {**{name: even[name] for name in even if name != "stripe"}, "gamma": gamma})
        own = made["scheme"]
        by_level = own["lookups_by_level"]
        reads = sum(by_level)
        rows.append({
            **shared, "ftl": "leaftl", "gamma": gamma, "waf": made["waf"], "pages_per_s": made["pages_per_s"],
            "segments": own["segments"], "paper_bytes": own["paper_bytes"], "crb_bytes": own.get("crb_bytes", 0),
            "groups": own["groups"], "map_bytes": made["map_bytes"],
            "below_8": 8 * work.mapped / own["paper_bytes"] if own["paper_bytes"] else None,
            "below_4": 4 * work.mapped / own["paper_bytes"] if own["paper_bytes"] else None,
            "mispredicted": own.get("mispredictions", 0) / reads if reads else None,
            "top": by_level[0] / reads if reads else None, "ten": sum(by_level[:10]) / reads if reads else None,
            "spare_reads": made["nand"]["by_cause"]["spare_read"].get("map", 0) / max(1, made["host"]["write"]),
        })  # fmt: skip
    return rows


def said(row: dict[str, Any]) -> str:
    """A line of the table in docs/ftl/leaftl.md."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %"

    trace, waf, rate = row["trace"], row["waf"], f"{row['pages_per_s'] / 1e6:.2f}"
    if row["ftl"] == "pagemap":
        return f"| {trace} | (pagemap) | {row['mapped_pages']:,} | | | | {waf} | | | | {rate} |"
    return (
        f"| {trace} | {row['gamma']} | | {row['segments']:,} | {row['paper_bytes']:,} | {row['below_8'] or 0:.1f} |"
        f" {waf} |"
        f" {share(row['mispredicted'])} | {share(row['top'])} | {share(row['ten'])} | {rate} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="traces whose names have this")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    folder = Path(os.environ.get("FLASHFS_TRACES", ""))
    paths = sorted(path for path in folder.glob("*__*") if given.only in path.name)
    if not paths:
        print("FLASHFS_TRACES names no folder with traces", file=sys.stderr)
        return 2
    rows = []
    for path in paths:
        work = look(path)
        if work.written * 100 < work.requests:
            continue
        rows += rows_of(work)
        for row in rows[-1 - len(GAMMAS) :]:
            print(said(row), flush=True)
    if not given.no_save:
        saved = common.save("leaftl_traces", {"rows": rows})
        print(f"raw results: {saved.relative_to(common.HERE.parent)}")
    return 0
