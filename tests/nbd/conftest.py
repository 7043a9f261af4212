"""Images that nbdkit serves. What a fixture started is ended by its process, however the test ended."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from export import TIMEOUT_S, Export

from flashfs.nbd.server import PLUGIN
from nandimg import Geometry, image

PACKAGES = {"nbdkit": "nbdkit", "nbdinfo": "libnbd-bin", "qemu-io": "qemu-utils"}
MIB = 1 << 20


@pytest.fixture
def need_nbd() -> None:
    """Skips by name where nbdkit, a client or the plugin is missing."""
    for tool, package in PACKAGES.items():
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} (package {package})")
    if importlib.util.find_spec(PLUGIN) is None:
        pytest.skip("needs the plugin, which is built where nbdkit-plugin-dev is installed")


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A blank image of 80 MiB."""
    path = tmp_path / "chip.nand"
    image.create(path, Geometry.sized(80 * MIB, 0.3, pages_per_block=64, dies=2, channels=2))
    return path


@pytest.fixture
def export(need_nbd: None, chip: Path) -> Iterator[Callable[..., Export]]:
    """``export(ftl="dftl", ...)``: the image, served in the background at a socket beside it."""
    made: list[Export] = []

    def start(**how: Any) -> Export:
        made.append(Export(chip, **how))
        return made[-1]

    yield start
    for one in made:
        one.take_away()


@pytest.fixture
def need_loop() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to attach a loop device")
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True, timeout=TIMEOUT_S)
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")
