"""What a device did in all its life, beside the boot hint: exact over mounts and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from schemes import FEW

from flashfs.device import Device
from flashfs.engine.device.metalog import boot_hints
from nandimg import PRESETS, create


def programs(device: Device) -> tuple[int, int]:
    """Pages that were programmed in all its life, and in this mount."""
    return device.smart()["life"]["programs"], device.stats()["nand"]["program"]


@pytest.mark.parametrize("ftl", FEW)
def test_programs_of_a_life_are_those_of_its_mounts(tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    create(path, PRESETS["tiny-1600"].geometry)
    ended = 0
    for turn in range(3):
        with Device.open(path, ftl=ftl if turn == 0 else None) as device:
            life, mount = programs(device)
            before = life - mount
            assert before >= ended
            for part in range(4):  # checkpoints between them
                device.write(part * 512, bytes([turn, part]) * 256 * 40)  # 40 pages
                device.flush()
                device.ssd.checkpoint()
                life, mount = programs(device)
                assert life == before + mount
            ended = life


def test_no_hint_is_written_over_the_newest(tmp_path: Path) -> None:
    """An id that a checkpoint was given that is not whole is not given again, so the next one may be of either kind."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-96"].geometry)
    with Device.open(path, ftl="pagemap") as device:
        for skipped in (0, 0, 1, 1, 2, 1, 0, 3):
            before = boot_hints([device.nand.boot_slot(0), device.nand.boot_slot(1)])
            newest = device.ssd.meta.checkpoint_id
            assert before[0][0] == newest
            device.ssd.meta.skip_ids(newest + skipped)
            device.write(0, bytes(512))
            device.ssd.checkpoint()
            after = boot_hints([device.nand.boot_slot(0), device.nand.boot_slot(1)])
            assert [identity for identity, _ in after] == [newest + skipped + 1, newest]
