"""A clean image, one translation page of which has rotted: it is named, and nothing is mended by who only looks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nandimg
from flashfs import inspect
from flashfs.cli import run
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import PRESETS
from nandimg._torn import spoil

PAGED = [name for name in SCHEMES if Device.memory(PRESETS["tiny-112"].geometry, name).ssd.mapping.demand]


@pytest.mark.parametrize("ftl", PAGED)
def test_it_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], ftl: str) -> None:
    path, rnd, geometry = tmp_path / "chip", random.Random(1), PRESETS["tiny-112"].geometry
    nandimg.create(path, geometry)
    with Device.open(path, ftl=ftl) as device:
        for _ in range(700):
            device.write(rnd.randrange(geometry.lpas) * 512, rnd.randbytes(512))
    with Device.open(path, readonly=True) as device:
        ppa = device.ssd.mapping.translation_pages()[0]
    image = nandimg.open_image(path)
    spoil(image.chip, *divmod(ppa, geometry.pages_per_block))
    image.close()
    before = path.read_bytes()
    assert run(["fsck", str(path)]) == 1
    assert "cannot be read, or is not what it should be" in capsys.readouterr().out
    assert run(["dump", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert path.read_bytes() == before
    assert run(["fsck", "--repair", str(path)]) == 1
    assert inspect.problems(path, True)
