"""Translation pages lie on all dies, after random writes too: look-ups that miss do not wait for each other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy
import pytest
from schemes import limited

from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import Geometry, image

OF_MAPS = [name for name, scheme in SCHEMES.items() if any(one.name == "map_dies" for one in scheme.options)]
EACH = limited(OF_MAPS, OF_MAPS)
#: 180 translation pages of 128 entries or fewer; 300 spare blocks
CHIP = Geometry(page_bytes=512, pages_per_block=16, blocks=1792, channels=8, dies=8, oob_bytes=64, lpas=23_000)
MOST = 1.3  #: pages of the busiest die, of its share, on average


def write(device: Device, lpas: Any) -> None:
    device.ssd.write_pages(numpy.array(lpas, numpy.uint32), numpy.zeros(512 * len(lpas), numpy.uint8))


def aged(device: Device, writes: int, seed: str) -> float:
    """Write at random; the mean, over moments of the last third, of what the busiest die has of its share."""
    rnd, found = Random(seed), []
    for n in range(1, writes // 50 + 1):
        write(device, [rnd.randrange(CHIP.lpas) for _ in range(50)])
        if n % 20 == 0 and 3 * n * 50 > 2 * writes:
            found.append(busiest(device))
    assert device.problems() == []
    return mean(found)


def busiest(device: Device) -> float:
    """How many newest versions the busiest die has, of its share; but for two, which make much where pages are few."""
    store = device.ssd.mapping.store
    pages = Counter(store.live_ppas()) - Counter(store.kept_ppas())
    dies = Counter(ppa // CHIP.pages_per_block % CHIP.dies for ppa in pages)
    return (max(dies.values()) - 2) * CHIP.dies / dies.total()


@pytest.mark.parametrize("ftl", EACH)
def test_after_random_writes(ftl: str, tmp_path: Path) -> None:
    """And after the next mount, which counts them anew."""
    path = tmp_path / "chip"
    options = {"buffer": "0", "wear_spread": "1000000"}
    if any(one.name == "table_bytes" for one in SCHEMES[ftl].options):
        options["table_bytes"] = "3000"  # so that it does not fit
    image.create(path, CHIP)
    with Device.open(path, ftl=ftl, options=options) as device:
        for first in range(0, CHIP.lpas, 50):
            write(device, range(first, min(first + 50, CHIP.lpas)))
        assert aged(device, 24_000, f"{ftl} 1") <= MOST
    with Device.open(path, options=options) as device:
        assert aged(device, 8_000, f"{ftl} 2") <= MOST


@pytest.mark.parametrize("ftl", [name for name in OF_MAPS if any(one.name == "place" for one in SCHEMES[name].options)])
def test_among_superblocks_they_do_not_pile_up(ftl: str) -> None:
    """Blocks of the map in which little lives are cleaned, each by itself, though superblocks are cleaned whole."""
    options = {"buffer": "0", "wear_spread": "1000000", "place": "superblocks"}
    found = []
    with Device.memory(CHIP, ftl, options=options) as device:
        for first in range(0, CHIP.lpas, 50):
            write(device, range(first, min(first + 50, CHIP.lpas)))
        for turn in range(5):
            aged(device, 8_000, str(turn))
            blocks = [device.ssd.pool.describe(block) for block in range(CHIP.blocks)]
            found.append(sum(one["state"] == "closed" and one["stream"] == "map" for one in blocks))
    live = len(device.ssd.mapping.store.live_ppas()) / CHIP.pages_per_block
    assert mean(found[1:]) <= 3.5 * live  # superseded ones are kept until the next checkpoint


def test_one_block_after_another() -> None:
    """What it is without."""
    with Device.memory(CHIP, "dftl", options={"buffer": "0", "map_dies": "1"}) as device:
        for first in range(0, CHIP.lpas, 50):
            write(device, range(first, min(first + 50, CHIP.lpas)))
        assert aged(device, 24_000, "1") > 1.5
