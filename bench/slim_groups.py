"""What a small hot range costs on a full device: each group of 256 pages is overwritten at random, alone.

A device is filled in sequence at 10 % over-provisioning. Then, for each aligned group of 256 pages (1 MiB of 4 KiB
pages), from that same state: 3,000 single pages of it are written at random. WAF is programs a page written (pages
that meet in the write buffer are programmed once). Then every page of the group is looked up, and in one group of WHOLE
all pages of the device. Each try runs in a process forked from the prepared one. Virtual units only.

    slim_groups.py [--chip 1g|16g|16g-8d] [--every N] [--only NAME] [--no-save]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections import Counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from flashfs.device import Device
from nandimg.geometry import Geometry
from nandimg.presets import PRESETS

GROUP = 256  # pages
WRITES = 3_000
WHOLE = 64  # after one group in so many, the whole device is read
CHIPS = {
    "1g": Geometry.sized(2**30, op=0.1),
    "16g": PRESETS["slimftl-16g"].geometry,
    "16g-8d": PRESETS["slimftl-16g-8d"].geometry,
}
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "page map": ("pagemap", {}),
    "slimftl": ("slimftl", {}),
    "the thesis's": ("slimftl", {"candidates": "shifted", "crowded": "thesis", "lanes": 1}),
    "distinct candidates alone": ("slimftl", {"crowded": "thesis", "lanes": 1}),
    "making way alone": ("slimftl", {"candidates": "shifted", "lanes": 1}),
}


def filled(geometry: Geometry, ftl: str, options: dict[str, Any]) -> Device:
    device = Device.memory(geometry, ftl, options, backend="meta")
    for first in range(0, geometry.lpas, GROUP):
        device.ssd.write_pages(np.arange(first, min(first + GROUP, geometry.lpas), dtype=np.uint32))
    device.flush()
    return device


def lookups(device: Device, lpas: np.ndarray[Any, Any]) -> list[int]:
    """The number of look-ups by flash reads: [0 reads, 1 read, 2 reads, ...]."""

    def extra() -> int:
        return int(device.stats()["scheme"]["extra_reads"])

    before = extra()
    device.ssd.read_pages(lpas)
    if extra() == before:
        return [0, len(lpas)]
    took: Counter[int] = Counter()
    for i in range(len(lpas)):
        before = extra()
        device.ssd.read_pages(lpas[i : i + 1])
        took[1 + extra() - before] += 1
    return [took[n] for n in range(max(took) + 1)]


def tried(device: Device, group: int, whole: bool) -> dict[str, Any]:
    """Overwrite one group and count; the device is changed afterwards."""
    rng = np.random.default_rng(group)
    lpas = rng.integers(group * GROUP, (group + 1) * GROUP, WRITES).astype(np.uint32)
    before, write = device.stats(), device.ssd.write_pages
    for i in range(WRITES):
        write(lpas[i : i + 1])
    after = device.stats()
    device.flush()
    out = {
        "group": group,
        "waf": (after["nand"]["program"] - before["nand"]["program"]) / WRITES,
        "spare_reads": (after["nand"]["spare_read"] - before["nand"]["spare_read"]) / WRITES,
        "erases": after["nand"]["erase"] - before["nand"]["erase"],
        "lookups": lookups(device, np.arange(group * GROUP, (group + 1) * GROUP, dtype=np.uint32)),
    }
    if whole:
        out["lookups_whole"] = lookups(device, np.arange(device.ssd.lpas, dtype=np.uint32))
    return out


def forked(device: Device, group: int, whole: bool) -> dict[str, Any]:
    """``tried`` in a fork, so that this process's device does not change."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with os.fdopen(theirs, "w") as out:
                json.dump(tried(device, group, whole), out)
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours) as said:
        text = said.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"group {group}: its process failed")
    found: dict[str, Any] = json.loads(text)
    return found


def reads(found: list[dict[str, Any]], key: str) -> dict[str, float]:
    """The worst group's mean and p99.9 of reads a look-up."""
    mean = tail = 0.0
    for counts in (np.array(one[key]) for one in found if key in one):
        n = np.arange(len(counts))
        mean = max(mean, float((n * counts).sum() / counts.sum()))
        tail = max(tail, float(np.searchsorted(np.cumsum(counts), 0.999 * counts.sum())))
    return {"worst_mean": round(mean, 6), "worst_p999": tail}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    waf = np.array([one["waf"] for one in found])
    return {
        "groups": len(found),
        "waf": {name: round(float(np.percentile(waf, at)), 4) for name, at in
                (("median", 50), ("p90", 90), ("p99", 99), ("p999", 99.9), ("worst", 100))},
        "worst_group": found[int(waf.argmax())]["group"],
        "spare_reads_worst": round(max(one["spare_reads"] for one in found), 4),
        "reads_a_lookup": reads(found, "lookups"),
        "reads_a_lookup_whole": reads(found, "lookups_whole"),
    }  # fmt: skip


def measured(geometry: Geometry, name: str, every: int) -> dict[str, Any]:
    ftl, options = RULES[name]
    device = filled(geometry, ftl, options)
    groups = range(0, geometry.lpas // GROUP, every)
    found = [forked(device, group, i % WHOLE == 0) for i, group in enumerate(groups)]
    tables = device.ssd.mapping.tables()
    out = {"options": {**options}, "map_bytes": sum(packed for packed, _ in tables.values()), **summary(found)}
    out["waf_by_group"] = [round(one["waf"], 3) for one in found]
    device.close(clean=False)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", choices=CHIPS, default="1g")
    parser.add_argument("--every", type=int, default=1, help="only one group in so many")
    parser.add_argument("--only", choices=RULES, action="append", help="only this rule; may be repeated")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    geometry = CHIPS[given.chip]
    path = common.RESULTS / "slim_groups.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    rows = kept.get("chips", {}).get(given.chip, {}).get("rules", {})
    for name in given.only or RULES:
        begun = time.monotonic()
        row = rows[name] = measured(geometry, name, given.every)
        base = rows.get("page map", row)["waf"]["median"]
        row["over_3"] = sum(waf > 3 * base for waf in row["waf_by_group"])
        shown = {key: row[key] for key in ("groups", "waf", "over_3", "reads_a_lookup", "reads_a_lookup_whole")}
        print(f"{given.chip} {name}: {shown} ({time.monotonic() - begun:.0f} s)", flush=True)
        if not given.no_save:
            chips = kept.setdefault("chips", {})
            chips[given.chip] = {"geometry": dataclasses.asdict(geometry), "rules": rows}
            common.save("slim_groups", {"tool": "python bench slim_groups", "chips": chips, "rows": flat(chips)})
    return 0


def flat(chips: dict[str, Any]) -> list[dict[str, Any]]:
    """For figures (flashfs.reproduce.records): a row for each chip and rule."""
    return [
        {"chip": chip, "rules": name, "groups": row["groups"], **row["waf"], "over_3": row["over_3"]}
        for chip, found in chips.items() for name, row in found["rules"].items()
    ]  # fmt: skip
