"""SPEC.md's words on maps of entries and validity in flash, against devices: a reader that knows nothing else finds
where each LPA is, and which pages live."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import entry_maps
import kept_words
import reader

from flashfs.device import Device
from flashfs.engine.views import block_map
from nandimg import Geometry, create

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=256, channels=2, dies=2, oob_bytes=64, lpas=2_000)
TREE = {"fanout": "3", "nodes": "2"}


@pytest.mark.parametrize("ftl", ["dftl", "lazyftl", "sftl", "tpftl", "learnedftl", "muftl", "ibftl"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_clean_image_says_where_each_page_is(tmp_path: Path, ftl: str, seed: int) -> None:
    path, rnd = tmp_path / "image", random.Random(seed)
    options = {"buffer": "0", "cmt_bytes": "2000", **(TREE if ftl in ("muftl", "ibftl") else {})}
    create(path, GEOMETRY)
    with Device.open(path, ftl=ftl, options=options) as device:
        for turn in range(2_500):
            lpa = rnd.randrange(GEOMETRY.lpas - 40)
            if turn % 11 == 0:
                device.trim(lpa * PAGE, 40 * PAGE)
            else:
                device.write(lpa * PAGE, bytes([turn % 251]) * PAGE * rnd.choice((1, 1, 2, 9)))
    image = reader.Image(path)
    checkpoint = image.clean_checkpoint()
    assert checkpoint is not None
    said = entry_maps.entry_map(image, checkpoint.sections)
    with Device.open(path, options={name: value for name, value in options.items() if name != "fanout"},
                     readonly=True) as device:
        where = block_map.locations(device.ssd).tolist()
        assert said == {lpa: ppa for lpa, ppa in enumerate(where) if ppa < GEOMETRY.pages}
        assert {image.page(ppa).lpa for ppa in said.values()} == set(said)
        if ftl == "learnedftl":
            known = entry_maps.modelled(image, checkpoint.sections)
            assert len(known) > 100
            assert known.items() <= said.items()
            models = device.ssd.mapping.models
            assert known == {lpa: ppa for lpa in said if (ppa := models.where(lpa)) is not None}
        if ftl in ("muftl", "ibftl"):
            own = {at for kind, at in device.ssd.owned_pages() if kind == entry_maps.VALIDITY}
            per_block = GEOMETRY.pages_per_block
            live = {block * per_block + page for block in range(GEOMETRY.blocks)
                    for page in device.ssd.validity.live_in(block)}
            assert entry_maps.live_pages(image, checkpoint.sections) == live - own
            counted = entry_maps.counts(image, checkpoint.sections)
            assert sum(counted) == len(live - own) > len(said)
        if ftl == "ibftl":
            for block in range(GEOMETRY.blocks):
                dead = {entry["page"] for entry in device.ssd.validity.chain(block) if entry["position"] is not None}
                assert set(entry_maps.chain(image, checkpoint.sections, block)) == dead


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_battery_says_where_each_page_is(tmp_path: Path, seed: int) -> None:
    """At any moment, clean or not: what is in NVRAM of a device that was killed, with what that names in flash."""
    path, rnd = tmp_path / "image", random.Random(seed)
    options = {"buffer": "0", "cmt_bytes": "2000", "frames": "2", **TREE}
    create(path, GEOMETRY)
    device = Device.open(path, ftl="muftl", options=options)
    for turn in range(2_500 + 10 * seed):
        lpa = rnd.randrange(GEOMETRY.lpas - 40)
        if turn % 11 == 0:
            device.trim(lpa * PAGE, 40 * PAGE)
        else:
            device.write(lpa * PAGE, bytes([turn % 251]) * PAGE * rnd.choice((1, 1, 2, 9)))
        if turn == 1_800:
            device.checkpoint()
    where = block_map.locations(device.ssd).tolist()
    per_block = GEOMETRY.pages_per_block
    live = {block * per_block + page for block in range(GEOMETRY.blocks)
            for page in device.ssd.validity.live_in(block)}  # fmt: skip
    owned = device.ssd.owned_pages()
    device.close(clean=False)
    image = reader.Image(path)
    kept = kept_words.muftl(image)
    assert kept.mapped == {lpa: ppa for lpa, ppa in enumerate(where) if ppa < GEOMETRY.pages}
    assert kept.own == {at for kind, at in owned if kind == entry_maps.VALIDITY}
    assert kept.live == live - kept.own
    assert kept.sum == sum(kept_words.named(ppa) for ppa in kept.mapped.values()) % 2**64
    of_map = {at for kind, at in owned if kind != entry_maps.VALIDITY}
    assert kept.live - of_map == set(kept.mapped.values())
