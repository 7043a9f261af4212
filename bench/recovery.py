"""Write rate, recovery time and memory, by the size of the device and the pages since its checkpoint.

Each device is of the `meta` backend and lives in memory. It is written at random (single pages, uniform), its
controller is dropped as by a power cut, and a new one recovers from the chip. `--before TREE` does the same with
another built tree, taking turns, so that both are measured in one run. `cpu_s` is processor time: compare it if other
programs share the machine.

    python bench recovery                      # 16, 64 and 256 GiB
    python bench recovery --sizes 2048 --since 134217728 --empty
    python bench recovery --ftl pagemap,dftl,geckoftl,leaftl --sizes 16 2048 --since 16777216 --empty --save large
    python bench recovery --page               # docs/performance.md, from what that saved
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from bench import common

GIB = 2**30
BATCH = 1 << 20  #: pages a request of the workload


def memory(field: str) -> int:
    """A figure of this process in bytes: VmRSS, or VmHWM, the most since it was last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def geometry_of(gib: int) -> Any:
    """The chips of the other benchmarks; 2048 GiB is the preset leaftl-2t."""
    from nandimg import Geometry
    from nandimg.presets import PRESETS

    if gib == 2048:
        return PRESETS["leaftl-2t"].geometry
    return Geometry.sized(gib * GIB, op=0.2, pages_per_block=256, channels=8, dies=16)


def written(gib: int, ftl: str, since: int, empty: bool, seed: int) -> Any:
    """A device with about ``since`` pages programmed since its last checkpoint (0: as many as there can be)."""
    import numpy as np

    from flashfs.device import Device

    geometry = geometry_of(gib)
    options = {"checkpoint_every": since + BATCH} if since else {}
    device = Device.memory(geometry, ftl, options, backend="meta")
    rng = np.random.default_rng(seed)
    if not empty:
        for first in range(0, geometry.lpas, BATCH):
            device.ssd.write_pages(np.arange(first, min(first + BATCH, geometry.lpas), dtype=np.uint32))
        device.checkpoint()
    left, host_pages = since or int(0.98 * every(device)), 0
    # a map that is recovered from its pages has fences instead, which come sooner
    while device.ssd.since_checkpoint < left and not host_pages >= since > 0:
        n = max(1, min(BATCH, (left - device.ssd.since_checkpoint) // (1 if empty else 4)))
        device.ssd.write_pages(rng.integers(geometry.lpas, size=n, dtype=np.uint32))
        host_pages += n
    return device


def every(device: Any) -> int:
    """Pages between its checkpoints, as the engine sets it."""
    return int(getattr(device.ssd, "checkpoint_every", 256 * device.ssd.meta.checkpoint_pages))


def child(args: argparse.Namespace) -> None:
    """One measurement; prints it as JSON."""
    import gc

    from flashfs.device import Device

    began, worked = time.perf_counter(), time.process_time()
    device = written(args.sizes[0], args.ftl, args.since, args.empty, args.seed)
    filled, filled_cpu = time.perf_counter() - began, time.process_time() - worked
    host_pages, with_device = device.stats()["host"]["write"], memory("VmRSS")
    ledger = sum(allocated for _, allocated in device.ssd.dram().values())
    image, of, options, since = device._image, device._scheme, device.options, device.ssd.since_checkpoint
    del device
    gc.collect()
    image.chip.reset_volatile()
    Path("/proc/self/clear_refs").write_text("5")
    held = memory("VmRSS")
    began, worked = time.perf_counter(), time.process_time()
    device = Device(image, image.chip, of, options)
    device.recover()
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    found = device.recovery.figures["pages_found"]
    assert not device.recovery.clean and not device.recovery.alarms
    print(json.dumps({
        "gib": args.sizes[0], "ftl": args.ftl, "filled_first": not args.empty, "since_checkpoint": since,
        "pages_found": found, "seconds": round(seconds, 2), "cpu_s": round(worked, 2),
        "pages_a_second": round(found / seconds), "pages_a_cpu_second": round(found / worked),
        "virtual_s": round(device.ssd.now_ns / 1e9, 2), "chip_bytes": held, "most_bytes": memory("VmHWM"),
        "tables_bytes": sum(packed for packed, _ in device.ssd.dram().values()), "filled_s": round(filled, 1),
        "host_pages": host_pages, "written_a_cpu_second": round(host_pages / filled_cpu),
        "controller_bytes": with_device - held, "ledger_bytes": ledger,
        "steps": {step.name: round(step.wall_ms) for step in device.recovery.steps},
    }))  # fmt: skip


def measure(tree: str, words: list[str]) -> dict[str, Any]:
    """``child`` in a process of its own, with the modules of ``tree``."""
    command = [sys.executable, common.HERE, "recovery", "--child", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": tree}, cwd=tree)  # fmt: skip
    return {"tree": Path(tree).name, **json.loads(done.stdout)}


PAGE = common.HERE.parent / "docs" / "performance.md"
MARKS = ("<!-- python bench recovery --page: -->\n", "<!-- so far -->\n")


def table(rows: list[dict[str, Any]]) -> str:
    """The raw results of random writes to large devices as Markdown."""
    head = ("FTL", "device, GiB", "host pages", "M pages/s", "the device by its ledger, MB", "as measured, MB",
            "pages found", "recovery, s", "M pages/s", "virtual, s")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " --: |" * (len(head) - 1)]
    for row in rows:
        cells = [f"{row['gib']:,}", f"{row['host_pages']:,}", f"{row['written_a_cpu_second'] / 1e6:.2f}",
                 f"{row['ledger_bytes'] / 1e6:,.0f}", f"{row['controller_bytes'] / 1e6:,.0f}",
                 f"{row['pages_found']:,}", f"{row['cpu_s']:.2f}", f"{row['pages_a_cpu_second'] / 1e6:.1f}",
                 f"{row['virtual_s']:,.1f}"]  # fmt: skip
        lines.append(f"| `{row['ftl']}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table of the raw results between its marks."""
    rows = json.loads((common.RESULTS / "large.json").read_text())["rows"]
    before, _, rest = text.partition(MARKS[0])
    return before + MARKS[0] + "\n" + table(rows) + "\n" + MARKS[1] + rest.partition(MARKS[1])[2]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 256], metavar="GIB")
    asked.add_argument("--ftl", default="pagemap")
    asked.add_argument("--since", type=int, default=0, help="pages since the checkpoint; 0: as many as there can be")
    asked.add_argument("--empty", action="store_true", help="nothing was written before the checkpoint")
    asked.add_argument("--rounds", type=int, default=1)
    asked.add_argument("--before", help="another built tree, to be compared with")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--save", help="the name under bench/results")
    asked.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--page", action="store_true", help="write the table into docs/performance.md, measure nothing")
    args = asked.parse_args()
    if args.child:
        child(args)
        return
    if args.page:
        PAGE.write_text(page(PAGE.read_text()))
        return
    here = str(Path(__file__).resolve().parent.parent)
    rows = []
    for turn in range(args.rounds):
        for gib in args.sizes:
            for ftl, tree in product(args.ftl.split(","), [args.before, here] if args.before else [here]):
                words = ["--sizes", str(gib), "--ftl", ftl, "--since", str(args.since), "--seed",
                         str(args.seed + turn), *(["--empty"] if args.empty else [])]  # fmt: skip
                rows.append({"before": tree == args.before, **measure(tree, words)})
                print(json.dumps(rows[-1]), flush=True)
    if args.save:
        common.save(args.save, {"rows": rows})
