"""--plp: what was acknowledged survives without a flush, because the write buffer is in NVRAM."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from schemes import KINDS

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import PRESETS

GEOMETRY = PRESETS["tiny-24d"].geometry
PAGE = GEOMETRY.page_bytes

pytestmark = pytest.mark.parametrize("ftl", KINDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    return tmp_path / "chip"


def kill(device: Device) -> None:
    device.close(clean=False)


def test_acknowledged_is_enough(ftl: str, path: Path) -> None:
    device = Device.open(path, ftl=ftl, plp=True)
    device.write(0, b"a" * 3 * PAGE)
    programs = device.stats()["nand"]["by_cause"]["program"].get("host", 0)
    assert programs == 0  # it is in the buffer and nowhere else
    kill(device)
    device = Device.open(path, plp=True)
    assert device.recovery.figures["nvram_pages"] == 3
    assert device.read(0, 4 * PAGE) == b"a" * 3 * PAGE + bytes(PAGE)
    device.close()


def test_without_it_a_flush_is_needed(ftl: str, path: Path) -> None:
    device = Device.open(path, ftl=ftl)
    device.write(0, b"a" * PAGE)
    kill(device)
    device = Device.open(path)
    assert device.read(0, PAGE) == bytes(PAGE)
    device.write(0, b"b" * PAGE)
    device.flush()
    kill(device)
    with Device.open(path) as device:
        assert device.read(0, PAGE) == b"b" * PAGE


def test_a_flush_programs_nothing(ftl: str, path: Path) -> None:
    with Device.open(path, ftl=ftl, plp=True) as device:
        device.write(0, b"a" * 2 * PAGE)
        before = device.stats()["nand"]["program"]
        device.flush()
        assert device.stats()["nand"]["program"] == before


@pytest.mark.parametrize("seed", range(4))
def test_any_kill_between_requests_loses_nothing(ftl: str, path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    model = bytearray(GEOMETRY.logical_bytes)
    device = Device.open(path, ftl=ftl, plp=True)
    for n in range(400):
        lpa = rnd.randrange(GEOMETRY.lpas - 4)
        length = rnd.randint(1, 4) * PAGE
        if rnd.random() < 0.15:  # a trim counts when it is flushed
            device.trim(lpa * PAGE, length)
            device.flush()
            data = bytes(length)
        else:
            data = rnd.randbytes(length)
            device.write(lpa * PAGE, data)
        model[lpa * PAGE : lpa * PAGE + length] = data
        if n % 20 == 0:
            kill(device)
            device = Device.open(path, plp=True)
            assert device.read(0, device.size) == model
            assert device.problems() == []
    device.close()


@pytest.mark.parametrize("flush", [True, False])
def test_a_mount_without_it_finds_what_it_saved(ftl: str, path: Path, flush: bool) -> None:
    device = Device.open(path, ftl=ftl, plp=True)
    device.write(0, b"a" * 2 * PAGE)
    if flush:
        device.flush()
    kill(device)
    with Device.open(path) as device:
        assert device.read(0, 2 * PAGE) == b"a" * 2 * PAGE


def test_a_read_only_look_sees_what_it_saved(ftl: str, path: Path) -> None:
    device = Device.open(path, ftl=ftl, plp=True)
    device.write(0, b"a" * 2 * PAGE)
    device.flush()
    kill(device)
    device = Device.open(path, readonly=True)
    assert device.read(0, 2 * PAGE) == b"a" * 2 * PAGE
    device.close()


def test_it_needs_nvram(ftl: str, tmp_path: Path) -> None:
    nandimg.create(tmp_path / "none", replace(GEOMETRY, nvram_bytes=100))
    with pytest.raises(BindError, match="--plp needs 528 bytes of NVRAM per buffered page: the image has 100"):
        Device.open(tmp_path / "none", ftl=ftl, plp=True)


def test_the_buffer_is_no_larger_than_the_nvram(ftl: str, path: Path) -> None:
    with Device.open(path, ftl=ftl, plp=True, options={"buffer": "1000"}) as device:
        assert device.ssd.buffer.slots == GEOMETRY.nvram_bytes // (16 + PAGE)
        device.write(0, b"a" * device.size)
        assert device.read(0, device.size) == b"a" * device.size


def test_a_read_only_look_needs_no_more_than_what_was_saved(ftl: str, path: Path) -> None:
    """Not a slot for all that the NVRAM could hold: the budget of the mounts before is enough."""
    chip = replace(GEOMETRY, nvram_bytes=1 << 20)
    path.unlink()
    nandimg.create(path, chip)
    with Device.open(path, ftl=ftl, options={"buffer": "2"}) as device:
        device.write(0, b"a" * 2 * PAGE)
        dram = device.stats()["dram"]["total"] + 4096
    with Device.open(path, options={"buffer": "2"}, dram=dram, readonly=True) as device:
        assert device.ssd.buffer.slots == 1
        assert device.read(0, 2 * PAGE) == b"a" * 2 * PAGE
