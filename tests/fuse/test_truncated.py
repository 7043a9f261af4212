"""An image that is cut while it is mounted: the device fails, the daemon does not."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mounting import flashfs, refused

from flashfs.device import Device
from flashfs.fuse import SERVERS, daemon, mounts
from nandimg import PRESETS, create, inspect

pytestmark = pytest.mark.mount
PAGE = 4096
KEPT = b"kept" * (PAGE // 4)
CUTS = ("half", "records", "table")


def cut(image: Path, where: str) -> None:
    """In the data; where the page records begin; after the header."""
    layout = inspect(image).layout
    os.truncate(image, {"half": layout.end // 2, "records": layout.spare_at, "table": layout.table_at}[where])


def read(mountpoint: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mountpoint / name).read_text())
    return found


def write_and_flush(fd: int, data: bytes, offset: int) -> None:
    os.pwrite(fd, data, offset)
    os.fsync(fd)


def kept_or_error(fd: int) -> bytes:
    try:
        return os.pread(fd, PAGE, 0)
    except OSError as error:
        assert error.errno == errno.EIO
        return KEPT


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("where", CUTS)
def test_the_device_fails_and_the_daemon_stays(
    chip: Path, mountpoint: Path, tmp_path: Path, server: str, where: str
) -> None:
    log = tmp_path / "log"
    flashfs("mount", chip, mountpoint, "--server", server, "--log", log)
    fd = os.open(mountpoint / "disk", os.O_RDWR)
    write_and_flush(fd, KEPT, 0)
    assert read(mountpoint, "smart.json")["failed"] is None
    cut(chip, where)
    assert refused(lambda: write_and_flush(fd, b"lost" * PAGE, 1 << 20)) == errno.EIO
    assert read(mountpoint, "smart.json")["failed"]
    assert refused(lambda: write_and_flush(fd, b"x" * PAGE, 0)) == errno.EIO
    assert refused(lambda: os.fsync(fd)) == errno.EIO
    assert kept_or_error(fd) == KEPT  # never zeros, never another's
    assert read(mountpoint, "stats.json")["ftl"] == "pagemap"
    os.close(fd)
    assert "it was truncated while it was open" in log.read_text()
    done = daemon.unmount(mountpoint)
    assert mounts.at(mountpoint) is None
    assert any("no checkpoint was written" in warning for warning in done.warnings)


def test_with_the_write_buffer_in_nvram(tmp_path: Path) -> None:
    """There a write is promised at once, so it is what fails."""
    path = tmp_path / "chip.nand"
    create(path, replace(PRESETS["small-64m"].geometry, nvram_bytes=1 << 20))
    device = Device.open(path, plp=True)
    device.write(0, KEPT)
    cut(path, "table")
    assert refused(lambda: device.write(0, b"x" * PAGE)) == errno.EIO
    assert device.smart()["failed"]
    device.close(clean=False)
