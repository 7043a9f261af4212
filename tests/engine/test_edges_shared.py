"""Edges of SlimFTL's shared blocks: pages that are trimmed, that cannot be read, that bear an impossible number."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from known_pages import PAGE, content, figures, held, lost, places, wreck
from misplaced import put

import nandimg
from flashfs.device import Device
from flashfs.errors import CorruptError
from nandimg import Geometry

#: 256 neighbours have at most 63 candidates of 4 pages: some must go elsewhere
CROWDED = Geometry(page_bytes=PAGE, pages_per_block=4, blocks=512, oob_bytes=64, lpas=1500)


def crowded(path: Path, lpas: int = 256) -> tuple[Device, dict[int, bytes]]:
    nandimg.create(path, CROWDED)
    device = Device.open(path, ftl="slimftl", options={"buffer": "0", "wear_spread": "2"})
    model = {lpa: content(lpa, 1) for lpa in range(lpas)}
    for lpa, data in model.items():
        device.write(lpa * PAGE, data)
    device.flush()
    return device, model


def shared_out(device: Device, where: dict[int, int]) -> dict[int, int]:
    """LPAs that are not in the block of their virtual block, and that virtual block."""
    said = {lpa: device.ssd.mapping.explain(lpa) for lpa in where}
    return {lpa: one["vba"] for lpa, one in said.items() if where[lpa] // 4 != one["pba"]}


def test_a_page_that_leaves_its_own_block_is_no_shared_one(tmp_path: Path) -> None:
    device, model = crowded(tmp_path / "chip")
    where = places(device)
    shared = shared_out(device, where)
    homes = set(shared.values())
    assert homes
    assert figures(device)["shared_pages"] == len(shared)
    for lpa in model:
        if lpa not in shared and device.ssd.mapping.explain(lpa)["vba"] in homes:
            device.trim(lpa * PAGE, PAGE)
            model[lpa] = bytes(PAGE)
    held(device, model, set())
    for home in homes:
        assert device.ssd.mapping.virtual_block(home)["shared"] == list(shared.values()).count(home)
    for lpa in shared:
        device.trim(lpa * PAGE, PAGE)
    assert {device.ssd.mapping.virtual_block(home)["shared"] for home in homes} == {0}
    device.close()


def test_a_shared_page_that_cannot_be_read_is_still_its_lpas(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    device, model = crowded(path)
    where = places(device)
    victim = min(shared_out(device, where))
    wreck(path, where[victim])
    rnd, block = random.Random(7), where[victim] // 4
    for turn in range(2, 20_000):
        if where[victim] % 4 not in device.ssd.validity.live_in(block):
            break
        lpa = rnd.randrange(256, 1100)
        model[lpa] = content(lpa, turn)
        device.write(lpa * PAGE, model[lpa])
    device.flush()
    assert lost(device) == {victim}
    held(device, model, {victim})
    device.close(clean=False)
    with Device.open(path) as device:
        held(device, model, {victim})


def test_a_trim_of_a_page_that_is_not_found_is_on_record(tmp_path: Path) -> None:
    """It cannot be read now, but the next mount may read it: its LPA must stay a hole."""
    path = tmp_path / "chip"
    device, model = crowded(path)
    device.checkpoint()
    where = places(device)
    victim = min(shared_out(device, where))
    alone, found = device.stats()["trim_pages"], next(lpa for lpa in model if lpa not in shared_out(device, where))
    wreck(path, where[victim])
    device.trim(victim * PAGE, PAGE)
    device.flush()
    assert device.stats()["trim_pages"] == alone + 1
    device.trim(1_400 * PAGE, PAGE)  # a hole
    device.flush()
    assert device.stats()["trim_pages"] == alone + 1
    device.trim(found * PAGE, PAGE)
    device.close(clean=False)
    with Device.open(path) as device:
        assert device.read(victim * PAGE, PAGE) == bytes(PAGE)


def test_a_page_cannot_bear_a_number_that_no_entry_has_room_for(tmp_path: Path) -> None:
    """64, where the last is 63: it would run over into the next LPA's entry."""
    path = tmp_path / "chip"
    device, _ = crowded(path, 8)
    ppa = places(device)[5]
    raw = device.nand.read_spare_area(*divmod(ppa, 4))[1]
    vba = device.ssd.mapping.hasher.place(5, 64)
    device.close(clean=False)
    put(path, ppa, None, raw[:20] + vba.to_bytes(4, "little") + b"\x40\0\0\0")
    with pytest.raises(CorruptError, match="HID 64"):
        Device.open(path)
