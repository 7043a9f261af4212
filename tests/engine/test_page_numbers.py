"""Each page says which page of its block it is: a program that lands on another one of the same block shows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from misplaced import put
from schemes import KINDS, limited

import nandimg
from flashfs import cli, inspect
from flashfs.bound import PAGE_NUMBERS
from flashfs.crash import Case, run_case
from flashfs.device import Device
from flashfs.errors import UncorrectableError
from nandimg import PRESETS, Geometry

GEOMETRY = PRESETS["tiny-24d"].geometry
PAGE = GEOMETRY.page_bytes
LONG = Geometry(page_bytes=512, pages_per_block=4096, blocks=12, channels=1, dies=1, oob_bytes=64, lpas=20_000)


def number(oob: bytes) -> int:
    return oob[17] | oob[18] >> 5 << 8


def pages_of(path: Path) -> list[tuple[int, bytes]]:
    """(page, OOB) of all that is programmed."""
    image = nandimg.open_image(path, readonly=True)
    chip, geometry = image.chip, image.header.geometry
    found = [
        (page, oob)
        for block in range(geometry.blocks)
        for page in range(geometry.pages_per_block)
        for status, oob in [chip.read_spare_area(block, page)]
        if status == 1
    ]
    image.close()
    return found


@pytest.mark.parametrize("ftl", KINDS)
def test_every_page_has_its_number(ftl: str, tmp_path: Path) -> None:
    """Of the host, of cleaning, of the map, of the log."""
    nandimg.create(tmp_path / "chip", GEOMETRY)
    with Device.open(tmp_path / "chip", ftl=ftl) as device:
        for i in range(400):
            device.write(i * 7 % GEOMETRY.lpas * PAGE, bytes([i & 255]) * PAGE)
    found = pages_of(tmp_path / "chip")
    assert len({oob[6] for _, oob in found}) >= 2  # kinds
    assert all(number(oob) == page + 1 for page, oob in found)


def test_in_a_long_block_numbers_come_again(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", LONG)
    with Device.open(tmp_path / "chip") as device:
        device.write(0, bytes(4096 * 512))
        device.flush()
    found = pages_of(tmp_path / "chip")
    assert {number(oob) for _, oob in found} == set(range(2048))
    assert all(number(oob) == (page + 1) % 2048 for page, oob in found)


def without_numbers(path: Path, ftl: str) -> None:
    """An image as it was before pages had numbers, with a page of the host."""
    nandimg.create(path, GEOMETRY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("flashfs.device.FEATURES", ())
        with Device.open(path, ftl=ftl) as device:
            device.write(0, b"a" * PAGE)


@pytest.mark.parametrize("ftl", KINDS)
def test_an_image_of_before_is_used_as_it_was(ftl: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chip"
    without_numbers(path, ftl)
    with Device.open(path) as device:
        device.write(PAGE, b"b" * PAGE)
    assert {number(oob) for _, oob in pages_of(path)} == {0}
    assert cli.run(["upgrade", str(path)]) == 0
    assert PAGE_NUMBERS.name in capsys.readouterr().out
    with Device.open(path) as device:
        device.write(2 * PAGE, b"c" * PAGE)
        device.flush()
        assert device.read(0, 3 * PAGE) == b"".join(letter * PAGE for letter in (b"a", b"b", b"c"))
    assert any(number(oob) == page + 1 for page, oob in pages_of(path))
    assert inspect.problems(path) == []


def test_a_view_says_where_a_page_was_meant_to_go(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    with Device.open(path, options={"buffer": "0"}) as device:
        for lpa in range(4):
            device.write(lpa * PAGE, bytes([lpa + 1]) * PAGE)
    ppas = [next(row["ppa"] for row in inspect.lpa(path, lpa)["copies"]) for lpa in (1, 2)]
    assert ppas[1] == ppas[0] + 1  # of one block
    image = nandimg.open_image(path, readonly=True)
    _, data, oob = image.chip.read_page(*divmod(ppas[1], GEOMETRY.pages_per_block))
    image.close()
    put(path, ppas[0], data, oob)
    row = inspect.page(path, ppas[0])
    page = ppas[1] % GEOMETRY.pages_per_block
    assert not row["live"]
    assert row["why"] == f"it was meant for page {page} of a block: a program went astray"
    with Device.open(path) as device, pytest.raises(UncorrectableError):
        device.read(PAGE, PAGE)


@pytest.mark.parametrize("ftl", limited(("pagemap", "remapssd")))
def test_a_first_page_of_another_block_costs_no_page_but_its_own(ftl: str, tmp_path: Path) -> None:
    """Its number is right, its order is that of a block opened before: what the checkpoint says of the block counts."""
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    model = {lpa: bytes([lpa + 1]) * PAGE for lpa in range(60)}
    device = Device.open(path, ftl=ftl, options={"buffer": "0"})
    for lpa, data in model.items():
        device.write(lpa * PAGE, data)
    device.checkpoint()
    device.write(0, model[0])
    device.flush()
    device.close(clean=False)
    where = {lpa: next(row["ppa"] for row in inspect.lpa(path, lpa)["copies"]) for lpa in range(1, 40)}
    (_, first), (late, second) = [one for one in where.items() if one[1] % GEOMETRY.pages_per_block == 0][:2]
    image = nandimg.open_image(path, readonly=True)
    _, data, oob = image.chip.read_page(*divmod(first, GEOMETRY.pages_per_block))
    image.close()
    put(path, second, data, oob)
    with Device.open(path) as device:
        assert any("its first page was meant for another block" in alarm for alarm in device.recovery.alarms)
        with suppress(UncorrectableError):
            assert device.read(late * PAGE, PAGE) == bytes(PAGE)  # what it held before, after an alarm: nothing
        assert all(device.read(lpa * PAGE, PAGE) == model[lpa] for lpa in model if lpa != late)


FAULTS = "ftl={} preset=tiny-24d fault=misdirect={} program='w0+70 w3+20 f w30+9 f t5+3 w40+6 f w0+12 f w50+3 f i f'"


@pytest.mark.parametrize("ftl", KINDS)
def test_programs_that_go_astray(ftl: str) -> None:
    for at in range(20, 150, 3):
        failure = run_case(Case.parse(FAULTS.format(ftl, at))).failure
        assert failure is None, f"{failure}"
