"""What every mapping with translation pages does, whatever those hold: a page that cannot be read, and what may be
believed of the mapping afterwards."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import nandimg
from flashfs import inspect
from flashfs.device import Device
from nandimg import Geometry
from nandimg._torn import overwrite

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=400, dies=1, channels=1, oob_bytes=160, lpas=3900)
#: schemes with translation pages, and options under which most of the map is in them
PAGED: dict[str, dict[str, Any]] = {
    "dftl": {"buffer": "0", "cmt_bytes": "600"},
    "leaftl": {"buffer": "0", "table_bytes": "6000"},
}


def content(lpa: int, version: int) -> bytes:
    return (lpa * 1000 + version).to_bytes(8, "little") * (PAGE // 8)


def filled(path: Path, ftl: str) -> tuple[Device, dict[int, bytes]]:
    nandimg.create(path, GEOMETRY)
    device = Device.open(path, ftl=ftl, options=PAGED[ftl])
    model = {lpa: content(lpa, 1) for lpa in random.Random(1).sample(range(GEOMETRY.lpas), 3000)}
    for lpa, data in model.items():
        device.write(lpa * PAGE, data)
    device.flush()
    return device, model


def spoil(path: Path, ppa: int) -> None:
    layout = inspect.header(path)["layout"]
    with path.open("r+b") as file:
        file.seek(layout["data_at"] + ppa * PAGE + 40)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def same(device: Device, model: dict[int, bytes]) -> None:
    for lpa in range(GEOMETRY.lpas):
        assert device.read(lpa * PAGE, PAGE) == model.get(lpa, bytes(PAGE)), lpa


@pytest.mark.parametrize("ftl", list(PAGED))
def test_the_directory_is_what_lives(ftl: str, tmp_path: Path) -> None:
    device, _ = filled(tmp_path / "chip", ftl)
    device.checkpoint()
    ppas = device.ssd.mapping.directory.ppas()
    assert len(ppas) > 4
    assert sorted(ppas) == sorted(device.ssd.mapping.translation_pages())
    assert all(ppa % 16 in device.ssd.validity.live_in(ppa // 16) for ppa in ppas)
    device.close()


@pytest.mark.parametrize("ftl", list(PAGED))
def test_pages_that_cannot_be_read_are_made_again(ftl: str, tmp_path: Path) -> None:
    """All of them at once: each with an alarm, one that names its LPAs. What they named was not counted, so from then
    on no count is held against a checkpoint; everything else goes on, and the next mount finds nothing wrong."""
    path = tmp_path / "chip"
    device, model = filled(path, ftl)
    device.checkpoint()
    for ppa in device.ssd.mapping.directory.ppas():
        spoil(path, ppa)
    told = device.problems()
    assert told
    assert all(line.startswith("the translation page of LPAs ") for line in told)
    same(device, model)
    made = device.stats()["scheme"]["rebuilds"]
    assert made >= len(told)
    alarms = [alarm for alarm in device.smart()["alarms"] if "made again" in alarm]
    assert {alarm.partition(" cannot")[0] for alarm in alarms} >= {line.partition(" cannot")[0] for line in told}
    for lpa in random.Random(2).sample(sorted(model), 600):
        model[lpa] = content(lpa, 2)
        device.write(lpa * PAGE, model[lpa])
    device.trim(0, 300 * PAGE)
    model = {lpa: data for lpa, data in model.items() if lpa >= 300}
    device.checkpoint()
    assert device.problems() == []
    same(device, model)
    device.close()
    with Device.open(path, options=PAGED[ftl]) as device:
        assert device.recovery is not None
        assert device.recovery.alarms == []
        same(device, model)
        assert device.problems() == []


def older_in_the_same_block(device: Device) -> tuple[int, int] | None:
    """The PPAs of a newest translation page and of an older version of it."""
    for newest in device.ssd.mapping.directory.ppas():
        block, page = divmod(newest, 16)
        spares = [inspect.Spare.of(device.ssd.nand.read_spare_area(block, at)[1]) for at in range(page + 1)]
        for at, spare in enumerate(spares[:page]):
            if (spare.kind, spare.lpa) == (spares[page].kind, spares[page].lpa):
                return newest, block * 16 + at
    return None


@pytest.mark.parametrize("ftl", list(PAGED))
def test_an_older_version_of_a_page_is_not_believed_in_the_place_of_the_newest(ftl: str, tmp_path: Path) -> None:
    """It is of the same translation page and block; only the number of the page in its OOB says that it was meant for
    another place."""
    path = tmp_path / "chip"
    device, model = filled(path, ftl)
    rnd = random.Random(3)
    device.checkpoint()
    while (found := older_in_the_same_block(device)) is None:
        for lpa in rnd.sample(sorted(model), 20):
            model[lpa] = content(lpa, 3)
            device.write(lpa * PAGE, model[lpa])
        device.checkpoint()
    newest, older = found
    _, data, oob = device.ssd.nand.read_page(*divmod(older, 16))
    overwrite(device.ssd.nand, *divmod(newest, 16), data, oob)
    assert any("is not what it should be" in line for line in device.problems())
    same(device, model)
    device.close()


@pytest.mark.parametrize("ftl", list(PAGED))
def test_what_is_newer_than_a_page_outlives_it(ftl: str, tmp_path: Path) -> None:
    """A trim that flash does not know yet is not undone by a translation page that is rebuilt."""
    path = tmp_path / "chip"
    device, model = filled(path, ftl)
    device.checkpoint()
    for lpa in range(0, GEOMETRY.lpas, 97):
        device.trim(lpa * PAGE, PAGE)
        model.pop(lpa, None)
    for ppa in device.ssd.mapping.directory.ppas():
        spoil(path, ppa)
    same(device, model)
    assert device.stats()["scheme"]["rebuilds"] > 0
    assert device.problems() == []
    device.close()
