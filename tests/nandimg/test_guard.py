"""A page of the image that the host cannot give is an unreadable page, never the end of the process."""

from __future__ import annotations

import os
from pathlib import Path

from nandimg import PRESETS, create, inspect, open_image

OK, TORN = 1, 2


def test_a_page_cut_off_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chip.nand"
    create(path, PRESETS["small-64m"].geometry)
    image = open_image(path)
    image.bind("some", {}, 24)
    data = os.urandom(image.chip.page_bytes)
    image.chip.program_page(0, 0, data, b"oob")
    assert image.chip.read_page(0, 0)[1] == data
    image.chip.program_page(0, 1, None, b"oob")
    os.truncate(path, inspect(path).layout.data_at)
    assert image.chip.read_page(0, 0)[0] == TORN
    assert image.chip.read_page(0, 1)[:2] == (OK, bytes(image.chip.page_bytes))  # it needs nothing of the file's data
    image.close()
