"""Host pages per second of a replay, against a bare C page map (bench/pagemap.c) in the same run.

- steady: uniform random overwrites of single pages on a device that was filled and overwritten, each a request of its
  own with its virtual time, its latency in a histogram and the rules on; C and replay take turns, and the ratio is the
  median over them. Processor time of the thread that plays. A third side takes turns with them: the C page map with the
  rules, the OOB and the time of a page, and nothing else (bench/pagemap_rules.c).
- oracle: 4 M uniform overwrites of `oracle-1g` from empty, on each FTL; C on the same.
- traces: three real ones, if FLASHFS_TRACES names the folder that has them, looped to a few million pages.
- sizes: from 16 GiB to the 2 TiB of the LeaFTL paper, filled and then overwritten, a process each: pages per second,
  and peak memory.
- requests: on one device, twice the requests should take twice the time.

    replay.py [--ftl NAMES] [--only PART]... [--turns N] [--largest SIZE] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from bench.engine import BATCH, Bare, Rules, build
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from flashfs.replay._player import Player
from flashfs.replay.play import Setup, run
from flashfs.replay.request_source import WRITE
from flashfs.replay.traces import Options
from nandimg import PRESETS, Geometry

GIB = 2**30
DEPTH = 16
OP = 0.1765  # the oracle's
STEADY = {"oracle-1g": PRESETS["oracle-1g"].geometry} | {
    f"{size} GiB": Geometry.sized(size * GIB, op=OP, channels=8, dies=8) for size in (16, 256)
}
SIZES = (16, 64, 256, 1024, 2048)  # GiB
OVERWRITES = 60_000_000  # pages of each size
TRACES = {
    "msr hm_1": "msr_hm_1_writes_33k__MSR_trace-only-write.txt.zst",
    "websearch1": "umass_websearch1_50k__web1.trace.zst",
    "tpcc": "tpcc_small__tpcc-small.trace.zst",
}
TRACE_LOOPS = 40
Row = dict[str, Any]


class Replay:
    """A device and a player on it, given arrays of LPAs as the C loop is."""

    def __init__(self, geometry: Geometry, ftl: str) -> None:
        self.device = Device.memory(geometry, ftl, {}, backend="meta")
        self.player = Player(self.device.ssd, DEPTH)
        self.zeros = np.zeros(BATCH, np.int64)
        self.writes = np.full(BATCH, WRITE, np.uint8)
        self.lengths = np.full(BATCH, geometry.page_bytes, np.uint64)

    def write(self, lpas: np.ndarray) -> None:
        n = len(lpas)
        offsets = lpas.astype(np.uint64) * np.uint64(self.device.page_bytes)
        self.player.play(self.zeros[:n], self.writes[:n], offsets, self.lengths[:n])

    def programs(self) -> int:
        return int(self.device.stats()["nand"]["program"])

    def close(self) -> None:
        self.device.close(clean=False)


def draw(rng: np.random.Generator, geometry: Geometry, n: int) -> Iterator[np.ndarray]:
    for done in range(0, n, BATCH):
        yield rng.integers(0, geometry.lpas, min(BATCH, n - done), dtype=np.uint32)


def turn(side: Bare | Rules | Replay, batches: list[np.ndarray]) -> float:
    """Pages a second of this thread's processor time."""
    start = time.thread_time()
    for lpas in batches:
        side.write(lpas)
    return sum(map(len, batches)) / (time.thread_time() - start)


def steady(library: Path, name: str, ftls: list[str], turns: int) -> list[Row]:
    """Fill, overwrite twice, then take turns. One FTL after another, so that no two large devices exist at once."""
    geometry, rows = STEADY[name], []
    for ftl in ftls:
        rng = np.random.default_rng(1)
        bare, replay = Bare(library, geometry), Replay(geometry, ftl)
        rules = Rules(build(library.parent, "pagemap_rules"), geometry)
        sides = (bare, rules, replay)
        order = np.arange(geometry.lpas, dtype=np.uint32)
        for lpas in (
            *(order[at : at + BATCH] for at in range(0, len(order), BATCH)),
            *draw(rng, geometry, 2 * geometry.lpas),
        ):
            for side in sides:
                side.write(lpas)
        before, pages, rates = replay.programs(), 0, []
        for _ in range(turns):
            batches = list(draw(rng, geometry, 2_000_000))
            pages += sum(map(len, batches))
            rates.append([turn(side, batches) for side in sides])
        c, c_rules, ours = (list(column) for column in zip(*rates, strict=True))
        rows.append({
            "device": name, "ftl": ftl, "c_per_s": statistics.median(c), "c_rules_per_s": statistics.median(c_rules),
            "replay_per_s": statistics.median(ours), "ratio": ratio(ours, c), "ratio_rules": ratio(c_rules, c),
            "waf": (replay.programs() - before) / pages, "c": c, "c_rules": c_rules, "replay": ours,
        })  # fmt: skip
        for side in sides:
            side.close()
        say(rows[-1])
    return rows


def ratio(ones: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def oracle(library: Path, ftls: list[str]) -> list[Row]:
    geometry = PRESETS["oracle-1g"].geometry
    rows = []
    for ftl in ftls:
        bare = Bare(library, geometry)
        c = turn(bare, list(draw(np.random.default_rng(1), geometry, 4_000_000)))
        bare.close()
        rows.append(row_of("oracle", run(Setup("uniform:ops=4M,write=1", ftl, geometry=geometry)), c))
    return rows


def traces(library: Path, ftls: list[str]) -> list[Row]:
    """On a device of 32 GiB; C gets as many uniform pages."""
    folder = Path(os.environ.get("FLASHFS_TRACES", ""))
    geometry = Geometry.sized(32 * GIB, op=OP, channels=8, dies=8)
    rows = []
    for name, file in TRACES.items():
        if not (folder / file).exists():
            print(f"left out: {name}: FLASHFS_TRACES names no folder that has it", file=sys.stderr)
            continue
        for ftl in ftls:
            bare = Bare(library, geometry)
            c = turn(bare, list(draw(np.random.default_rng(1), geometry, 4_000_000)))
            bare.close()
            options = Options(loops=TRACE_LOOPS, fit="wrap")
            made = run(Setup(str(folder / file), ftl, geometry=geometry, trace=options, qd=DEPTH))
            rows.append(row_of(name, made, c))
    return rows


def row_of(name: str, made: Row, c: float) -> Row:
    row = {
        "work": name, "ftl": made["ftl"], "pages": sum(made["host"].values()), "replay_per_s": made["pages_per_s"],
        "c_per_s": c, "ratio": made["pages_per_s"] / c, "waf": made["waf"],
    }  # fmt: skip
    say(row)
    return row


def sizes(ftls: list[str], largest: int) -> list[Row]:
    """Each in a process of its own, because a process's peak memory never falls."""
    rows = []
    for ftl in ftls:
        for size in SIZES:
            if size * GIB > largest:
                continue
            command = [sys.executable, common.HERE, "replay", "--one-size", str(size), "--ftl", ftl]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                print(f"{ftl}, {size} GiB: ended with {done.returncode}", file=sys.stderr)
                continue
            rows.append(json.loads(done.stdout))
            say(rows[-1])
    return rows


def most_memory_gib() -> float:
    """Peak memory of this process alone: getrusage would begin with that of the process which started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**20  # it is given in KiB


def one_size(size: int, ftl: str) -> Row:
    geometry = PRESETS["leaftl-2t"].geometry if size == 2048 else Geometry.sized(size * GIB, op=0.2, channels=8, dies=8)
    setup = Setup(
        f"uniform:ops={OVERWRITES},write=1", ftl, geometry=geometry, qd=64, precondition="fill",
    )  # fmt: skip
    start = time.perf_counter()
    made = run(setup)
    wall = time.perf_counter() - start
    return {
        "device_gib": size, "ftl": ftl, "pages": geometry.lpas, "fill_s": wall - made["wall_s"],
        "overwrites": OVERWRITES, "overwrite_s": made["wall_s"], "replay_per_s": made["pages_per_s"],
        "waf": made["waf"], "peak_gib": most_memory_gib(),
        "heap_gib": made["heap"] / GIB,
    }  # fmt: skip


def requests(ftls: list[str]) -> list[Row]:
    rows = []
    for ftl in ftls:
        for ops in (1_000_000, 2_000_000, 4_000_000, 8_000_000):
            geometry = Geometry.sized(16 * GIB, op=OP, channels=8, dies=8)
            made = run(Setup(f"uniform:ops={ops},write=0.5", ftl, geometry=geometry, qd=DEPTH))
            rows.append({"ftl": ftl, "requests": ops, "wall_s": made["wall_s"], "us_each": 1e6 * made["wall_s"] / ops})
            say(rows[-1])
    return rows


def say(row: Row) -> None:
    shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
    print(", ".join(f"{key} {value}" for key, value in shown.items() if not isinstance(value, list)), file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ftl", default=",".join(SCHEMES), help="names with commas between them")
    parser.add_argument("--only", action="append", choices=["steady", "oracle", "traces", "sizes", "requests"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--largest", type=int, default=2048, help="GiB")
    parser.add_argument("--one-size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    ftls = given.ftl.split(",")
    if given.one_size:
        print(json.dumps(one_size(given.one_size, ftls[0])))
        return 0
    parts = given.only or ["steady", "oracle", "traces", "sizes", "requests"]
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        if "steady" in parts:
            out["steady"] = [row for name in STEADY for row in steady(library, name, ftls, given.turns)]
        if "oracle" in parts:
            out["oracle"] = oracle(library, ftls)
        if "traces" in parts:
            out["traces"] = traces(library, ftls)
    if "sizes" in parts:
        out["sizes"] = sizes(ftls, given.largest * GIB)
    if "requests" in parts:
        out["requests"] = requests(ftls)
    if not given.no_save:
        kept = common.RESULTS / "replay.json"
        before = json.loads(kept.read_text()) if kept.exists() else {}
        before.pop("machine", None)
        print(f"raw results: {common.save('replay', {**before, **out}).relative_to(common.HERE.parent)}")
    return 0
