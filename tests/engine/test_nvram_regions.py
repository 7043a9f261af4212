"""Regions of the NVRAM that are large and hardly used, or smaller than their part needs."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import nandimg
from flashfs.device import Device
from flashfs.engine.device.buffer import nvram_slots, slots_in_use
from flashfs.errors import CorruptError
from nandimg import PRESETS, Geometry
from nandimg.header import HEADER_BYTES, pack
from nandimg.image import _empty


def test_slots_that_were_never_written_are_not_read(tmp_path: Path) -> None:
    """An image may say that it has NVRAM by the gibibyte: looks and recoveries take what is used of it."""
    path = tmp_path / "chip"
    nandimg.create(path, Geometry(page_bytes=512, pages_per_block=16, blocks=64, oob_bytes=64, lpas=500,
                                  nvram_bytes=1 << 26))  # fmt: skip
    device = Device.open(path, plp=True)
    device.write(0, b"kept" * 128 * 3)
    device.close(clean=False)
    begin = nandimg.inspect(path).layout.nvram_at
    with path.open("r+b") as file:
        file.seek(begin)
        used = file.read(1 << 13)
        _empty(file.fileno(), begin)  # of the pages in flash as well: only NVRAM has them
        file.seek(begin)
        file.write(used)
    with Device.open(path, readonly=True) as device:
        assert 3 <= len(list(slots_in_use(device.nand))) < 100 < nvram_slots(device.nand)
        assert [lpa for lpa, *_ in device.ssd.buffer.survivors()] == [0, 1, 2]
        assert len(device.ssd.buffer.survivors(above=2)) < 3
        assert device.read(0, 12) == b"kept" * 3


@pytest.mark.parametrize("ftl", ["dftl", "muftl"])
def test_a_region_of_the_battery_that_is_too_small_for_it(ftl: str, tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS["tiny-288"].geometry)
    with Device.open(path, ftl=ftl) as device:
        device.write(0, b"kept")
    with closing(nandimg.open_image(path)) as image:
        header, fd = image.header, os.dup(image.chip_fd())
    small = replace(header, regions=tuple(replace(one, bytes=64) for one in header.regions))
    for at in (0, HEADER_BYTES):
        os.pwrite(fd, pack(small), at)
    os.close(fd)
    with pytest.raises(CorruptError, match=f"header: NVRAM region {ftl}: .* words need .* bytes: the image has 64"):
        Device.open(path, readonly=True)
