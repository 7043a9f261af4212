"""What training models and sorting a group takes, against the flash operations of putting the group in order.

    python bench learned [--valid 10 25 50 75 100] [--pages-per-block 512] [--rounds 9] [--out FILE]

A group is 64 directory entries of 512 LPAs, on superblocks of 64 dies (pages of 4 KiB; 40 us a read, 200 us a program).
--valid per cent of the LPAs are written; then, repeatedly, half as many pages at random, and one group is put in
order. Training time covers all models of a group; sorting time covers both sorts, by physical place and by LPA. Both
are wall time, which differs from run to run, so each is the least of its --rounds; they are compared with the virtual
time of the flash operations with all dies at work.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import machine
from flashfs.device import Device
from nandimg import Geometry

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "learned.json"
DIES, GROUPS, SUPERBLOCKS = 64, 4, 14
READ_NS, PROGRAM_NS = 40_000, 200_000
ORDERED = 24  #: groups that are put in order
GROUP_MODELS = 64


def measure(valid: int, pages_per_block: int) -> dict[str, Any]:
    """One share of LPAs in use."""
    group = DIES * pages_per_block
    geometry = Geometry(
        page_bytes=4096, pages_per_block=pages_per_block, blocks=DIES * SUPERBLOCKS, channels=8, dies=DIES,
        oob_bytes=64, lpas=GROUPS * group, read_ns=READ_NS, program_ns=PROGRAM_NS, erase_ns=2_000_000, transfer_ns=0,
    )  # fmt: skip
    device = Device.memory(geometry, "learnedftl", {"buffer": 0, "wear_spread": 1 << 20}, backend="meta")
    rng = np.random.default_rng(valid)
    lpas: Any = np.arange(geometry.lpas, dtype=np.uint32)
    lpas = lpas[rng.random(geometry.lpas) < valid / 100]
    for first in range(0, len(lpas), 1 << 14):
        device.ssd.write_pages(lpas[first : first + (1 << 14)])
    mapping: Any = device.ssd.mapping
    mapping.forget_counts()
    before = mapping.train_ns, mapping.sort_ns + device.ssd.mover.sort_ns
    for turn in range(ORDERED):
        device.ssd.write_pages(rng.choice(lpas, len(lpas) // 2))
        device.ssd.placement.order(turn % GROUPS)
    found = mapping.figures()
    trained = (mapping.train_ns - before[0]) / 1000
    sorted_us = (mapping.sort_ns + device.ssd.mover.sort_ns - before[1]) / 1000
    pages = found["group_moves"] / found["groups_ordered"]
    flash = pages * (READ_NS + PROGRAM_NS) / DIES / 1000
    sorts = found["groups_ordered"] + device.ssd.cleaning.cleaned_n  # cleaned superblocks are sorted too
    models = found["models_trained"]
    return {
        "valid": valid,
        "pages_a_group": round(pages),
        "groups_ordered": found["groups_ordered"],
        "models_trained": models,
        "train_us_a_model": round(trained / models, 3),
        "train_us_a_group": round(GROUP_MODELS * trained / models),
        "sort_us_a_group": round(sorted_us / sorts),
        "flash_us_a_group": round(flash),
        "of_flash": round((GROUP_MODELS * trained / models + sorted_us / sorts) / flash, 4),
    }


def least(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several rounds with the same share of LPAs: the least times."""
    row = dict(rounds[0])
    for name in ("train_us_a_model", "train_us_a_group", "sort_us_a_group"):
        row[name] = min(one[name] for one in rounds)
    row["of_flash"] = round((row["train_us_a_group"] + row["sort_us_a_group"]) / row["flash_us_a_group"], 4)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--valid", type=int, nargs="+", default=[10, 25, 50, 75, 100], help="per cent of LPAs in use")
    parser.add_argument("--pages-per-block", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rounds = [[measure(valid, args.pages_per_block) for valid in args.valid] for _ in range(args.rounds)]
    rows = [least(list(some)) for some in zip(*rounds, strict=True)]
    for row in rows:
        print("  ".join(f"{name} {value:,}" for name, value in row.items()))
    found = {"tool": "python bench learned", "machine": machine(), "rounds": args.rounds, "rows": rows}
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0
