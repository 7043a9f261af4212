"""Mounts for tests. Whatever a fixture makes it takes away again, by the ids that it made, however the test ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounting import ROOM, Served, flashfs, take_away
from stand import Stand

from flashfs.fuse import SERVERS, up_registry
from nandimg import image

HERE = Path(__file__).parent


@pytest.fixture
def need_fuse() -> None:
    """Skips by name where nothing can be mounted."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse, which this machine does not let us open")
    if shutil.which("fusermount3") is None:
        pytest.skip("needs fusermount3 (package fuse3)")


@pytest.fixture
def need_loop(need_fuse: None) -> None:
    """Skips by name where no loop device can be attached."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to attach a loop device")
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/loop-control, which this machine does not have")
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True)
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")


@pytest.fixture(params=list(SERVERS))
def serve(need_fuse: None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """``serve("write=ENOSPC", ...)``: a mount of a device in memory under each server that there is."""
    made: list[Served] = []

    def start(*faults: str) -> Served:
        path = tmp_path / f"ram{len(made)}"
        path.mkdir()
        command = [sys.executable, str(HERE / "serve.py"), request.param, str(path), str(ROOM), *faults]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        made.append(Served(process, path))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return made[-1]

    yield start
    for served in made:
        take_away(served.path)
        served.process.kill()
        served.process.communicate()


@pytest.fixture
def mountpoint(need_fuse: None, tmp_path: Path) -> Iterator[Path]:
    """An empty directory; at the end nothing is mounted there and its daemon is gone."""
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    take_away(path)


@pytest.fixture
def chip(tmp_path: Path) -> Iterator[Path]:
    """An image of 64 MiB; at the end, what `up` made of it is gone too."""
    path = tmp_path / "chip.nand"
    flashfs("create", path, "--preset", "small-64m")
    home = up_registry.RUN / str(image.inspect(path).uuid)
    yield path
    take_away(home)
    up_registry.remove(home)


@pytest.fixture
def stand(need_fuse: None, tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    """``stand(size_mib, ftl, server)``: an image that is mounted, by the native server unless another is named."""
    made: list[Stand] = []

    def start(size_mib: int, ftl: str, server: str = "native", **how: object) -> Stand:
        folder = tmp_path / f"stand{len(made)}"
        folder.mkdir()
        made.append(Stand(folder, size_mib, ftl, server))
        made[-1].mount(**how)
        return made[-1]

    yield start
    for one in made:
        one.clean_up()
