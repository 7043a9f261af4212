"""SlimFTL against the page map: DRAM by table, and how often each erases, by how sequential the writes are.

The workload is a log-structured store's: a table is an aligned run of pages, written from end to end; then
places are chosen uniformly, trimmed and written again. `run` is the length of such a table in pages: 1 is random, 256
a block, `lsm` a mixture of 64 to 512.
Counted in steady state: filled once, overwritten once unmeasured, then twice. Virtual units, so the same on any
machine.

    slimftl.py [--blocks N] [--quick] [--no-save]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from flashfs.device import Device
from nandimg.geometry import Geometry
from nandimg.presets import PRESETS

RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # pages
SHIFTS = (0, 1, 2, 3, 4, 5, 6, 7, 8)
LSM = (64, 128, 256, 512)  # tables of all these sizes
SHIFT_RUNS = ("256", "lsm")  # the sequential-ish workloads on which shifts are compared
FILL = 0.98  # share of the logical pages that is ever written


def scaled(blocks: int) -> Geometry:
    """slimftl-16g with fewer blocks and the same over-provisioning."""
    whole = PRESETS["slimftl-16g"].geometry
    return dataclasses.replace(whole, blocks=blocks, lpas=whole.lpas * blocks // whole.blocks)


def tables(rng: np.random.Generator, geometry: Geometry, runs: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Endless (first page, pages) of tables: the whole span once in random order, then places and sizes at random."""
    longest = max(runs)
    span = int(geometry.lpas * FILL) // longest * longest
    yield from ((int(place) * longest, longest) for place in rng.permutation(span // longest))
    while True:
        for size in rng.choice(runs, 4096):
            yield int(rng.integers(0, span // size)) * int(size), int(size)


def counts(device: Device) -> dict[str, int]:
    stats = device.stats()
    cleaned = getattr(device.ssd.cleaning, "cleaned", None)
    return {
        "host": stats["host"]["write"],
        "programs": stats["nand"]["program"],
        "erases": stats["nand"]["erase"],
        "gc_programs": stats["nand"]["by_cause"]["program"].get("gc", 0),
        "cleaned": cleaned if cleaned is not None else 0,
    }


def steady(geometry: Geometry, ftl: str, options: dict[str, Any], runs: tuple[int, ...]) -> dict[str, Any]:
    """Counts over two overwrites of the device, after a fill and one overwrite."""
    device = Device.memory(geometry, ftl, options, backend="meta")
    source = tables(np.random.default_rng(1), geometry, runs)
    pages = np.arange(max(runs), dtype=np.uint32)
    marks, done, before = [geometry.lpas, 2 * geometry.lpas, 4 * geometry.lpas], 0, {}
    while done < marks[-1]:
        first, n = next(source)
        if done >= marks[0] and n > 1:
            device.ssd.trim_pages(first, n)
        device.ssd.write_pages(pages[:n] + np.uint32(first))
        if done < marks[1] <= done + n:
            before = counts(device)
        done += n
    after = counts(device)
    found: dict[str, Any] = {name: after[name] - before[name] for name in after}
    found["waf"] = found["programs"] / found["host"]
    found["scheme"] = device.stats()["scheme"]
    device.close(clean=False)
    return found


def dram(geometry: Geometry) -> dict[str, Any]:
    """Bytes packed as in a controller and bytes allocated, of both schemes' own tables."""
    out: dict[str, Any] = {}
    for ftl, names in (("pagemap", ["page_table"]), ("slimftl", ["primary_table", "virtual_block_table"])):
        device = Device.memory(geometry, ftl, backend="meta")
        ledger = device.ssd.dram()
        out[ftl] = {name: dict(zip(("packed", "heap"), ledger[name], strict=True)) for name in names}
        out[ftl]["entry_bits"] = 8 * ledger[names[0]][0] / geometry.lpas
        device.close(clean=False)
    packed = {ftl: sum(out[ftl][name]["packed"] for name in out[ftl] if name != "entry_bits") for ftl in out}
    out["slimftl_of_pagemap"] = packed["slimftl"] / packed["pagemap"]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=9011 // 8, help="physical blocks; slimftl-16g has 9011")
    parser.add_argument("--quick", action="store_true", help="fewer runs and shifts")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    geometry = scaled(given.blocks)
    runs = (2, 256) if given.quick else RUNS
    shifts = (1, 8) if given.quick else SHIFTS
    out: dict[str, Any] = {"geometry": geometry.as_dict(), "dram": dram(PRESETS["slimftl-16g"].geometry)}
    print(f"tables on slimftl-16g: {out['dram']['slimftl_of_pagemap']:.4f} of the page map's", flush=True)

    out["by_run"] = {}
    for name, sizes in (*((str(run), (run,)) for run in runs), ("lsm", LSM)):
        row = out["by_run"][name] = {
            "pagemap": steady(geometry, "pagemap", {}, sizes),
            "slimftl": steady(geometry, "slimftl", {}, sizes),
        }
        print(f"run {name:>3}, shift 8: {compared(row['slimftl'], row['pagemap'])}", flush=True)
    out["by_shift"] = {}
    for name in SHIFT_RUNS:
        for shift in shifts:
            found = steady(geometry, "slimftl", {"shift": shift}, LSM if name == "lsm" else (int(name),))
            out["by_shift"].setdefault(name, {})[shift] = found
            print(f"run {name}, shift {shift}: {compared(found, out['by_run'][name]['pagemap'])}", flush=True)
    out["by_hash"] = {}
    for run in (2, 256):
        row = {name: steady(geometry, "slimftl", {"hash": name}, (run,)) for name in ("mix", "md5")}
        out["by_hash"][run] = row
        print(f"run {run}, mix / md5: {row['mix']['erases'] / row['md5']['erases'] - 1:+.2%} erases", flush=True)
    if not given.no_save:
        found = {"tool": "python bench slimftl", **out, "rows": rows(out)}
        print(f"raw results: {common.save('slimftl', found).relative_to(common.HERE.parent)}")
    return 0


def rows(out: dict[str, Any]) -> list[dict[str, Any]]:
    """For figures (flashfs.reproduce.records): a row for each length of runs and each shift."""
    made = []
    for runs, by_shift in out["by_shift"].items():
        page_map = out["by_run"][runs]["pagemap"]
        for shift, found in by_shift.items():
            made.append({
                "runs": runs, "shift": int(shift), "erases": found["erases"], "erases_pagemap": page_map["erases"],
                "waf": round(found["waf"], 6), "waf_pagemap": round(page_map["waf"], 6),
            })  # fmt: skip
    return made


def compared(found: dict[str, Any], reference: dict[str, Any]) -> str:
    return (
        f"erases {found['erases']} against {reference['erases']} ({found['erases'] / reference['erases'] - 1:+.1%}),"
        f" WAF {found['waf']:.3f} against {reference['waf']:.3f}"
    )
