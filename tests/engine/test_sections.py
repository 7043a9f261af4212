"""A checkpoint is believed only as far as it fits: what a pool never says of itself, and what pool and validity cannot
both mean (SPEC.md, section 9). This engine writes no such checkpoint, so the sections are forged here."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from schemes import KINDS

import nandimg
from flashfs import inspect
from flashfs.crash.programs import from_checkpoints, presets_for
from flashfs.device import Device
from flashfs.engine.blocks.pool import SAVED_BYTES
from flashfs.engine.device.metalog import MAGIC_INDEX
from flashfs.engine.recovery.admit import admit
from flashfs.ftl import SCHEMES
from nandimg import PRESETS, Geometry

FREE, OPEN, CLOSED, META_STREAM = 0, 2, 3, 3
CHECKPOINT = 4  #: a page's kind
#: blocks so small that a checkpoint takes a hundred of them, wherever they are free
SCATTERED = Geometry(page_bytes=512, pages_per_block=4, blocks=9000, dies=1, channels=1, oob_bytes=64, lpas=28_000)

pytestmark = pytest.mark.parametrize("ftl", KINDS)


@pytest.fixture
def device(ftl: str) -> Iterator[Device]:
    made = Device.memory(PRESETS[presets_for(ftl, ("tiny-16", "tiny-32", "tiny-48"))[0]].geometry, ftl, {"buffer": 0})
    made.write(0, bytes(range(256)) * 2 * 20)
    made.flush()
    yield made
    made.close(clean=False)


def a_block(device: Device, state: int) -> int:
    """One in that state that holds live pages."""
    saved = device.ssd.pool.save()
    found = [at for at in range(len(saved) // SAVED_BYTES) if saved[at * SAVED_BYTES] == state]
    return next(block for block in found if device.ssd.validity.live_in(block))


def forged(device: Device, block: int, state: int, stream: int | None = None, next_page: int | None = None) -> bytes:
    saved = bytearray(device.ssd.pool.save())
    at = block * SAVED_BYTES
    saved[at] = state
    if stream is not None:
        saved[at + 1] = stream
    if next_page is not None:
        saved[at + 2 : at + 4] = next_page.to_bytes(2, "little")
    return bytes(saved)


def test_what_was_saved_is_admitted(device: Device) -> None:
    device.ssd.pool.load(device.ssd.pool.save())
    admit(device.ssd, [])


@pytest.mark.parametrize("cut", [-1, 1])
def test_a_pool_of_another_size(device: Device, cut: int) -> None:
    saved = bytes(device.ssd.pool.save())
    with pytest.raises(ValueError, match=rf"pool section of {len(saved) + cut} bytes: {len(saved)} are needed"):
        device.ssd.pool.load((saved + bytes(1))[: len(saved) + cut])


def test_an_open_block_of_the_metadata_stream(device: Device) -> None:
    block = a_block(device, OPEN)
    with pytest.raises(ValueError, match=f"block {block}: open, and of the metadata stream"):
        device.ssd.pool.load(forged(device, block, OPEN, META_STREAM))


@pytest.mark.parametrize("state", [OPEN, CLOSED])
def test_live_pages_in_a_free_block(device: Device, state: int) -> None:
    block = a_block(device, state)
    device.ssd.pool.load(forged(device, block, FREE))
    with pytest.raises(ValueError, match=rf"block {block} holds \d+ live pages and is neither open nor closed"):
        admit(device.ssd, [])


def test_a_live_page_that_is_not_programmed_yet(device: Device) -> None:
    block = a_block(device, OPEN)
    live = device.ssd.validity.live_in(block)
    last = live[-1]
    device.ssd.pool.load(forged(device, block, OPEN, next_page=last))
    # which pages live a store in flash would have to read, and a mount reads none of it: it goes by their number
    says = f"{len(live)} pages live, and {last} are programmed" if device.ssd.validity.in_flash else (
        f"page {last} is live and not programmed yet")
    with pytest.raises(ValueError, match=f"block {block}: {says}"):
        admit(device.ssd, [])


def test_a_block_that_holds_both_the_checkpoint_and_data(device: Device) -> None:
    block = a_block(device, CLOSED)
    with pytest.raises(ValueError, match=f"block {block} holds the checkpoint, and the checkpoint says it is in use"):
        admit(device.ssd, [block])


def page_of(lpa: int, version: int) -> bytes:
    return struct.pack("<QQ", lpa, version) * 32


def index_pages(path: Path) -> list[int]:
    """PPAs of the newest checkpoint's pages of extents that did not fit its descriptor."""
    image = nandimg.open_image(path, readonly=True)
    try:
        found = []
        for ppa in range(SCATTERED.pages):
            status, raw = image.chip.read_spare_area(*divmod(ppa, SCATTERED.pages_per_block))
            spare = inspect.Spare.of(raw)
            if status == 1 and spare.kind == CHECKPOINT:
                found.append((spare.seq, ppa, (spare.lpa, spare.flags)))
    finally:
        image.close()
    newest = max(identity for identity, _, _ in found)
    with path.open("rb") as file:
        rows = [row for row in found if row[0] == newest and data_of(path, file, row[1])[:4] == MAGIC_INDEX]
    assert all(says == (0, 0) for _, _, says in rows)
    return [ppa for _, ppa, _ in rows]


def data_of(path: Path, file: BinaryIO, ppa: int) -> bytes:
    file.seek(nandimg.inspect(path).layout.data_at + ppa * SCATTERED.page_bytes)
    return file.read(SCATTERED.page_bytes)


@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_checkpoint_in_more_pieces_than_its_descriptor_has_room_for(ftl: str, tmp_path: Path, damaged: bool) -> None:
    """The rest is in index pages, each of which names the one before; all of them count, or none."""
    path, rnd = tmp_path / "chip", random.Random(1)
    nandimg.create(path, SCATTERED)
    device = Device.open(path, ftl=ftl, options={"buffer": "0", **from_checkpoints(ftl)})
    model = {lpa: page_of(lpa, 0) for lpa in range(SCATTERED.lpas)}
    device.write(0, b"".join(model.values()))
    for version in range(1, 20_001):
        lpa = rnd.randrange(SCATTERED.lpas)
        model[lpa] = page_of(lpa, version)
        device.write(lpa * 512, model[lpa])
    device.checkpoint()
    device.close(clean=False)
    pages = index_pages(path)
    # a map in flash leaves a checkpoint little, and so do live pages that are counted; a hashed map's lies in fewer
    # pieces, for more blocks are set aside for it
    few = device.ssd.mapping.demand or SCHEMES[ftl].hashed or SCHEMES[ftl].remaps
    assert len(pages) >= (1 if few else 2)
    if damaged:
        layout = nandimg.inspect(path).layout
        with path.open("r+b") as file:
            file.seek(layout.data_at + pages[-1] * 512 + 100)
            file.write(b"?")
    device = Device.open(path)
    assert any("was complete and is of no use now" in alarm for alarm in device.recovery.alarms) is damaged
    assert device.read(0, device.size) == b"".join(model.values())
    assert device.problems() == []
    device.close()
    device = Device.open(path)
    assert device.recovery.clean
    device.close()
