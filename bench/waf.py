"""Write amplification of the page map after `steady`, against a closed form of greedy cleaning, by over-provisioning.

Uniform random overwrites of one page, no write buffer, no wear levelling, checkpoints left out (they are in the file
of results). Counts are virtual, so the same on any machine.

The form is the mean field of greedy cleaning with blocks of B pages (`greedy`). It needs the number of blocks that take
part, for which figures in the literature differ by a tenth: a device keeps some free, some open and some for its
metadata. `whole` counts every block of the chip; `part` counts the closed blocks and the mean of live pages in them,
from which greedy chooses. `part` must agree within 3 %. The rest of the difference: a device cleans several blocks in
a row to make one free, and the last of these are not the emptiest that there would be a little later.

    waf.py [--size SIZE] [--op SHARE,...] [--no-save]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from flashfs.device import Device
from flashfs.formulas.cleaning import greedy
from flashfs.replay._player import Player
from flashfs.replay.precondition import Precondition
from flashfs.replay.workloads import Workload
from nandimg import Geometry

OPS = (0.07, 0.1, 0.15, 0.2, 0.28, 0.4, 0.6, 0.8, 1.0)
OPTIONS = {"buffer": "0", "wear_spread": "1000000"}
WITHIN = 0.03
SAMPLES = 100  #: of the pool, for each device's worth of writes


def point(size_bytes: int, op: float) -> dict[str, Any]:
    """One over-provisioning: the measured WAF, and the form's."""
    geometry = Geometry.sized(size_bytes, op=op, dies=8, channels=8)
    device = Device.memory(geometry, "pagemap", dict(OPTIONS), backend="meta")
    done = Precondition.parse("steady").run(device)
    assert done is not None
    source = Workload(f"uniform:write=1,seed=99,ops={2 * geometry.lpas}", device.size, device.page_bytes)
    player = Player(device.ssd, 8, device.quiet_at())
    samples = []
    for batch in source.batches(geometry.lpas // SAMPLES):
        player.play(batch.time_ns, batch.op, batch.offset, batch.length)
        blocks = device.block_map()
        closed = np.array(blocks["state"]) == blocks["states"].index("closed")
        samples.append((int(closed.sum()), int(np.array(blocks["valid"])[closed].sum())))
    stats = device.stats()
    device.close(clean=False)
    closed_mean, live_mean = (float(one) for one in np.mean(samples, axis=0))
    programs = stats["nand"]["by_cause"]["program"]
    waf = (programs["host"] + programs["gc"]) / stats["host"]["write"]
    pages = geometry.pages_per_block
    part = greedy(pages, closed_mean * pages / live_mean)
    return {
        "op": op, "blocks": geometry.blocks, "lpas": geometry.lpas, "closed": closed_mean, "live_in_closed": live_mean,
        "steady": done["steady"], "windows": done["waf"], "erases_a_block": done["erases_a_block"],
        "programs": programs, "waf": round(waf, 4), "waf_with_checkpoints": stats["waf"], "part": round(part, 4),
        "whole": round(greedy(pages, geometry.blocks * pages / geometry.lpas), 4), "off": round(waf / part - 1, 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1 << 30, metavar="BYTES", help="that the host sees")
    parser.add_argument("--op", default=",".join(map(str, OPS)), help="shares, with commas between them")
    parser.add_argument("--no-save", action="store_true")
    arguments = parser.parse_args()
    print("| OP | closed blocks | WAF | form, closed blocks | whole chip | off |")
    print("| --: " * 6 + "|")
    points = []
    for op in map(float, arguments.op.split(",")):
        one = point(arguments.size, op)
        points.append(one)
        print(
            f"| {op:g} | {one['closed']:,.0f} of {one['blocks']:,} | {one['waf']:.3f} | {one['part']:.3f} | "
            f"{one['whole']:.3f} | {one['off']:+.1%} |", flush=True,
        )  # fmt: skip
    if not arguments.no_save:
        saved = {"size": arguments.size, "options": OPTIONS, "within": WITHIN, "points": points}
        print(common.save("waf", saved))
