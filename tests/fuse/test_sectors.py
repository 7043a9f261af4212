"""Sectors of 512 bytes on `disk`, past the page cache: what a loop device with sectors of 4 KiB never asks for. And
file systems that were made there, whose blocks are smaller than those."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import flashfs
from stand import PAGE, Stand, same

from flashfs.fuse import SERVERS, mounts, up_registry
from flashfs.fuse.file_systems import BY_HAND

SECTOR = 512
SPAN = 256 << 10  #: bytes of the disk that are written
REQUESTS = 400
SECTORS_MOST = 20  #: of a request


def write_sectors(fd: int, model: bytearray, rnd: random.Random, scratch: mmap.mmap) -> None:
    """One short write, and a look at the pages around it."""
    size = rnd.randint(1, SECTORS_MOST) * SECTOR
    offset = rnd.randrange((SPAN - size) // SECTOR + 1) * SECTOR
    scratch[:size] = model[offset : offset + size] = rnd.randbytes(size)
    with memoryview(scratch) as view, view[:size] as data:
        assert os.pwritev(fd, [data], offset) == size
    first = offset - offset % PAGE
    with memoryview(scratch) as view, view[: min(SPAN - first, size + 2 * PAGE)] as around:
        assert os.preadv(fd, [around], first) == len(around)
        assert bytes(around) == model[first : first + len(around)], f"around {size} bytes at {offset}"


@pytest.mark.mount
@pytest.mark.parametrize("server", list(SERVERS))
def test_short_writes_of_sectors(stand: Callable[..., Stand], server: str) -> None:
    one = stand(16, "pagemap", server)
    rnd, model = random.Random(1), bytearray(SPAN)
    fd = os.open(one.disk, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, (SECTORS_MOST + 1) * SECTOR + 2 * PAGE) as scratch:
            for _ in range(REQUESTS):
                write_sectors(fd, model, rnd, scratch)
        os.fdatasync(fd)
    finally:
        os.close(fd)
    one.kill()
    one.mount()
    same(one.disk.read_bytes()[:SPAN], model)
    one.unmount()


@pytest.mark.mount
@pytest.mark.parametrize("fs", list(BY_HAND))
def test_a_file_system_made_on_disk(mountpoint: Path, need_loop: None, tmp_path: Path, fs: str) -> None:
    """mkfs sees a file with sectors of 512 bytes: `up` says what to type, and that does."""
    if shutil.which(f"mkfs.{fs}", path=mounts.environment()["PATH"]) is None:
        pytest.skip(f"needs mkfs.{fs}")
    chip, target = tmp_path / "chip.img", tmp_path / "files"
    flashfs("create", chip, "--size", "320M")

    def make(command: str) -> None:
        flashfs("mount", chip, mountpoint)
        words = [*command.split(), "-F" if fs == "ext4" else "-f", "-q", str(mountpoint / "disk")]
        subprocess.run(words, check=True, env=mounts.environment())
        flashfs("umount", mountpoint)

    make(f"mkfs.{fs}")
    said = flashfs("up", chip, target, code=2).stderr
    assert "does not fit a loop device with sectors of 4096" in said
    assert f"`{BY_HAND[fs]}`" in said
    assert not target.exists()
    assert not any(home.image == chip for home in up_registry.all_homes())
    make(BY_HAND[fs])
    assert f"{target}: {fs} on" in flashfs("up", chip, target).stdout
    flashfs("down", target)
