"""Gecko's pages and sections: what SPEC.md says of them, and what flashfs does, are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import reader
import reader_gecko

from flashfs.device import Device
from nandimg import Geometry, create

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=48, blocks=120, dies=2, oob_bytes=64, lpas=3600)


@pytest.mark.parametrize("options", [{}, {"entries": "9"}, {"parts": "5", "entries": "14"}, {"multiway": "0"}])
def test_live_pages_of_a_clean_image(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "image"
    create(path, GEOMETRY)
    device = Device.open(path, ftl="geckoftl", options={"buffer": "0", **options})
    rnd = random.Random(str(options))
    for _ in range(12_000):
        lpa = rnd.randrange(3600)
        if rnd.random() < 0.02:
            device.trim(lpa * PAGE, PAGE)
        else:
            device.write(lpa * PAGE, rnd.randbytes(PAGE))
    device.close()
    image = reader.Image(path)
    checkpoint = image.clean_checkpoint()
    assert checkpoint is not None
    found = reader_gecko.Gecko(image, checkpoint.sections)
    assert sum(len(run.pages) for run in found.runs) > 1
    with_flashfs = Device.open(path, readonly=True)
    store = with_flashfs.ssd.validity
    live = {block * 48 + page for block in range(GEOMETRY.blocks) for page in store.live_in(block)}
    with_flashfs.close(clean=False)
    assert found.live() | found.own() == live
    assert not found.live() & found.own()
