"""Groups of blocks over a validity store that is in flash, or late: what is reported of a whole group has to have room
before it is moved, superseded pages of any victim die with it, and blocks that are spared stay."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import flash_pvb
import pytest
from test_flash_bitmap import PAGE, Load
from test_late_validity import store

from flashfs.crash import campaign
from flashfs.device import Device
from flashfs.engine.defaults import PageTable
from flashfs.engine.flash_bitmap import FlashBitmap
from flashfs.engine.superblocks import SuperblockGreedy
from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import superblocks_for
from nandimg import Geometry

CHIP = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=256, dies=4, channels=2, oob_bytes=64, lpas=1100)
NAMES = {"flash": "superblocks-pvb", "late": "superblocks-late"}
LOG = Option("log", 64, "reports that the log has room for, beside a block's move", low=0, high=4096)
__all__ = ["store"]  # a fixture


def over_superblocks(name: str, ssd: Any, validity: Any, spares: tuple[int, ...] = ()) -> tuple[Any, Any, Any, Any]:
    mapping = PageTable(ssd)
    return mapping, validity, superblocks_for(ssd, {"gc_reserve": 0}, name), SuperblockGreedy(ssd, spares=spares)


def in_flash(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, options["frames"], log=options["log"], blocks_a_page=options["blocks"])
    spares = (validity.pages_in_flash.stream,) if options["spare"] else ()
    return over_superblocks(NAMES["flash"], ssd, validity, spares)


IN_FLASH = replace(
    flash_pvb.FLASH_PVB, name=NAMES["flash"], build=in_flash, varied={"log": (1, 64), "spare": (0, 1)},
    options=(LOG, flash_pvb.FRAMES, flash_pvb.BLOCKS, flash_pvb.SPARE), tight={"log": (64,)},
)  # fmt: skip


@pytest.fixture(params=["flash", "late"])
def ftl(request: pytest.FixtureRequest, store: Any) -> Iterator[str]:  # noqa: F811
    def late(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        return over_superblocks(NAMES["late"], ssd, store(ssd))

    scheme: Scheme = IN_FLASH
    if request.param == "late":
        scheme = replace(SCHEMES["pagemap"], name=NAMES["late"], build=late, options=(), varied={}, manual="")
    with flash_pvb.registered(scheme) as name:
        yield name


def test_contents_and_every_invariant_after_much_cleaning(ftl: str) -> None:
    device = Device.memory(CHIP, ftl, options={"buffer": "0"})
    load = Load(device)
    for _ in range(3):
        load.run(3000)
        if ftl == NAMES["flash"]:
            load.must_hold()
        else:
            assert device.problems() == []
        device.checkpoint()
    assert device.ssd.cleaning.cleaned_n > 100
    assert device.ssd.operations()[1]["program"]["gc"] > 500
    device.close()


@pytest.mark.parametrize("log", [0, 64])
def test_a_group_moves_as_one_if_validity_has_room_for_it(log: int) -> None:
    """Else block by block, and no page is lost either way."""
    with flash_pvb.registered(IN_FLASH) as name:
        device = Device.memory(CHIP, name, options={"buffer": "0", "log": str(log)})
        load = Load(device)
        load.run(6000)
        groups = set()
        for block in range(CHIP.blocks):
            for page in device.ssd.validity.live_in(block):
                groups.add(device.nand.read_spare_area(block, page)[1][19])
        assert (len(groups) > 1) == (log > 0)
        load.must_hold()
        device.close()


def test_cleaning_keeps_away_from_what_is_spared() -> None:
    """Its blocks are erased when nothing in them lives, and stay where they are until then."""
    moved = {}
    for spare in (0, 1):
        with flash_pvb.registered(IN_FLASH) as name:
            device = Device.memory(CHIP, name, options={"buffer": "0", "log": "0", "spare": str(spare)})
            load = Load(device)
            load.run(8000)
            load.must_hold()
            moved[spare] = 0
            for block in range(CHIP.blocks):
                for page in range(CHIP.pages_per_block):
                    status, oob = device.nand.read_spare_area(block, page)
                    moved[spare] += status == 1 and oob[6] == 3 and oob[7] & 1
            assert device.ssd.cleaning.cleaned_n > 100
            device.close()
    assert moved[0] > 0
    assert moved[1] == 0


def test_single_pages_are_carried_in_as_many_parts_as_there_is_room_for() -> None:
    import numpy as np

    with flash_pvb.registered(IN_FLASH) as name:
        device = Device.memory(CHIP, name, options={"buffer": "0", "log": "0"})
        load = Load(device)
        load.run(1500)
        pages = [block * 8 + page for block in range(CHIP.blocks)
                 if device.ssd.pool.describe(block)["stream"] in ("host", "gc")
                 and device.ssd.pool.describe(block)["state"] == "closed"
                 for page in device.ssd.validity.live_in(block)]  # fmt: skip
        some = sorted(random.Random(1).sample(pages, 30))
        assert device.ssd.move_pages(np.array(some, np.uint32))
        assert not any(ppa % 8 in device.ssd.validity.live_in(ppa // 8) for ppa in some)
        load.must_hold()
        device.close()


@pytest.mark.parametrize("tier", ["sweep", "random", "faults", "host"])
def test_power_cuts(ftl: str, tier: str) -> None:
    result = campaign.run(ftl, tier, 0, 1_500)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= 1_500
