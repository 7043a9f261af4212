"""A mount that comes to nothing leaves nothing: no binding, no directory."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from mounting import flashfs
from namespaces import apart

from flashfs.device import Device
from flashfs.fuse import SERVERS, up_registry
from nandimg import PRESETS, create, inspect, open_image

pytestmark = pytest.mark.mount
WITHOUT_FUSE = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && "
BROKEN_FUSE = "mount --bind /dev/null /dev/fuse && "


def flashfs_where(folder: Path, before: str, *words: object) -> str:
    """What the command says as it fails, in a mount namespace of its own where ``before`` was done; of all
    mounts of devices it has those in ``folder``."""
    command = [sys.executable, "-m", "flashfs.cli", *map(str, words)]
    where = [*apart(folder), "sh", "-c", f'{before} exec "$@"', "sh", *command]
    done = subprocess.run(where, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("flashfs: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    """A blank image with a bad block, which is to stay one."""
    path = tmp_path / "blank.img"
    create(path, PRESETS["small-64m"].geometry)
    image = open_image(path)
    image.chip.mark_factory_bad(5)
    image.close()
    return path


@pytest.mark.parametrize("before", [WITHOUT_FUSE, BROKEN_FUSE], ids=["none", "broken"])
@pytest.mark.parametrize("server", list(SERVERS))
def test_mount_where_fuse_fails(need_fuse: None, blank: Path, tmp_path: Path, server: str, before: str) -> None:
    was, mountpoint = digest(blank), tmp_path / "mnt"
    said = flashfs_where(blank.parent, before, "mount", "--ftl", "slimftl", "--server", server, blank, mountpoint)
    assert "/dev/fuse" in said if before is WITHOUT_FUSE else "cannot mount" in said
    assert digest(blank) == was
    assert not mountpoint.exists()


def test_up_where_fuse_fails(need_loop: None, blank: Path, tmp_path: Path) -> None:
    was, mountpoint = digest(blank), tmp_path / "mnt"
    flashfs_where(tmp_path, WITHOUT_FUSE, "up", blank, mountpoint)
    flashfs_where(tmp_path, BROKEN_FUSE, "up", blank, mountpoint)
    assert digest(blank) == was
    assert not mountpoint.exists()
    assert not any(home.image == blank for home in up_registry.all_homes())
    assert not (up_registry.RUN / str(inspect(blank).uuid)).exists()


def test_a_bound_image_keeps_what_it_has(need_fuse: None, blank: Path, tmp_path: Path) -> None:
    with Device.open(blank) as device:
        device.write(0, b"kept" * 1024)
    flashfs_where(tmp_path, BROKEN_FUSE, "mount", blank, tmp_path / "mnt")
    with Device.open(blank) as device:
        assert device.read(0, 4096) == b"kept" * 1024


def test_an_image_that_was_given_back_binds_again(blank: Path) -> None:
    was = digest(blank)
    device = Device.open(blank, ftl="slimftl")
    device.write(0, b"gone" * 1024)
    device.flush()
    assert device.give_back()
    assert digest(blank) == was
    assert not inspect(blank).ftl
    with Device.open(blank, ftl="dftl") as device:
        assert device.read(0, 4096) == bytes(4096)
        assert device.smart()["factory_bad"] == 1
        assert device.problems() == []
    with Device.open(blank) as device:
        assert not device.give_back()


def test_a_mountpoint_that_was_there_stays(need_fuse: None, blank: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    flashfs("mount", tmp_path / "none.img", tmp_path / "mnt", code=1)
    flashfs("mount", tmp_path / "none.img", tmp_path / "new", code=1)
    assert (tmp_path / "mnt").exists()
    assert not (tmp_path / "new").exists()
