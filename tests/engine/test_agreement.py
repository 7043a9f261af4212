"""A device that does not agree with itself writes no checkpoint; an image that has one such comes back by a repair."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from schemes import kinds_of, those

import nandimg
from flashfs import cli, inspect
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import CorruptError, DeviceFailedError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE = 512
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=100, dies=2, oob_bytes=64, lpas=1_000)
FTLS = those(lambda ftl: not SCHEMES[ftl].remaps)  # one that shares pages counts the live ones, and cannot disagree


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
    device.ssd.validity.load(fewer_live(device.ssd.validity.save(), n + unnoticed(device)))
    device.ssd.validity.device_ready()
    device.ssd.placement.attach()


def unnoticed(device: Device) -> int:
    """The number of pages that are live by validity and that no LPA maps: only a late validity store has any."""
    named = np.count_nonzero(block_map.locations(device.ssd) != 2**32 - 1) + len(device.ssd.owned_pages())
    found = sum(len(device.ssd.validity.live_in(block)) for block in range(SMALL.blocks)) - int(named)
    assert found == 0 or device.ssd.validity.late
    return found


def fewer_live(sections: dict[str, bytes], n: int) -> dict[str, bytes]:
    """What validity saves, with ``n`` live pages fewer. Of a store in flash that is the counts of blocks."""
    name = "pvb" if "pvb" in sections else "bvc"
    saved = bytearray(sections[name])
    for at in range(0, len(saved), 1 if name == "pvb" else 2):  # 16 pages a block: the low byte of a count is enough
        while n and saved[at]:
            saved[at] = saved[at] & saved[at] - 1 if name == "pvb" else saved[at] - 1
            n -= 1
    return {**sections, name: bytes(saved)}


@pytest.mark.parametrize("ftl", kinds_of(FTLS))
def test_no_checkpoint_of_what_disagrees(tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    model = made(path, ftl)
    device = Device.open(path)
    device.write(0, model[:PAGE])
    device.flush()
    if device.ssd.validity.late:
        pytest.skip(f"{ftl}: validity is late, so nobody counts how many LPAs are mapped; fsck reads the map for it")
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
    validity = fewer_live(validity, 8 + unnoticed(device))
    sections.update({**device.ssd.mapping.save(), **validity, "pool": device.ssd.pool.save()})
    device.ssd.meta.write(sections, device.ssd.seq, device.ssd.mounts, True)
    device.ssd.meta.point_boot()
    device.close(clean=False)


def fsck(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """(exit code, what it printed)."""
    code = cli.run(["fsck", *map(str, words)])
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize("ftl", kinds_of(FTLS))
def test_a_repair_takes_the_image_back(capsys: pytest.CaptureFixture[str], tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    model = made(path, ftl)
    without_agreement(path)
    if SCHEMES[ftl].validity_late:  # a mount does not know how many LPAs are mapped, and a look at all does
        code, said = fsck(capsys, path)
        assert code == 1
        assert "the mapping holds" in said
        return
    with pytest.raises(CorruptError, match=r"does not fit this device: .*`flashfs fsck --repair` goes on without it"):
        Device.open(path)
    code, said = fsck(capsys, path)
    assert code == 1
    assert "fsck --repair" in said
    code, said = fsck(capsys, "--repair", path)
    assert code == 0, said
    assert "repaired" in said
    assert "sound" in said
    with Device.open(path) as device:
        assert device.recovery.clean
        assert device.problems() == []
        assert device.read(0, device.size) == model


def test_a_repair_of_a_sound_image_changes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "image"
    made(path, "pagemap")
    before = path.read_bytes()
    code, said = fsck(capsys, "--repair", path)
    assert code == 0
    assert "nothing to repair" in said
    assert path.read_bytes() == before
    assert inspect.repair(path) is None
