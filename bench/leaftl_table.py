"""LeaFTL's table by itself: segments and bytes against an exhaustive search, learning, look-ups, memory.

Counts are the same anywhere; times are of one core, the best of several rounds, next to a look-up in a plain array
of 4-byte entries in the same run.

    leaftl_table.py [--quick] [--no-save]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np
from numpy.typing import NDArray

from bench import common
from flashfs.ftl.leaftl.regression_py import fit
from flashfs.ftl.leaftl.segments import SegmentTable

GAMMAS = (0, 1, 4, 16)
EXHAUSTIVE = {0: 11_622, 1: 1_318, 4: 431, 16: 395}  # greedy longest segments over every half and every intercept
BUFFER = 2048  # pages: 8 MiB
BLOCK = 256  # pages
GIB = (1 << 30) // 4096  # pages

Run = tuple[NDArray[np.uint32], NDArray[np.uint32]]


def seventy_percent() -> Run:
    """60,000 LPAs, each kept with a chance of 0.7, in order."""
    rnd = random.Random(3)
    lpas = np.array([lpa for lpa in range(60_000) if rnd.random() < 0.7], np.uint32)
    return lpas, np.arange(len(lpas), dtype=np.uint32)


def sequential(n: int) -> Run:
    return np.arange(n, dtype=np.uint32), np.arange(n, dtype=np.uint32)


def seconds(call: Callable[[], Any], rounds: int) -> float:
    """Processor time of the best round."""
    best = 1e9
    for _ in range(rounds):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best


def counted(pieces: NDArray[Any]) -> dict[str, int]:
    approximate = pieces[pieces["slope"] & 1 == 1]
    crb = int(approximate["n"].sum()) + len(approximate)
    return {"segments": len(pieces), "approximate": len(approximate), "bytes": 8 * len(pieces) + crb}


def learning(rounds: int) -> dict[str, Any]:
    """Segments and microseconds per 256 points, of the workload with holes and of a sequential one."""
    lpas, ppas = seventy_percent()
    parts = [slice(i, i + BUFFER) for i in range(0, len(lpas) - BUFFER, BUFFER)]
    straight = sequential(len(lpas))
    out: dict[str, Any] = {}
    for gamma in GAMMAS:
        free = sum(len(fit(lpas[i : i + BLOCK], ppas[i : i + BLOCK], gamma)) for i in range(0, len(lpas), BLOCK))
        row: dict[str, Any] = {"exhaustive": EXHAUSTIVE[gamma], "free": free}
        for objective in ("fewest", "smallest"):
            rules: dict[str, Any] = {"pages_per_block": BLOCK, "objective": objective}
            row[objective] = counted(fit(lpas, ppas, gamma, **rules))
            for name, (xs, ys) in (("us_per_256", (lpas, ppas)), ("us_per_256_sequential", straight)):
                took = sum(seconds(lambda p=p: fit(xs[p], ys[p], gamma, **rules), rounds) for p in parts)  # noqa: B023
                row[objective][name] = took * 1e6 * BLOCK / (BUFFER * len(parts))
        out[str(gamma)] = row
        few, small = row["fewest"], row["smallest"]
        print(
            f"gamma {gamma:2}: {few['segments']} segments, free {free}, exhaustive {EXHAUSTIVE[gamma]}; smallest "
            f"{small['segments']}, {small['bytes']} of {few['bytes']} bytes; {few['us_per_256']:.1f} and "
            f"{small['us_per_256']:.1f} us per 256 points, sequential {few['us_per_256_sequential']:.1f}",
            flush=True,
        )
    return out


def filled(pages: int, gamma: int, kind: str, seed: int = 1) -> SegmentTable:
    """A table of a device written in full buffers: ``sequential``, all of it in order; ``mixed``, that, and then a
    twentieth overwritten by runs of 1 to 512 pages, half of them with holes; ``random``, half as many random pages."""
    table = SegmentTable(pages, gamma, pages_per_block=BLOCK)
    rng = np.random.default_rng(seed)
    ppa = 0
    if kind != "random":
        for first in range(0, pages, 1 << 16):
            run = np.arange(first, min(pages, first + (1 << 16)), dtype=np.uint32)
            table.insert(run, run)
        ppa = pages
    wanted = {"sequential": 0, "mixed": pages // 20, "random": pages // 2}[kind]
    while wanted > 0:
        if kind == "random":
            run = np.unique(rng.integers(0, pages, BUFFER)).astype(np.uint32)
        else:
            runs = []
            for _ in range(BUFFER // 128):
                first, n = int(rng.integers(0, pages - 512)), int(rng.choice([1, 4, 16, 64, 512]))
                own = np.arange(first, first + n)
                runs.append(own[rng.random(n) < 0.7] if rng.random() < 0.5 else own)
            run = np.unique(np.concatenate(runs)).astype(np.uint32)
        ppa += -ppa % BLOCK
        table.insert(run, np.arange(ppa, ppa + len(run), dtype=np.uint32))
        ppa += len(run)
        wanted -= len(run)
    return table


def measured(table: SegmentTable, rounds: int) -> dict[str, Any]:
    """Bytes, levels, and nanoseconds a look-up: uniform over the device, and in order."""
    sizes = table.sizes()
    rng = np.random.default_rng(2)
    array = np.arange(table.lpas, dtype=np.uint32)
    out: dict[str, Any] = {
        "pages": table.lpas,
        "gamma": table.gamma,
        "bytes": sizes,
        "allocated_of_modelled": sizes["allocated"] / sizes["modelled"],
        "dftl_8_bytes_of_paper": 8 * table.lpas / max(1, sizes["paper"]),
        "levels_of_a_group": table.levels / max(1, table.mapped_groups),
    }
    orders = {"uniform": rng.integers(0, table.lpas, 1 << 20).astype(np.uint32), "in_order": array[: 1 << 20].copy()}
    for name, lpas in orders.items():
        found = np.empty_like(lpas)
        _, levels, approximate = table.lookup_many(lpas)
        out[name] = {
            "ns": seconds(lambda lpas=lpas: table.lookup_many(lpas), rounds) * 1e9 / len(lpas),
            "array_ns": seconds(lambda lpas=lpas, found=found: np.take(array, lpas, out=found), rounds)
            * 1e9
            / len(lpas),
            "levels_mean": float(levels[levels > 0].mean()),
            "top_level": float((levels[levels > 0] == 1).mean()),
            "within_ten": float((levels[levels > 0] <= 10).mean()),
            "approximate": float(approximate.mean()),
        }
    return out


def tables(quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 7
    big = 64 * GIB if quick else 2048 * GIB
    plans = [("sequential", 64 * GIB, 0), ("random", 64 * GIB, 0)]
    plans += [("mixed", 64 * GIB, gamma) for gamma in GAMMAS]
    plans += [("sequential", big, 0), ("mixed", big, 0), ("mixed", big, 4)]
    out: dict[str, Any] = {}
    for kind, pages, gamma in plans:
        begin = time.process_time()
        table = filled(pages, gamma, kind)
        built = time.process_time() - begin
        name = f"{kind}, {pages // GIB} GiB, gamma {gamma}"
        row = out[name] = measured(table, rounds)
        row["built_s"] = built
        begin = time.process_time()
        table.compact()
        row["compaction_s"] = time.process_time() - begin
        row["compacted"] = measured(table, rounds)
        uniform, in_order = row["uniform"], row["in_order"]
        print(
            f"{name}: {row['bytes']['paper']:,} bytes as the paper counts, modelled {row['bytes']['modelled']:,}, "
            f"allocated {row['allocated_of_modelled']:.3f} of it; 1/{row['dftl_8_bytes_of_paper']:.1f} of 8 B a page; "
            f"look-up {uniform['ns']:.0f} ns uniform (array {uniform['array_ns']:.0f}), {in_order['ns']:.0f} in order "
            f"(array {in_order['array_ns']:.1f}); {100 * uniform['top_level']:.1f} % end at the top; "
            f"compaction {row['compaction_s']:.2f} s, then {row['compacted']['uniform']['ns']:.0f} ns",
            flush=True,
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="64 GiB instead of 2 TiB, fewer rounds")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    results = {"learning": learning(5 if given.quick else 25), "tables": tables(given.quick)}
    if not given.no_save:
        print(common.save("leaftl_table", results))
    return 0
