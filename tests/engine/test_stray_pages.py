"""A program that landed on another LPA's page, and then the translation page that knows whose that was cannot be read.
What may be lost gives EIO: it must not read as if it had never been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nandimg
from flashfs.device import Device
from flashfs.errors import UncorrectableError
from flashfs.ftl import SCHEMES
from nandimg import Geometry
from nandimg._torn import spoil
from nandimg.faults import Misdirection

PAGE, LPAS, FILLED = 512, 1200, 900
GEOMETRY = Geometry.sized(LPAS * PAGE, op=0.6, page_bytes=PAGE, pages_per_block=16, nvram_bytes=1 << 16)
OPTIONS = {"battery": 0, "buffer": 0}
KIND_USER, KIND = 1, 6  # where the OOB says it


def options_of(ftl: str) -> dict[str, int]:
    return {name: OPTIONS[name] for name in OPTIONS if any(one.name == name for one in SCHEMES[ftl].options)}


def owner(chip: Any, block: int, page: int) -> int | None:
    """The LPA that a user page names."""
    _, oob = chip.read_spare_area(block, page)
    return int.from_bytes(oob[8:12], "little") if oob[KIND] == KIND_USER else None


def translation_page_of(device: Device, lpa: int) -> int | None:
    """Where the newest version of the one that knows the LPA is."""
    for ppa in device.ssd.mapping.translation_pages():
        _, oob = device.nand.read_spare_area(*divmod(ppa, GEOMETRY.pages_per_block))
        if int.from_bytes(oob[8:12], "little") == lpa // (PAGE // 4):
            return int(ppa)
    return None


@pytest.fixture(autouse=True)
def pages_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image of before they had them: a page that is out of place looks whole."""
    monkeypatch.setattr("flashfs.device.FEATURES", ())


@pytest.mark.parametrize("ftl", ["dftl", "tpftl"])
def test_its_lpa_is_trimmed_before(tmp_path: Path, ftl: str) -> None:
    """The page names an LPA that holds nothing by then, so no other live page says that it is out of place."""
    met = 0
    for seed in range(60):
        path = tmp_path / f"chip{seed}"
        nandimg.create(path, GEOMETRY)
        with Device.open(path, ftl=ftl, options=options_of(ftl), sync="none") as device:
            for lpa in range(FILLED):
                device.write(lpa * PAGE, lpa.to_bytes(4, "little") * (PAGE // 4))
        made: list[Misdirection] = []

        def front(chip: Any, seed: int = seed, made: list[Misdirection] = made) -> Any:
            made.append(Misdirection(chip, (12,), seed))
            return made[0]

        image = nandimg.open_image(path, readonly=True)
        owners = {(block, page): owner(image.chip, block, page) for block in range(GEOMETRY.blocks)
                  for page in range(GEOMETRY.pages_per_block)}  # fmt: skip
        image.close()
        device = Device.open(path, front=front, options={"buffer": 0}, sync="none")
        for lpa in range(30):
            device.write(lpa * PAGE, bytes(PAGE))
        struck = made[0].struck
        victim = owners.get(struck[0][-2:]) if struck and len(struck[0]) > 1 else None
        device.trim(0, 30 * PAGE)
        device.flush()
        if victim is None or victim < 300 or victim >= FILLED:
            device.close(clean=False)
            continue
        device.close()
        with Device.open(path, readonly=True) as device:
            at = translation_page_of(device, victim)
        if at is None:
            continue
        image = nandimg.open_image(path)
        spoil(image.chip, *divmod(at, GEOMETRY.pages_per_block))
        image.close()
        device = Device.open(path, options={"buffer": 0})
        with pytest.raises(UncorrectableError):
            device.read(victim * PAGE, PAGE)
        assert device.read((victim - 1) * PAGE, PAGE) == (victim - 1).to_bytes(4, "little") * (PAGE // 4)
        device.close(clean=False)
        met += 1
        if met == 3:
            break
    assert met == 3
