"""With ``sync="none"`` a flush promises nothing about the host's death; what was flushed outlives the process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nandimg
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=160, oob_bytes=64, lpas=1536, nvram_bytes=1 << 16)
LIVES = 8


@pytest.mark.parametrize("ftl", sorted(SCHEMES))
def test_what_was_flushed_outlives_the_process(tmp_path: Path, ftl: str) -> None:
    """Lives of several checkpoints each, and no clean end."""
    nandimg.create(tmp_path / "chip", GEOMETRY)
    rnd = random.Random(7)
    held: dict[int, bytes] = {}
    for life in range(LIVES):
        device = Device.open(tmp_path / "chip", ftl=ftl, options={"buffer": "4"}, sync="none")
        lost = [lpa for lpa in range(GEOMETRY.lpas) if device.read(lpa * PAGE, PAGE) != held.get(lpa, bytes(PAGE))]
        assert (life, lost) == (life, [])
        assert device.problems() == []
        for step in range(2500):
            lpa = rnd.randrange(GEOMETRY.lpas)
            held[lpa] = rnd.randbytes(PAGE)
            device.write(lpa * PAGE, held[lpa])
            if step % 40 == 0:
                device.flush()
        device.flush()
        device.close(clean=False)


def test_marks_move_without_a_durable_sync(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    image = nandimg.open_image(tmp_path / "chip")
    image.chip.program_page(3, 0, bytes(PAGE), b"")
    image.chip.program_page(3, 1, bytes(PAGE), b"")
    assert image.chip.synced_pages(3) == 0
    image.chip.synchronise(False)
    assert image.chip.synced_pages(3) == 2
    image.close()
