"""Golden counts of a replay: what each FTL programs, erases and reads, by cause, and the bytes of its map, exactly.

A change of a count is a change of behaviour: look whether it was meant, then

    python tests/replay/test_golden_replay.py [NAME...]

writes golden.json of those schemes anew, or of all, and the change log gets a line if users can see it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flashfs.ftl import SCHEMES
from flashfs.replay.play import Setup, run
from nandimg import Geometry

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a program, it is in a folder beside

import golden
from schemes import EACH

GEOMETRY = Geometry.sized(64 << 20, op=0.2, pages_per_block=64, channels=2, dies=4)
WORK = "hotcold:ops=30k,write=0.6,trim=0.02,flush=0.002,size=4k/70:16k/20:64k/10,seed=11"
REMAPS = {
    "log": ("wal:ops=20k,loaded=1,frames=6,run=3,checkpoint=500,dist=zipf:0.9", {}),
    "file system": ("lfs:ops=30k,discard=0,util=0.5,segment=256k", {}),
    "contents": ("uniform:ops=20k,write=1,dup=0.4,seed=5", {"dedup": "on"}),
    "log in flash": ("uniform:ops=40k,write=1,dup=0.4,seed=5", {"dedup": "on", "rival": "flog", "nvram": 200_000}),
    "log in NVRAM": ("uniform:ops=40k,write=1,dup=0.4,seed=5", {"dedup": "on", "rival": "nlog", "nvram": 200_000}),
}
REMAPPING = [name for name in SCHEMES if SCHEMES[name].remaps]
FIGURES = ("host", "nand", "waf", "scheme", "map_bytes", "dram", "cache", "holes_read", "virtual_s", "precondition")


def counts(ftl: str) -> dict[str, Any]:
    """Preconditioned, with a data cache, eight requests at a time."""
    setup = Setup(WORK, ftl, geometry=GEOMETRY, dram=12 << 20, qd=8, precondition="steady:most=1")
    made = run(setup)
    assert made["host"].pop("remap") == 0  # the work has none
    return {name: made[name] for name in FIGURES}


def with_remaps(ftl: str) -> dict[str, Any]:
    """Workloads that remap and move, and one whose contents come again, for which a scheme that can looks."""
    found = {}
    for name, (work, options) in REMAPS.items():
        known = {key: value for key, value in options.items() if key in {one.name for one in SCHEMES[ftl].options}}
        made = run(Setup(work, ftl, geometry=GEOMETRY, options=known, dram=12 << 20, qd=8))
        found[name] = {figure: made[figure] for figure in FIGURES}
    return found


@pytest.mark.parametrize("ftl", REMAPPING)
def test_golden_remaps(ftl: str) -> None:
    found = json.loads(json.dumps(with_remaps(ftl)))
    assert found == golden.read("replay remaps", ftl)
    assert all(found[name]["scheme"]["remap_done"] > 1_000 for name in ("log", "file system"))
    assert found["contents"]["scheme"]["dedup_found"] > 1_000
    assert found["file system"]["host"]["remap"] > 1_000
    assert all(found[name]["scheme"]["rmm_reclaimed"] for name in ("log in flash", "log in NVRAM"))
    assert found["log in flash"]["scheme"]["flog_reads"] > 1_000


@pytest.mark.parametrize("ftl", EACH)
def test_golden(ftl: str) -> None:
    assert json.loads(json.dumps(counts(ftl))) == golden.read("replay", ftl)


if __name__ == "__main__":
    golden.write("replay", counts, sys.argv[1:])
    if named := [name for name in REMAPPING if name in (sys.argv[1:] or REMAPPING)]:
        golden.write("replay remaps", with_remaps, named)
