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

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a program, it is in a folder beside

import golden
from schemes import EACH

GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=760)
PAGE = GEOMETRY.page_bytes


REMAPPING = [name for name in SCHEMES if SCHEMES[name].remaps]


def work(device: Device, rnd: random.Random, requests: int, remaps: bool = False) -> None:
    """Mostly small writes, half of them to a tenth of the pages; some long ones, reads, trims, flushes. With ``remaps``
    two in five requests more, which remap or move some pages, or write one that is one of a few contents."""
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
        if remaps and rnd.random() < 0.4:
            remap(device, rnd)


def remap(device: Device, rnd: random.Random) -> None:
    n = rnd.choice((1, 1, 2, 8, 30))
    source, target = rnd.randrange(760 - n), rnd.randrange(760 - n)
    if rnd.random() < 0.4:
        device.write(target * PAGE, bytes([rnd.randrange(6)]) * PAGE)
    else:
        device.remap(target * PAGE, source * PAGE, n * PAGE, move=rnd.random() < 0.3)


def geometry_for(ftl: str) -> Geometry:
    """The chip, with more blocks for a scheme that has too much of its own in flash for it."""
    try:
        Device.memory(GEOMETRY, ftl, backend="meta").close(clean=False)
    except BindError:
        return replace(GEOMETRY, blocks=72)
    return GEOMETRY


def counts(ftl: str, folder: Path, options: dict[str, str] | None = None, remaps: bool = False) -> dict[str, Any]:
    """Fill, work, a clean mount, work, a crash, its recovery, work: the counts of each life."""
    path = folder / "chip.nand"
    nandimg.create(path, geometry_for(ftl))
    rnd = random.Random(2020)
    lives = {}
    device = Device.open(path, ftl=ftl, options=options)
    device.write(0, bytes(760 * PAGE))
    for life, clean in (("fresh", True), ("after a clean mount", False), ("after a crash", True)):
        work(device, rnd, 700, remaps)
        device.flush()
        stats = device.stats()
        if not remaps:
            assert stats["host"].pop("remap") == 0
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


def with_remaps(ftl: str, folder: Path) -> dict[str, Any]:
    """The counts of remaps and moves, by what remaps are without deduplication and with it."""
    lives = {}
    for dedup in ("off", "on"):
        (folder / dedup).mkdir()
        options = {"dedup": dedup} if any(option.name == "dedup" for option in SCHEMES[ftl].options) else None
        lives[f"dedup={dedup}"] = counts(ftl, folder / dedup, options, True)
    return lives


@pytest.mark.parametrize("ftl", REMAPPING)
def test_golden_remaps(ftl: str, tmp_path: Path) -> None:
    found = with_remaps(ftl, tmp_path)
    assert found == golden.read("engine remaps", ftl)
    for dedup, lives in found.items():
        for life in lives.values():
            assert life["host"]["remap"] > 500
            assert life["scheme"]["remap_done"] > 200
            assert (life["scheme"].get("dedup_found", 0) > 20) == (dedup == "dedup=on")


def counted_remaps(ftl: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return with_remaps(ftl, Path(folder))


def counted(ftl: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return counts(ftl, Path(folder))


if __name__ == "__main__":
    golden.write("engine", counted, sys.argv[1:])
    if named := [name for name in REMAPPING if name in (sys.argv[1:] or REMAPPING)]:
        golden.write("engine remaps", counted_remaps, named)
