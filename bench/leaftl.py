"""LeaFTL on a device: the cost of a flush by what it does with a half-filled block, how the dying page is found, and
mispredictions, segments, levels and write amplification against the page map's.

A device is filled in order, then overwritten by requests of one kind until as many pages as it has were written again
(unmeasured), then half as many once more. The page map runs with LeaFTL's settings (its write buffer, and blocks
instead of stripes), and with its own defaults. Requests: `single` pages; `runs` of 1 to 256 pages; `holes`, such runs
with each page kept at a chance of 0.7. All are counts but the last column: wall time, with rules and counters on.

    leaftl.py [--gib N] [--quick] [--no-save]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np
from numpy.typing import NDArray

from bench import common
from flashfs.device import Device
from flashfs.replay import equal_settings
from nandimg.geometry import Geometry

Run = NDArray[np.uint32]

GAMMAS = (0, 1, 4, 16)
FLUSHES = (1, 16, 256, 4096, 0)  # pages between two flushes; 0: none
KINDS = ("single", "runs", "holes")
RATES = ("segments", "approximate", "crb_bytes", "paper_bytes", "modelled_bytes", "mispredictions")


def geometry(gib: int) -> Geometry:
    return Geometry.sized(gib << 30, op=0.2, page_bytes=4096, pages_per_block=256, channels=16, dies=16, oob_bytes=160)


def requests(kind: str, lpas: int, seed: int) -> Iterator[Run]:
    rng = np.random.default_rng(seed)
    while True:
        if kind == "single":
            yield from np.array_split(rng.integers(0, lpas, 4096, dtype=np.uint32), 4096)
            continue
        first = int(rng.integers(0, lpas))
        run = np.arange(first, min(lpas, first + int(rng.integers(1, 257))), dtype=np.uint32)
        if kind == "holes":
            run = run[rng.random(len(run)) < 0.7]
        if len(run):
            yield run


def drive(device: Device, source: Iterator[Run], pages: int, flush_every: int = 0) -> None:
    done = due = 0
    while done < pages:
        run = next(source)
        device.ssd.write_pages(run)
        done += len(run)
        due += len(run)
        if flush_every and due >= flush_every:
            device.flush()
            due = 0


def steady(ftl: str, options: dict[str, Any], gib: int, kind: str, flush_every: int = 0) -> dict[str, Any]:
    device = Device.memory(geometry(gib), ftl, options, backend="meta")
    lpas = device.ssd.lpas
    for first in range(0, lpas, 4096):
        device.ssd.write_pages(np.arange(first, min(lpas, first + 4096), dtype=np.uint32))
    source = requests(kind, lpas, 1)
    drive(device, source, lpas, flush_every)
    device.forget_counts()
    started = time.perf_counter()
    drive(device, source, lpas // 2, flush_every)
    device.flush()
    seconds = time.perf_counter() - started
    stats = device.stats()
    written = stats["host"]["write"]
    device.ssd.forget_counts()
    rng = np.random.default_rng(2)
    for _ in range(200):
        device.ssd.read_pages(rng.integers(0, lpas, 1000, dtype=np.uint32))
    reads = device.stats()["scheme"]
    device.close(clean=False)
    return {
        "host_writes": written, "waf": stats["waf"], "by_cause": stats["nand"]["by_cause"],
        "pages_per_s": round(written / seconds), "scheme": stats["scheme"], "random_reads": 200_000,
        "read_figures": reads,
    }  # fmt: skip


def told(found: dict[str, Any]) -> str:
    scheme, reads = found["scheme"], found["read_figures"]
    if "segments" not in scheme:
        return f"WAF {found['waf']:.3f}, {found['pages_per_s'] / 1e3:.0f} k pages/s"
    asked = scheme["settled_by_validity"] + scheme["settled_by_list"] + scheme["settled_by_spare_read"]
    ways = "" if not asked else (
        f", guesses settled {100 * scheme['settled_by_validity'] / asked:.1f} % by validity, "
        f"{100 * scheme['settled_by_list'] / asked:.1f} % by list, "
        f"{scheme['settled_by_spare_read'] / found['host_writes']:.4f} spare reads a page written")
    pads = found["by_cause"]["program"].get("pad", 0) / found["host_writes"]
    levels = reads["lookups_by_level"]
    return (f"WAF {found['waf']:.3f} ({pads:.3f} of it pads), {scheme['segments']} segments, "
            f"{scheme['paper_bytes']} bytes as the paper counts, {reads['mispredictions'] / 2000:.2f} % mispredicted, "
            f"{100 * levels[0] / sum(levels):.1f} % of look-ups end at the top, "
            f"{found['pages_per_s'] / 1e3:.0f} k pages/s{ways}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=4, help="logical size of the device")
    parser.add_argument("--quick", action="store_true", help="1 GiB, and one kind of request")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    gib = 1 if given.quick else given.gib
    out: dict[str, Any] = {"geometry": geometry(gib).as_dict(), "by_kind": {}, "by_flush": {}}
    for kind in ("holes",) if given.quick else KINDS:
        row = out["by_kind"][kind] = {}
        even: dict[str, Any] = {**equal_settings.common(["pagemap", "leaftl"], geometry(gib))}
        for name, options in (("pagemap", even), ("pagemap alone", {})):
            row[name] = steady("pagemap", options, gib, kind)
            print(f"{kind}, {name}: {told(row[name])}", flush=True)
        even.pop("stripe")  # LeaFTL has blocks, and no choice
        for gamma in GAMMAS:
            found = row[f"gamma {gamma}"] = steady("leaftl", {**even, "gamma": gamma}, gib, kind)
            print(f"{kind}, gamma {gamma}: {told(found)}", flush=True)
    for every in FLUSHES:
        for pad in ("open", "block"):
            if pad == "block" and every == 1:
                continue  # 256 programs a page: a thousand times what the others take
            found = steady("leaftl", {"pad": pad}, 1, "single", every)
            out["by_flush"].setdefault(every, {})[pad] = found
            print(f"flush every {every}, pad={pad}: {told(found)}", flush=True)
    if not given.no_save:
        print(f"raw results: {common.save('leaftl', out).relative_to(common.HERE.parent)}")
    return 0
