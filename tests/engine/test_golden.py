"""Golden counts: what each FTL programs, erases and reads, by cause, on one small workload, to the last one.

A change of a count is a change of behaviour: look whether it was meant, then

    python tests/engine/test_golden.py [NAME...]

writes golden.json of those schemes anew, or of all, and the change log gets a line if users can see it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from schemes import EACH

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import Geometry

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a program, it is in a folder beside

import golden

GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=760)
PAGE = GEOMETRY.page_bytes


def work(device: Device, rnd: random.Random, requests: int) -> None:
    """Mostly small writes, half of them to a tenth of the pages; some long ones, reads, trims, flushes."""
    for _ in range(requests):
        lpa = rnd.randrange(76) if rnd.random() < 0.5 else rnd.randrange(760)
        span = min(rnd.choice((1, 1, 1, 2, 8, 40)), 760 - lpa)
        kind = rnd.random()
        if kind < 0.6:
            device.write(lpa * PAGE, bytes([lpa & 0xFF]) * span * PAGE)
        elif kind < 0.85:
            device.read(lpa * PAGE, span * PAGE)
        elif kind < 0.92:
            device.trim(lpa * PAGE, span * PAGE)
        else:
            device.flush()


def geometry_for(ftl: str) -> Geometry:
    """The chip, with more blocks for a scheme that has too much of its own in flash for it."""
    try:
        Device.memory(GEOMETRY, ftl, backend="meta").close(clean=False)
    except BindError:
        return replace(GEOMETRY, blocks=72)
    return GEOMETRY


def counts(ftl: str, folder: Path, options: dict[str, str] | None = None) -> dict[str, Any]:
    """Fill, work, a clean mount, work, a crash, its recovery, work: the counts of each life."""
    path = folder / "chip.nand"
    nandimg.create(path, geometry_for(ftl))
    rnd = random.Random(2020)
    lives = {}
    device = Device.open(path, ftl=ftl, options=options)
    device.write(0, bytes(760 * PAGE))
    for life, clean in (("fresh", True), ("after a clean mount", False), ("after a crash", True)):
        work(device, rnd, 700)
        device.flush()
        stats = device.stats()
        assert stats["host"].pop("remap") == 0  # the work has none
        lives[life] = {
            "host": stats["host"],
            "nand": stats["nand"]["by_cause"],
            "virtual_ns": round(stats["virtual_s"] * 1e9),
            "scheme": stats["scheme"],
        }
        device.close(clean=clean)
        device = Device.open(path, options=options, trust=True)
    device.close()
    return lives


@pytest.mark.parametrize("ftl", EACH)
def test_golden(ftl: str, tmp_path: Path) -> None:
    assert counts(ftl, tmp_path) == golden.read("engine", ftl)


@pytest.mark.parametrize("ftl", EACH)
def test_the_same_again(ftl: str, tmp_path: Path) -> None:
    """Nothing depends on when or where it runs."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert counts(ftl, tmp_path / "one") == counts(ftl, tmp_path / "two")


def counted(ftl: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return counts(ftl, Path(folder))


if __name__ == "__main__":
    golden.write("engine", counted, sys.argv[1:])
