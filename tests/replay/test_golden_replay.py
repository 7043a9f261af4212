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
from schemes import EACH

from flashfs.replay.play import Setup, run
from nandimg import Geometry

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a program, it is in a folder beside

import golden

GEOMETRY = Geometry.sized(64 << 20, op=0.2, pages_per_block=64, channels=2, dies=4)
WORK = "hotcold:ops=30k,write=0.6,trim=0.02,flush=0.002,size=4k/70:16k/20:64k/10,seed=11"
FIGURES = ("host", "nand", "waf", "scheme", "map_bytes", "dram", "cache", "holes_read", "virtual_s", "precondition")


def counts(ftl: str) -> dict[str, Any]:
    """Preconditioned, with a data cache, eight requests at a time."""
    setup = Setup(WORK, ftl, geometry=GEOMETRY, dram=12 << 20, qd=8, precondition="steady:most=1")
    made = run(setup)
    assert made["host"].pop("remap") == 0  # the work has none
    return {name: made[name] for name in FIGURES}


@pytest.mark.parametrize("ftl", EACH)
def test_golden(ftl: str) -> None:
    assert json.loads(json.dumps(counts(ftl))) == golden.read("replay", ftl)


if __name__ == "__main__":
    golden.write("replay", counts, sys.argv[1:])
