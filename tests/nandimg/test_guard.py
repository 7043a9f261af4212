"""A page of the image that the host cannot give is an error of that read, never the end of the process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nandimg import PRESETS, create, inspect, open_image


def test_a_page_cut_off_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chip.nand"
    create(path, PRESETS["small-64m"].geometry)
    image = open_image(path)
    image.bind("some", {}, 24)
    data = os.urandom(image.chip.page_bytes)
    image.chip.program_page(0, 0, data, b"oob")
    assert image.chip.read_page(0, 0)[1] == data
    os.truncate(path, inspect(path).layout.data_at)
    with pytest.raises(OSError) as caught:
        image.chip.read_page(0, 0)
    assert caught.value.errno == errno.EIO
    image.close()
