"""A page that does not say whose it is, or says it wrongly, for a program landed on it; and then the translation page
that knows cannot be read. What may be lost gives EIO: it must not read as if it had never been."""

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
OPTIONS = {"battery": 0, "buffer": 0, "cmt_bytes": 600}
KIND_USER, KIND = 1, 6  # where the OOB says it


def options_of(ftl: str) -> dict[str, int]:
    return {name: OPTIONS[name] for name in OPTIONS if any(one.name == name for one in SCHEMES[ftl].options)}


def owners(path: Path) -> dict[int, int | None]:
    """{PPA: the LPA that a user page names}."""
    image, found = nandimg.open_image(path, readonly=True), {}
    for ppa in range(GEOMETRY.blocks * GEOMETRY.pages_per_block):
        _, oob = image.chip.read_spare_area(*divmod(ppa, GEOMETRY.pages_per_block))
        found[ppa] = int.from_bytes(oob[8:12], "little") if oob[KIND] == KIND_USER else None
    image.close()
    return found


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


def filled(path: Path, ftl: str, hole: int = FILLED) -> Device:
    nandimg.create(path, GEOMETRY)
    device = Device.open(path, ftl=ftl, options=options_of(ftl), sync="none")
    for lpa in sorted({*range(FILLED)} - {hole}):
        device.write(lpa * PAGE, content(lpa))
    return device


def content(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def spoilt(path: Path, *ppas: int) -> None:
    image = nandimg.open_image(path)
    for ppa in ppas:
        spoil(image.chip, *divmod(ppa, GEOMETRY.pages_per_block))
    image.close()


@pytest.mark.parametrize("ftl", ["dftl", "tpftl", "sftl"])
def test_two_pages_are_made_again(tmp_path: Path, ftl: str) -> None:
    """The first has holes, which name the page that is nobody's from then on. It dies with a write to one of them; the
    second page's LPA still may have been there."""
    path, victim, hole = tmp_path / "chip", 300, 40
    filled(path, ftl, hole).close()
    with Device.open(path, readonly=True) as device:
        pages = [translation_page_of(device, lpa) for lpa in (victim, hole)]
    at = [ppa for ppa, lpa in owners(path).items() if lpa == victim]
    known = [ppa for ppa in pages if ppa is not None]
    assert (len(at), len(known)) == (1, 2)
    spoilt(path, *at, *known)
    device = Device.open(path, options={"buffer": 0})
    with pytest.raises(UncorrectableError):
        device.read(hole * PAGE, PAGE)
    device.write(hole * PAGE, content(hole))
    with pytest.raises(UncorrectableError):
        device.read(victim * PAGE, PAGE)
    assert device.read((victim - 1) * PAGE, PAGE) == content(victim - 1)
    device.close(clean=False)


@pytest.mark.parametrize("after", ["trims", "writes"])
@pytest.mark.parametrize("ftl", ["dftl", "tpftl"])
def test_its_owner_is_unknown(tmp_path: Path, ftl: str, after: str) -> None:
    """The page names an LPA that was trimmed or written since: either no other live page says that it is out of place,
    or there are two of one LPA."""
    met = 0
    for seed in range(60):
        path = tmp_path / f"chip{seed}"
        filled(path, ftl).close()
        made: list[Misdirection] = []

        def front(chip: Any, seed: int = seed, made: list[Misdirection] = made) -> Any:
            made.append(Misdirection(chip, (12,), seed))
            return made[0]

        before = owners(path)
        device = Device.open(path, front=front, options={"buffer": 0}, sync="none")
        for lpa in range(30):
            device.write(lpa * PAGE, bytes(PAGE))
        struck = made[0].struck
        block, page = struck[0][-2:] if struck and len(struck[0]) > 1 else (0, 0)
        victim = before[block * GEOMETRY.pages_per_block + page]
        if after == "trims":
            device.trim(0, 30 * PAGE)
        else:
            device.write(0, bytes(30 * PAGE))
        device.flush()
        if victim is None or victim < 300 or victim >= FILLED:
            device.close(clean=False)
            continue
        device.close()
        with Device.open(path, readonly=True) as device:
            at = translation_page_of(device, victim)
        if at is None:
            continue
        spoilt(path, at)
        device = Device.open(path, options={"buffer": 0})
        with pytest.raises(UncorrectableError):
            device.read(victim * PAGE, PAGE)
        assert device.read((victim - 1) * PAGE, PAGE) == content(victim - 1)
        device.close(clean=False)
        met += 1
        if met == 3:
            break
    assert met == 3
