"""LeaFTL's compaction: bytes, levels and look-ups if groups are never compacted, and if a group's own state starts it.

Workloads and, if FLASHFS_TRACES names their folder, traces are played on a device that just holds them (a workload with
10 % over-provisioning) until PAGES pages have been written. Bytes are those at the end, levels those of SAMPLES moments
in the last half; the look-ups are drawn from all written pages, weighted by how often each was written. Then the whole
table is compacted: its bytes afterwards, and the CPU time of that for each mapped LPA. Fewer than compact_every pages
are written, so no compaction starts by count.

    leaftl_compaction.py [--only TEXT] [--gammas 0,4,16] [--grown N,N] [--no-save]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np
from numpy.typing import NDArray

from bench import common
from flashfs.device import Device
from flashfs.replay.open_source import open_source
from flashfs.replay.request_source import TRIM, WRITE
from flashfs.replay.traces import Options
from nandimg import Geometry

PAGE = 4096
PAGES = 200_000  # pages to write
SAMPLES = 8
LOOK_UPS = 100_000
LPAS = 32_768  # of a workload's device
KINDS = ("single", "hot", "runs", "holes", "hot runs")

Pages = tuple[bool, NDArray[np.uint32]]  # whether written (else trimmed), LPAs


def generated(kind: str) -> Iterator[Pages]:
    """Single pages, uniform or nine of ten in a tenth of the device; runs of 1 to 64 pages, whole or each page kept at
    a chance of 0.7; hot runs of 1 to 16."""
    rng = np.random.default_rng(1)
    hot = kind.startswith("hot")
    while True:
        n = 1 if kind in ("single", "hot") else int(rng.integers(1, 17 if hot else 65))
        first = int(rng.integers(0, LPAS // 10 if hot and rng.random() < 0.9 else LPAS))
        run = np.arange(first, min(LPAS, first + n), dtype=np.uint32)
        if kind == "holes":
            run = run[rng.random(len(run)) < 0.7]
        if len(run):
            yield True, run


def of_trace(path: Path) -> Iterator[Pages]:
    """A trace's writes and trims, repeated for ever."""
    while True:
        for batch in open_source(str(path), 1 << 60, options=Options(fit="pack")).batches():
            first, end = batch.offset // PAGE, (batch.offset + batch.length - 1) // PAGE + 1
            for op, one, two in zip(batch.op.tolist(), first.tolist(), end.tolist(), strict=True):
                if op in (WRITE, TRIM):
                    yield op == WRITE, np.arange(one, two, dtype=np.uint32)


def end_of(path: Path) -> tuple[int, int]:
    """Pages of a device that holds a trace, and pages that it writes."""
    end = written = 0
    for batch in open_source(str(path), 1 << 60, options=Options(fit="pack")).batches():
        end = max(end, int((batch.offset + batch.length).max()))
        of_write = batch.op == WRITE
        written += int((-(-(batch.offset + batch.length)[of_write] // PAGE) - batch.offset[of_write] // PAGE).sum())
    return -(-end // PAGE), written


def play(source: Iterator[Pages], lpas: int, op: float, options: dict[str, Any], fill: bool) -> dict[str, Any]:
    geometry = Geometry.sized(lpas * PAGE, op=op, channels=4, dies=4, oob_bytes=160)
    device = Device.memory(geometry, "leaftl", options, backend="meta")
    if fill:
        for first in range(0, lpas, 4096):
            device.ssd.write_pages(np.arange(first, min(lpas, first + 4096), dtype=np.uint32))
    rng = np.random.default_rng(2)
    touched: list[NDArray[np.uint32]] = []
    sampled: list[dict[str, Any]] = []
    done = 0
    while done < PAGES:
        is_write, run = next(source)
        if not is_write:
            device.ssd.trim_pages(int(run[0]), len(run))
            continue
        device.ssd.write_pages(run)
        done += len(run)
        touched.append(run)
        if done >= PAGES // 2 + len(sampled) * (PAGES // 2 // SAMPLES):
            sampled.append(device.ssd.mapping.survey())
    device.flush()
    figures = device.stats()
    device.ssd.forget_counts()
    every = np.concatenate(touched)
    for _ in range(LOOK_UPS // 1000):
        device.ssd.read_pages(every[rng.integers(0, len(every), 1000)])
    by_level = device.stats()["scheme"]["lookups_by_level"]
    table = device.ssd.mapping.table
    mapped = lpas if fill else len(np.unique(every))
    started = time.process_time()
    table.compact()
    seconds = time.process_time() - started
    least = device.ssd.mapping.survey()
    device.close(clean=False)
    crb, points = (np.array(figures["scheme"][name]) for name in ("groups_by_crb_bytes", "segments_by_points"))
    by_levels = np.sum([padded(one["groups_by_levels"]) for one in sampled], axis=0)
    reads = max(1, sum(by_level))
    return {
        "waf": figures["waf"], "scheme": figures["scheme"], "crb_mean": mean(crb), "points_mean": mean(points),
        "bytes": figures["scheme"]["paper_bytes"], "least_bytes": least["paper_bytes"],
        "levels_mean": mean(by_levels),
        "levels_p99": int(np.searchsorted(np.cumsum(by_levels), 0.99 * by_levels.sum())),
        "levels_most": int(np.nonzero(by_levels)[0].max()),
        "top": by_level[0] / reads, "ten": sum(by_level[:10]) / reads, "ns_an_lpa": 1e9 * seconds / mapped,
    }  # fmt: skip


def mean(counts: NDArray[np.int64]) -> float:
    return float((counts * np.arange(len(counts))).sum() / max(1, counts.sum()))


def padded(counts: list[int]) -> NDArray[np.int64]:
    return np.pad(np.array(counts, np.int64), (0, 256 - len(counts)))


def told(name: str, gamma: int, grown: str, row: dict[str, Any]) -> str:
    own = row["scheme"]
    return (f"| {name} | {gamma} | {grown} | {row['bytes']:,} | {row['least_bytes']:,} | {row['levels_mean']:.1f} / "
            f"{row['levels_p99']} / {row['levels_most']} | {100 * row['top']:.1f} % | {100 * row['ten']:.1f} % | "
            f"{own['groups_compacted']:,} | {own['crowded']:,} | {row['points_mean']:.1f} | {row['crb_mean']:.1f} | "
            f"{row['ns_an_lpa']:.1f} |")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="A,B", help="workloads and traces whose names have one of these")
    parser.add_argument("--gammas", default="0,4,16")
    parser.add_argument("--grown", default="0,25", help="values of compact_grown; 0: never")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    folder = Path(os.environ.get("FLASHFS_TRACES", "/nonexistent"))
    works: list[tuple[str, Path | None]] = [(kind, None) for kind in KINDS]
    works += [(path.name.partition("__")[0], path) for path in sorted(folder.glob("*__*"))]
    rows = []
    for name, path in works:
        if not any(only in name for only in given.only.split(",")):
            continue
        lpas, written = end_of(path) if path else (LPAS, PAGES)
        if written < 10_000 or lpas < LPAS // 4:
            continue  # it hardly writes, or fits in the buffer
        for gamma in map(int, given.gammas.split(",")):
            for grown in given.grown.split(","):
                options = {"gamma": gamma, "compact_grown": int(grown)}
                source = of_trace(path) if path else generated(name)
                row = play(source, lpas, 0.2 if path else 0.1, options, path is None)
                rows.append({"name": name, "gamma": gamma, "grown": grown, **row})
                print(told(name, gamma, grown, row), flush=True)
    if not given.no_save:
        saved = common.save("leaftl_compaction", {"rows": rows})
        print(f"raw results: {saved.relative_to(common.HERE.parent)}")
    return 0
