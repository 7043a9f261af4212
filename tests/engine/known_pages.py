"""Pages of known contents on a device, where they are, and damage to them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import UncorrectableError

PAGE = 512
KIND_USER = 1
FLAG_LOST = 8  #: of a copy that stands for a page that could not be read


def content(lpa: int, version: int) -> bytes:
    return b"%7d %7d" % (lpa, version) + bytes(PAGE - 15)


def scattered(device: Device, rnd: random.Random, version: int = 1, part: float = 0.67) -> dict[int, bytes]:
    """Many LPAs in no order: segments of single pages, so that the table is large."""
    lpas = rnd.sample(range(device.ssd.lpas), int(device.ssd.lpas * part))
    for lpa in lpas:
        device.write(lpa * PAGE, content(lpa, version))
    device.flush()
    return {lpa: content(lpa, version) for lpa in lpas}


def same(device: Device, model: dict[int, bytes]) -> None:
    for lpa in range(device.ssd.lpas):
        assert device.read(lpa * PAGE, PAGE) == model.get(lpa, bytes(PAGE)), lpa


def spoil(path: Path, ppa: int, at: int = 40) -> None:
    """Flip a bit of a page's data."""
    layout = inspect.header(path)["layout"]
    with path.open("r+b") as file:
        file.seek(layout["data_at"] + ppa * PAGE + at)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def figures(device: Device) -> dict[str, Any]:
    return dict(device.stats()["scheme"])


def all_spares(device: Device) -> list[inspect.Spare]:
    """What all pages that can be read say of themselves."""
    places = [(block, page) for block in range(device.nand.blocks) for page in range(device.nand.pages_per_block)]
    read = [device.nand.read_spare_area(block, page) for block, page in places]
    return [inspect.Spare.of(raw) for status, raw in read if status == 1]


def places(device: Device) -> dict[int, int]:
    """Where each LPA is, from the live pages' OOBs alone."""
    per_block, found = device.nand.pages_per_block, {}
    for block in range(device.nand.blocks):
        for page in device.ssd.validity.live_in(block):
            status, raw = device.nand.read_spare_area(block, page)
            spare = inspect.Spare.of(raw)
            if status == 1 and spare.kind == KIND_USER:
                found[spare.lpa] = block * per_block + page
    return found


def wreck(path: Path, *ppas: int) -> None:
    """Spoil spare areas, and with each its page."""
    layout = inspect.header(path)["layout"]
    with path.open("r+b") as file:
        for ppa in ppas:
            file.seek(layout["spare_at"] + ppa * layout["stride"] + layout["record_head"] + 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x55]))


def lost(device: Device) -> set[int]:
    return {spare.lpa for spare in all_spares(device) if spare.flags & FLAG_LOST}


def held(device: Device, model: dict[int, bytes], gone: set[int]) -> None:
    """Everything but those LPAs, which give EIO."""
    for lpa in range(device.ssd.lpas):
        if lpa in gone:
            with pytest.raises(UncorrectableError):
                device.read(lpa * PAGE, PAGE)
        else:
            assert device.read(lpa * PAGE, PAGE) == model.get(lpa, bytes(PAGE)), lpa
