"""A device that does not agree with itself writes no checkpoint; an image that has one such comes back by a repair."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nandimg
from flashfs import inspect
from flashfs.cli import app
from flashfs.device import Device
from flashfs.errors import CorruptError, DeviceFailedError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE = 512
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=100, dies=2, oob_bytes=64, lpas=1_000)
FTLS = tuple(SCHEMES)


def made(path: Path, ftl: str) -> bytes:
    """An image with every page written, a tenth of them again, and some trimmed; what it must read."""
    rnd = random.Random(4)
    model = bytearray(rnd.randbytes(SMALL.lpas * PAGE))
    nandimg.create(path, SMALL)
    with Device.open(path, ftl=ftl) as device:
        device.write(0, bytes(model))
        for _ in range(100):
            lpa = rnd.randrange(SMALL.lpas)
            model[lpa * PAGE : (lpa + 1) * PAGE] = page = rnd.randbytes(PAGE)
            device.write(lpa * PAGE, page)
        device.flush()
    return bytes(model)


def forget_live_pages(device: Device, n: int) -> None:
    """The validity store loses ``n`` of the live pages; the mapping goes on naming them."""
    saved = bytearray(device.ssd.validity.save()["pvb"])
    for at in range(len(saved)):
        while saved[at] and n:
            saved[at] &= saved[at] - 1
            n -= 1
    device.ssd.validity.load({"pvb": bytes(saved)})
    device.ssd.placement.attach()


@pytest.mark.parametrize("ftl", FTLS)
def test_no_checkpoint_of_what_disagrees(tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    model = made(path, ftl)
    device = Device.open(path)
    device.write(0, model[:PAGE])
    device.flush()
    forget_live_pages(device, 3)
    with pytest.raises(DeviceFailedError, match=r"does not agree with itself: .* pages are live, and the map names"):
        device.checkpoint()
    with pytest.raises(DeviceFailedError):
        device.write(0, model[:PAGE])
    assert "does not agree" in device.smart()["failed"]
    with pytest.raises(DeviceFailedError):
        device.close()
    with Device.open(path) as device:
        assert not device.recovery.clean
        assert device.problems() == []
        assert device.read(0, device.size) == model


def without_agreement(path: Path) -> None:
    """The image's newest checkpoint, a clean one, is of a device that did not agree with itself, as one wrote it that
    did not look before."""
    device = Device.open(path)
    device.write(0, device.read(0, PAGE))
    device.flush()
    sections = {}
    validity = device.ssd.validity.save()
    sections.update({**device.ssd.mapping.save(), **validity, "pool": device.ssd.pool.save()})
    pvb = bytearray(validity["pvb"])
    at = next(at for at, byte in enumerate(pvb) if byte)
    pvb[at] = 0
    sections["pvb"] = bytes(pvb)
    device.ssd.meta.write(sections, device.ssd.seq, device.ssd.mounts, True)
    device.ssd.meta.point_boot()
    device.close(clean=False)


@pytest.mark.parametrize("ftl", FTLS)
def test_a_repair_takes_the_image_back(tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    model = made(path, ftl)
    without_agreement(path)
    with pytest.raises(CorruptError, match=r"does not fit this device: .*`flashfs fsck --repair` goes on without it"):
        Device.open(path)
    said = CliRunner().invoke(app, ["fsck", str(path)])
    assert said.exit_code == 1
    assert "fsck --repair" in said.output
    said = CliRunner().invoke(app, ["fsck", "--repair", str(path)])
    assert said.exit_code == 0, said.output
    assert "repaired" in said.output
    assert "sound" in said.output
    with Device.open(path) as device:
        assert device.recovery.clean
        assert device.problems() == []
        assert device.read(0, device.size) == model


def test_a_repair_of_a_sound_image_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "image"
    made(path, "pagemap")
    before = path.read_bytes()
    said = CliRunner().invoke(app, ["fsck", "--repair", str(path)])
    assert said.exit_code == 0
    assert "nothing to repair" in said.output
    assert path.read_bytes() == before
    assert inspect.repair(path) is None
