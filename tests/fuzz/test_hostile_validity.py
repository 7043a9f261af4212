"""Pages of a validity store in flash that say what no chip can have, under right sums."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_picture import picture

import nandimg
from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import FlashfsError
from nandimg import PRESETS
from nandimg.errors import NandimgError

KIND_VALIDITY = 3


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ftl", ["muftl", "ibftl", "geckoftl"])
def test_every_bit_set(tmp_path: Path, ftl: str, clean: bool) -> None:
    """Bits beyond a block's last page among them: a count of them was an index."""
    path, rnd, geometry = tmp_path / "chip", random.Random(1), PRESETS["tiny-112"].geometry
    nandimg.create(path, geometry)
    device = Device.open(path, ftl=ftl)
    for _ in range(1500):
        device.write(rnd.randrange(geometry.lpas) * 512, rnd.randbytes(512))
    device.flush()
    device.close(clean=clean)
    hostile, hurt = picture(path.read_bytes()), 0
    for ppa in hostile.programmed():
        if hostile.kind(ppa) == KIND_VALIDITY:
            hostile.put_data(ppa, b"\xff" * len(hostile.data(ppa)))
            hurt += 1
    path.write_bytes(hostile.raw)
    assert hurt or not clean
    assert all(isinstance(line, str) for line in inspect.problems(path, True))
    try:
        device = Device.open(path)
        for _ in range(1500):
            device.write(rnd.randrange(geometry.lpas) * 512, rnd.randbytes(512))
        device.flush()
        device.close()
    except FlashfsError as error:
        assert not isinstance(error, NandimgError)
        device.close(clean=False)
