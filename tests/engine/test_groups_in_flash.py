"""Groups of blocks over a validity store that is in flash, or late: what is reported of a whole group has to have room
before it is moved, superseded pages of any victim die with it, and blocks that are spared stay."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import flash_pvb
import numpy as np
import pytest
from rig import Rig
from schemes import bounded
from test_flash_bitmap import PAGE, Load
from test_late_validity import store

from flashfs.crash import Case, run_case, tiers
from flashfs.crash.programs import aged_program
from flashfs.device import Device
from flashfs.engine.recovery import recovery
from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import superblocks_for
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.superblocks.superblocks import SuperblockGreedy
from flashfs.parts.validity.flash_bitmap import FlashBitmap
from nandimg import PRESETS, Cut, Geometry
from nandimg._faults import SHAPES
from nandimg.presets import Preset

CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=160, dies=4, channels=2, oob_bytes=64, lpas=1300)
SMALL = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=96, channels=2, dies=4, oob_bytes=64, lpas=440)
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
def ftl(request: pytest.FixtureRequest, store: Any) -> Iterator[str]:
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
        load.run(2000)
        if ftl == NAMES["flash"]:
            load.must_hold()
        else:
            assert device.problems() == []
        device.checkpoint()
    assert device.ssd.cleaning.cleaned_n > 50
    assert device.ssd.operations()[1]["program"]["gc"] > 500
    device.close()


@pytest.mark.parametrize(("log", "group"), [(128, 1), (1, 0)])
def test_a_group_moves_as_one_if_validity_has_room_for_it(log: int, group: int) -> None:
    """Else block by block: what is reported of a full superblock of 64 pages is 128 places."""
    with flash_pvb.registered(IN_FLASH) as name:
        device = Device.memory(CHIP, name, options={"buffer": "0", "log": str(log)})
        for lpa in range(200):
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        full = next(row for row in range(0, CHIP.blocks, 4)
                    if all(len(device.ssd.validity.live_in(row + die)) == 16 for die in range(4)))  # fmt: skip
        assert device.ssd.move_blocks(np.arange(full, full + 4, dtype=np.uint32))
        copies = [device.nand.read_spare_area(block, page)[1] for block in range(CHIP.blocks)
                  if device.ssd.pool.describe(block)["stream"] == "gc"
                  for page in device.ssd.validity.live_in(block)]  # fmt: skip
        assert len(copies) == 64
        assert {oob[19] for oob in copies} == {group}
        assert device.problems() == []
        assert all(device.read(lpa * PAGE, PAGE) == bytes([lpa]) * PAGE for lpa in range(200))
        device.close()


def test_cleaning_keeps_away_from_what_is_spared() -> None:
    """Its blocks are erased when nothing in them lives, and stay where they are until then."""
    moved = {}
    for spare in (0, 1):
        with flash_pvb.registered(IN_FLASH) as name:
            device = Device.memory(CHIP, name, options={"buffer": "0", "log": "1", "spare": str(spare)})
            load = Load(device)
            load.run(8000)
            load.must_hold()
            moved[spare] = 0
            for block in range(CHIP.blocks):
                for page in range(CHIP.pages_per_block):
                    status, oob = device.nand.read_spare_area(block, page)
                    moved[spare] += status == 1 and oob[6] == 3 and oob[7] & 1
            assert device.ssd.cleaning.cleaned_n > 50
            device.close()
    assert moved[0] > 0
    assert moved[1] == 0


def test_single_pages_are_carried_in_as_many_parts_as_there_is_room_for() -> None:
    with flash_pvb.registered(IN_FLASH) as name:
        device = Device.memory(CHIP, name, options={"buffer": "0", "log": "1"})
        load = Load(device)
        load.run(1500)
        pages = [block * 16 + page for block in range(CHIP.blocks)
                 if device.ssd.pool.describe(block)["stream"] in ("host", "gc")
                 and device.ssd.pool.describe(block)["state"] == "closed"
                 for page in device.ssd.validity.live_in(block)]  # fmt: skip
        some = sorted(random.Random(1).sample(pages, 30))
        assert device.ssd.move_pages(np.array(some, np.uint32))
        assert not any(ppa % 16 in device.ssd.validity.live_in(ppa // 16) for ppa in some)
        load.must_hold()
        device.close()


def lpa_in(device: Device, block: int) -> int:
    """What the block's fourth page says of itself."""
    return int.from_bytes(device.nand.read_spare_area(block, 3)[1][8:12], "little")


@pytest.mark.parametrize("ftl", ["late"], indirect=True)
@pytest.mark.parametrize("blocks", [1, 4])
def test_a_move_that_was_finished_stays_so_where_a_victim_seems_to_live(ftl: str, blocks: int, tmp_path: Path) -> None:
    """A superseded page that counts as live was not moved: that is no sign that the move was interrupted."""
    rig = Rig(tmp_path / "chip", ftl, CHIP)
    for lpa in range(200):
        rig.write(lpa)
    live = rig.device.ssd.validity.live_in
    full = next(row for row in range(0, CHIP.blocks, 4) if all(len(live(row + die)) == 16 for die in range(4)))
    victims = np.arange(full, full + blocks, dtype=np.uint32)
    rig.write(*(lpa_in(rig.device, block) for block in range(full, full + blocks)))
    rig.device.checkpoint()
    assert all(len(live(block)) == 16 for block in range(full, full + blocks))  # its death has not been noticed
    assert rig.device.ssd.move_blocks(victims)
    assert not any(live(block) for block in range(full, full + blocks))
    rig.device.flush()
    rig.kill()
    assert rig.open() == []
    assert rig.figures["undone_moves"] == rig.figures["undone_groups"] == 0
    assert not any(rig.device.ssd.validity.live_in(block) for block in range(full, full + blocks))
    assert rig.device.problems() == []
    rig.kill()


def cases(name: str, mode: str, n: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Programs that keep a chip of four dies cleaning; the last cut comes where a recovery of that one is likely."""
    monkeypatch.setitem(PRESETS, "groups", Preset("groups", "", "", SMALL))
    for unit in range(n):
        rnd = random.Random(f"groups in flash {mode} {unit}")
        options = {"buffer": rnd.choice((0, 4)), "wear_spread": rnd.choice((2, 32))}
        if name == NAMES["flash"]:
            options |= {"log": rnd.choice((1, 64)), "spare": rnd.choice((0, 1)), "frames": rnd.choice((1, 4))}
        base = Case(name, aged_program(rnd, SMALL.lpas, 60), "groups", options=tuple(options.items()))
        at = run_case(base).operations[0]
        cuts = [Cut(int(rnd.uniform(0.4, 1) * at), rnd.choice(SHAPES))]
        cuts += [Cut(int(rnd.expovariate(1 / 30)) + 1, rnd.choice(SHAPES)) for _ in range(rnd.randrange(6))]
        fail = (int(rnd.uniform(0.4, 1) * at),) if rnd.random() < 0.3 else ()
        if mode == "random":
            yield Case(name, base.program, "groups", tuple(cuts), base.options, fail)
        else:
            yield from tiers.aimed(rnd, base)


@pytest.mark.parametrize(("mode", "n"), bounded({"random": 16, "host": 4}, {"random": 400, "host": 120}))
def test_power_cuts_and_deaths_of_the_host(ftl: str, mode: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, undone = 0, []
    recover = recovery.Recovery.run

    def counted(self: Any) -> Any:
        try:
            return recover(self)
        finally:
            undone.append(self.found.figures.get("undone_groups", 0))

    monkeypatch.setattr(recovery.Recovery, "run", counted)
    for case in cases(ftl, mode, n, monkeypatch):
        failure = run_case(case).failure
        assert failure is None, str(failure)
        run += 1
    assert run >= n
    assert sum(undone) >= n // 100
    tiers.presets_for.cache_clear()
