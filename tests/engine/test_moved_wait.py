"""Entries of moved pages that wait in DRAM, like dirty ones of the cache (option ``moved``)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rig import Rig, forge
from schemes import kinds_of

from flashfs.device import Device
from flashfs.errors import UncorrectableError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE, PER_PAGE, PAGES = 512, 128, 16
CHIP = Geometry(page_bytes=PAGE, pages_per_block=PAGES, blocks=160, dies=1, oob_bytes=32, lpas=8 * PER_PAGE)
WAITING = [name for name, scheme in SCHEMES.items() if any(one.name == "moved" for one in scheme.options)]
OWN = {"buffer": "0", "stripe": "1", "cmt_bytes": "3000"}


def content(lpa: int, version: int = 0) -> bytes:
    return b"%08d%08d" % (lpa, version) * (PAGE // 16)


def overwritten(path: Path, ftl: str, moved: int) -> tuple[Device, dict[int, bytes], int, int]:
    """A device after random overwrites that clean, what it holds, the translation pages that it wrote, and the most
    entries of moved pages that waited after a request."""
    draw = random.Random(7)
    rig = Rig(path, ftl, CHIP, options={**OWN, "moved": str(moved)})
    device, model, waited = rig.device, {}, 0
    for lpa in range(CHIP.lpas):
        model[lpa] = content(lpa)
        device.write(lpa * PAGE, model[lpa])
    before = device.ssd.mapping.store.programs
    for version in range(1, 3 * CHIP.lpas):
        lpa = draw.randrange(CHIP.lpas)
        model[lpa] = content(lpa, version)
        device.write(lpa * PAGE, model[lpa])
        waited = max(waited, device.ssd.mapping.pending.moved_n)
    return device, model, device.ssd.mapping.store.programs - before, waited


def held(device: Device) -> dict[int, bytes]:
    return {lpa: device.read(lpa * PAGE, PAGE) for lpa in range(CHIP.lpas)}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ftl", kinds_of(WAITING))
def test_entries_wait_and_last(ftl: str, clean: bool, tmp_path: Path) -> None:
    device, model, programs, waited = overwritten(tmp_path / "waits", ftl, 100)
    room = device.ssd.mapping.pending_most
    assert 0 < waited <= room + 4 * PAGES
    assert not device.ssd.check()
    device.flush()
    device.close(clean=clean)
    device = Device.open(tmp_path / "waits", options={"buffer": "0", "moved": "100"})
    assert held(device) == model
    assert not device.ssd.check()
    device.close()
    other, model, at_once, waited = overwritten(tmp_path / "at once", ftl, 0)
    assert programs < at_once or waited     # then a block's entries wait whatever the option says
    assert held(other) == model
    other.close()


@pytest.mark.parametrize("ftl", kinds_of(WAITING))
def test_no_checkpoint_takes_a_page_for_another_s(ftl: str, tmp_path: Path) -> None:
    """A page is moved that says it is of another LPA. Its entry waits, and a clean checkpoint keeps no doubt of it: the
    other LPA has to have its own page after the mount."""
    rig = Rig(tmp_path / "chip", ftl, CHIP, options={**OWN, "moved": "100"})
    model = {}
    for place in range(PER_PAGE):           # pages of all eight translation pages lie side by side
        for page in range(CHIP.lpas // PER_PAGE):
            lpa = page * PER_PAGE + place
            model[lpa] = content(lpa)
            rig.device.write(lpa * PAGE, model[lpa])
    rig.device.close()
    victim = 7 * PER_PAGE + 4
    at = rig.ppa(victim)
    forge(rig, at, lpa=50)
    rig.open()
    block = at // PAGES
    assert rig.device.ssd.move_blocks(memoryview(block.to_bytes(4, "little")).cast("I"))
    assert rig.device.ssd.mapping.pending.moved_n
    rig.device.close()
    rig.open()
    wrong = []
    for lpa, data in model.items():
        try:
            if rig.device.read(lpa * PAGE, PAGE) != data:
                wrong.append(lpa)
        except UncorrectableError:
            wrong.append(lpa)
    assert wrong == [victim]
    rig.device.close()
