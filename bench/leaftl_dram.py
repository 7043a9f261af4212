"""LeaFTL with a part of its table in flash: what that costs, by how much of the table may stay in memory.

A device of 1 GiB on four channels and sixteen dies, filled and overwritten at random until its WAF is steady; then
reads and writes in equal parts, sixteen at a time. ``table_bytes`` bounds the groups in memory; 0 is no bound. There is
no data cache: every read of the host goes to flash, and so does what the map needs for it.

    leaftl_dram.py [--quick] [--no-save]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

from bench import common
from flashfs.replay.play import Setup, run
from nandimg import Geometry

DEVICE = Geometry.sized(
    1 << 30, op=0.2, pages_per_block=256, channels=4, dies=16, oob_bytes=64,
    read_ns=20_000, program_ns=200_000, erase_ns=1_500_000,
)  # fmt: skip
PAGES = (0, 1_600_000, 1_000_000, 400_000)  # bytes of groups in memory, of a table of two million
RUNS = (0, 20_000, 8_000)
WORKLOADS = {  # name in the table: (workload, precondition, values of table_bytes)
    "single pages, uniform": ("uniform:ops={n},write=0.5,qd=16", "steady", PAGES),
    "single pages, zipf": ("zipf:ops={n},write=0.5,qd=16", "steady", PAGES),
    "256 KiB": ("uniform:ops={few},write=0.5,qd=16,size=256K", "fill", RUNS),
}
OPS = 1_000_000


def row_of(name: str, table_bytes: int, ops: int) -> dict[str, Any]:
    workload, before, _ = WORKLOADS[name]
    setup = Setup(
        workload.format(n=ops, few=ops // 25), "leaftl", options={"table_bytes": table_bytes}, geometry=DEVICE,
        precondition=before,
    )  # fmt: skip
    made = run(setup)
    causes, own, host = made["nand"]["by_cause"], made["scheme"], made["host"]
    return {
        "workload": name, "table_bytes": table_bytes, "most": own["group_bytes_most"],
        "reads": causes["read"].get("map", 0) / host["read"],
        "writes": causes["program"].get("map", 0) / host["write"], "waf": made["waf"],
        "latency_us": made["latency_us"], "iops": made["iops"], "pages_per_s": made["pages_per_s"],
        "translation_pages": own["translation_pages"],
    }  # fmt: skip


def said(row: dict[str, Any]) -> str:
    """A line of the table in docs/ftl/leaftl.md."""
    latency = row["latency_us"]
    return (
        f"| {row['workload']} | {row['table_bytes'] or 'all'} | {row['most']:,} | {row['reads']:.3f} |"
        f" {row['writes']:.3f} | {row['waf']} | {latency['read']['mean']:.0f} | {latency['read']['p99']:.0f} |"
        f" {row['iops'] / 1000:.1f} | {row['pages_per_s'] / 1e6:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    rows = []
    for name, (_, _, shares) in WORKLOADS.items():
        for table_bytes in shares:
            rows.append(row_of(name, table_bytes, OPS // 10 if given.quick else OPS))
            print(said(rows[-1]), flush=True)
    if not given.no_save:
        saved = common.save("leaftl_dram", {"rows": rows})
        print(f"raw results: {saved.relative_to(common.HERE.parent)}")
    return 0
