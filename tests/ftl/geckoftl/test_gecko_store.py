"""Gecko as a validity store (flashfs/ftl/geckoftl/store.pyx) under the page map: what it keeps in DRAM and in a
checkpoint, mounts, damage and power cuts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from gecko_schemes import TABLE, registered
from schemes import bounded

from flashfs.crash import campaign
from flashfs.device import Device
from nandimg import Geometry

PAGE = 512
TIERS = ("sweep", "random", "faults", "host")
#: Gecko's largest run takes 30 pages of 10 entries
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=2, oob_bytes=64, lpas=3000)
OPTIONS = {"buffer": "0", "entries": "10"}


@pytest.fixture(autouse=True)
def ftl() -> Iterator[str]:
    with registered(TABLE) as name:
        yield name


def load(device: Device, requests: int, seed: int = 1) -> dict[int, bytes]:
    """Writes and trims at random; what every page holds by then."""
    rnd, model = random.Random(seed), dict[int, bytes]()
    lpas = device.size // PAGE
    for _ in range(requests):
        lpa = rnd.randrange(lpas)
        if rnd.random() < 0.02:
            device.trim(lpa * PAGE, PAGE)
            model.pop(lpa, None)
        else:
            model[lpa] = rnd.randbytes(8) * (PAGE // 8)
            device.write(lpa * PAGE, model[lpa])
    return model


def test_says_what_the_map_says(ftl: str) -> None:
    device = Device.memory(CHIP, ftl, options=OPTIONS)
    model = load(device, 12_000)
    store = device.ssd.validity
    assert store.gecko.merges > 100 and store.gecko.queries > 100
    assert device.problems() == []
    named = {device.ssd.mapping.explain(lpa)["ppa"] for lpa in model}
    live = {block * 16 + page for block in range(CHIP.blocks) for page in store.live_in(block)}
    assert named | set(store.own_ppas()) | set(store.gecko.store.kept_ppas()) == live
    device.close()


def test_a_page_bitmap_is_in_neither_dram_nor_checkpoint(ftl: str) -> None:
    device = Device.memory(CHIP, ftl, options=OPTIONS)
    load(device, 4000)
    assert "pvb" not in device.ssd.dram() and "pvb" not in device.ssd.validity.save()
    assert device.ssd.dram()["run_directories"][0] < 8 * 3 * device.ssd.validity.gecko.model_pages + 4096
    device.close()


@pytest.mark.parametrize(("tier", "cuts"), bounded({"random": 80, "host": 50}, dict.fromkeys(TIERS, 600)))
def test_power_cuts(ftl: str, tier: str, cuts: int) -> None:
    result = campaign.run(ftl, tier, 0, cuts)
    # The page map does not rebuild Gecko if a page of it is spoilt; geckoftl's mapping does.
    failures = [one for one in result.failures if "a page of Logarithmic Gecko cannot be read" not in one.why]
    assert not failures, "\n".join(map(str, failures[:5]))
    assert result.cuts >= cuts
    assert result.events["runs"]
