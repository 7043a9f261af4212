"""Wear levelling keeps its word, and no chip runs dry."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from schemes import KINDS

from flashfs.crash.programs import presets_for
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES
from nandimg import PRESETS, Geometry

GEOMETRY = Geometry(page_bytes=512, pages_per_block=8, blocks=64, dies=2, channels=1, oob_bytes=64, lpas=380)
SLACK = 8  #: erases by which the most worn block may be further ahead than was asked: levelling takes its turn

pytestmark = pytest.mark.parametrize("ftl", KINDS)
#: of each of these chips the one that an FTL fits
CHIPS = {
    "tiny-8": ("tiny-8", "tiny-32", "tiny-48"), "tiny-16": ("tiny-16", "tiny-32", "tiny-48"),
    "tiny-24d": ("tiny-24d", "tiny-48d"),
}  # fmt: skip


def used(ftl: str, spread: int) -> Device:
    """That chip, or one with more blocks for what the scheme has in flash beside pages."""
    options = {"wear_spread": spread, "buffer": 0}
    try:
        return Device.memory(GEOMETRY, ftl, options)
    except BindError:
        return Device.memory(replace(GEOMETRY, blocks=72), ftl, options)


@pytest.mark.parametrize("spread", [4, 16, 32])
def test_wear_stays_within_its_spread(ftl: str, spread: int) -> None:
    """A twentieth of the pages takes 95 % of the writes; the rest is written once and rests."""
    device = used(ftl, spread)
    rnd = random.Random(1)
    device.write(0, b"c" * device.size)
    hot = GEOMETRY.lpas // 20
    for n in range(40_000):
        lpa = rnd.randrange(hot) if rnd.random() < 0.95 else rnd.randrange(hot, GEOMETRY.lpas // 4)
        device.write(lpa * 512, b"x" * 512)
        if n % 2_000 == 0:
            assert device.smart()["erases"]["spread"] <= spread + SLACK
    wear = device.smart()["erases"]
    assert wear["spread"] <= spread + SLACK
    assert wear["max"] > 3 * spread or spread == 32  # it did have something to level
    assert device.stats()["nand"]["by_cause"]["program"]["wear"] > 0
    assert device.problems() == []


def test_the_default_follows_the_endurance(ftl: str) -> None:
    """A third of the pages takes all writes but the first. Nothing is copied for wear before a block has used an eighth
    of its erases; when the first has used all of them, every other one has done seven eighths. A block that was
    emptied is worth a spread of erases, for it is not emptied again while it is in use."""
    endurance, spread = 160, 20
    geometry = Geometry(page_bytes=512, pages_per_block=16, blocks=256, oob_bytes=64, lpas=3200, endurance=endurance)
    device = Device.memory(geometry, ftl, {"buffer": 0}, backend="meta")
    rng = np.random.default_rng(1)
    device.ssd.write_pages(np.arange(geometry.lpas, dtype=np.uint32))
    erases = device.smart()["erases"]
    while erases["max"] < endurance:
        device.ssd.write_pages(rng.integers(0, geometry.lpas // 3, 400, dtype=np.uint32))
        erases = device.smart()["erases"]
        moved = device.stats()["nand"]["by_cause"]["program"].get("wear", 0)
        assert moved == 0 or erases["max"] > spread
    # blocks that a hash chooses are opened where entries have room, not by their wear alone
    assert erases["min"] >= (endurance * 5 // 8 if SCHEMES[ftl].hashed else endurance * 7 // 8 - SLACK)
    resting = geometry.lpas * 2 // 3
    most = 1.2 if SCHEMES[ftl].merges else 1.1  # a copy fills up its block
    assert 0 < moved <= most * resting * endurance / spread
    assert device.problems() == []


def test_without_levelling_the_same_writes_would_not(ftl: str) -> None:
    device = used(ftl, 1 << 20)
    rnd = random.Random(1)
    device.write(0, b"c" * device.size)
    for _ in range(20_000):
        device.write(rnd.randrange(GEOMETRY.lpas // 20) * 512, b"x" * 512)
    assert device.smart()["erases"]["spread"] > 32 + SLACK
    assert "wear" not in device.stats()["nand"]["by_cause"]["program"]


@pytest.mark.parametrize("preset", ["tiny-8", "tiny-16", "tiny-24d"])
@pytest.mark.parametrize("buffer", [0, 3])
@pytest.mark.parametrize("requests", [15_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_a_tiny_chip_never_runs_dry(ftl: str, preset: str, buffer: int, requests: int) -> None:
    geometry = PRESETS[presets_for(ftl, CHIPS[preset])[0]].geometry
    device = Device.memory(geometry, ftl, {"buffer": buffer, "wear_spread": 4})
    rnd = random.Random(f"{ftl} {preset}")
    model: dict[int, int] = {}
    for n in range(requests):
        lpa = rnd.randrange(geometry.lpas)
        kind = rnd.random()
        if kind < 0.85:
            device.write(lpa * 512, n.to_bytes(8, "little") * 64)
            model[lpa] = n
        elif kind < 0.93:
            device.trim(lpa * 512, 512)
            model.pop(lpa, None)
        elif kind < 0.99:
            device.flush()
        elif kind < 0.995:
            device.checkpoint()
        else:
            device.write(0, n.to_bytes(8, "little") * (device.size // 8))
            model = dict.fromkeys(range(geometry.lpas), n)
    for lpa in range(geometry.lpas):
        assert device.read(lpa * 512, 512) == (model[lpa].to_bytes(8, "little") * 64 if lpa in model else bytes(512))
    assert device.problems() == []


def test_the_smallest_chip_with_the_most_pages(ftl: str) -> None:
    """As few blocks as hold eight logical pages or more, and as many pages as the scheme accepts then: full, then
    overwritten over and over."""
    for blocks, lpas in itertools.product((8, 16, 24), range(20, 7, -1)):
        geometry = Geometry(page_bytes=512, pages_per_block=4, blocks=blocks, oob_bytes=64, lpas=lpas)
        try:
            device = Device.memory(geometry, ftl, {"buffer": 0})
        except BindError:
            continue
        break
    else:
        pytest.fail("it accepts none")
    rnd = random.Random(1)
    for n in range(20_000):
        device.write(rnd.randrange(lpas) * 512, n.to_bytes(8, "little") * 64)
    assert device.problems() == []
