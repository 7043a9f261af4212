"""Of a checkpoint, pages that are all ones or all zeros take no page of flash (SPEC.md, section 11)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from schemes import EACH

import nandimg
from flashfs import cli, inspect
from flashfs.bound import CHECKPOINT_FILLS
from flashfs.crash import campaign
from flashfs.device import Device
from flashfs.engine.device import metalog
from flashfs.engine.device.metalog import FILL_LEAST, FILL_ONES, FILL_ZEROS, LoadedCheckpoint, parse_descriptor, sealed
from flashfs.errors import CorruptError
from nandimg import Geometry

PAGE = 512
#: of 60,000 LPAs: a map of 469 pages
LARGE = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=1100, dies=4, channels=4, oob_bytes=64, lpas=60_000)


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", LARGE)
    return tmp_path / "chip"


def programs(device: Device) -> int:
    """Pages that checkpoints took until now."""
    return int(device.stats()["nand"]["by_cause"]["program"].get("checkpoint", 0))


def extents(path: Path) -> list[dict[str, Any]]:
    """Those of the newest checkpoint, from the image."""
    ppa = inspect.log(path)["checkpoints"][0]["ppa"]
    return list(inspect.page(path, ppa)["content"]["extents"])


@pytest.mark.parametrize("ftl", EACH)
def test_what_nobody_wrote_to_takes_no_page_and_comes_back(
    ftl: str, chip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metalog, "FILL_LEAST", 2)
    model: dict[int, bytes] = {}

    def write(device: Device, lpa: int, byte: int) -> None:
        model[lpa] = bytes([byte]) * PAGE
        device.write(lpa * PAGE, model[lpa])

    with Device.open(chip, ftl=ftl) as device:
        for lpa in (0, 1, 30_000, 59_999):
            write(device, lpa, 1)
    assert any(isinstance(one["ppa"], str) for one in extents(chip))
    for byte in (2, 3):
        device = Device.open(chip)
        write(device, 7, byte)
        device.flush()
        device.close(clean=byte == 2)
    with Device.open(chip) as device:
        assert device.recovery.alarms == []
        for lpa in (0, 1, 7, 30_000, 59_999):
            assert device.read(lpa * PAGE, PAGE) == model[lpa]
        assert device.read(100 * PAGE, PAGE) == bytes(PAGE)
        assert device.problems() == []


def test_how_much_that_saves(chip: Path) -> None:
    """A map of 468.75 pages, validity of 17 and a pool of 21, of which four pages are mapped."""
    with Device.open(chip, ftl="pagemap") as device:
        blank = programs(device)
        device.write(0, b"a" * PAGE)
        before = programs(device)
        device.checkpoint()
        assert blank < 50
        assert programs(device) - before < 50
        device.write(0, b"b" * PAGE * 60_000)
        before = programs(device)
        device.checkpoint()
        assert 480 < programs(device) - before < 520   # as many as it took before


@pytest.mark.parametrize("ftl", EACH)
def test_an_image_of_before_is_written_as_it_was(
    ftl: str, chip: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metalog, "FILL_LEAST", 2)  # a small device of a map in flash has no more
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("flashfs.device.FEATURES", ())
        with Device.open(chip, ftl=ftl) as device:
            device.write(0, b"a" * PAGE)
    with Device.open(chip) as device:
        device.write(PAGE, b"b" * PAGE)
    assert [one for one in extents(chip) if isinstance(one["ppa"], str)] == []
    assert cli.run(["upgrade", str(chip)]) == 0
    assert CHECKPOINT_FILLS.name in capsys.readouterr().out
    with Device.open(chip) as device:
        device.write(2 * PAGE, b"c" * PAGE)
    assert [one for one in extents(chip) if isinstance(one["ppa"], str)]
    with Device.open(chip) as device:
        assert device.read(0, 3 * PAGE) == b"".join(letter * PAGE for letter in (b"a", b"b", b"c"))


def test_a_run_that_is_too_short_is_programmed() -> None:
    for least, filled in ((FILL_LEAST, True), (FILL_LEAST + 1, False)):
        device = Device.memory(LARGE, "pagemap")
        device.ssd.meta.fill_least = least
        device.write(0, b"a" * PAGE * (468 - FILL_LEAST) * 128)  # all but the last 32 whole pages of the map
        before = programs(device)
        device.checkpoint()
        taken = programs(device) - before
        device.close(clean=False)
        assert (taken < 500) == filled, (least, taken)


def forged(extents: list[tuple[int, int]], size: int, page_bytes: int = PAGE) -> bytes:
    """A descriptor with one section of so many bytes, of whatever they are."""
    head = struct.pack("<4sIQQQQIIIIQ", b"FFCK", 0, 1, 1, 1, size, 0, 1, len(extents), 0xFFFFFFFF, 0)
    raw = head + struct.pack("<8sQI", b"map", size, 0) + b"".join(struct.pack("<II", *one) for one in extents)
    return sealed(raw.ljust(page_bytes, b"\0"))


@pytest.mark.parametrize("fill", [FILL_ONES, FILL_ZEROS])
def test_a_hostile_extent_takes_no_memory(fill: int) -> None:
    """What it claims is bounded by what a checkpoint of the device may have, before it is made."""
    raw = forged([(fill, 0xFFFFFFFF)], 0xFFFFFFFF * PAGE)
    assert parse_descriptor(raw) is not None
    with pytest.raises(CorruptError, match="it may have 600 at most"):
        LoadedCheckpoint(lambda ppa: raw, 0, PAGE, 600)
    with pytest.raises(CorruptError, match="fails its checksum"):
        LoadedCheckpoint(lambda ppa: forged([(fill, 5)], 5 * PAGE), 0, PAGE, 600)
    with pytest.raises(CorruptError, match="no extent may be empty"):
        LoadedCheckpoint(lambda ppa: forged([(fill, 0)], 0), 0, PAGE, 600)


@pytest.mark.parametrize("ftl", ["pagemap", "leaftl", "geckoftl"])
def test_cuts_with_fills_of_one_page(ftl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metalog, "FILL_LEAST", 1)
    done = campaign.run(ftl, "random", 5, 150)
    assert [str(failure) for failure in done.failures] == []
