"""``up`` and ``down``: a file system over a loop device over a mount."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import flashfs, kill, pid_of, take_away
from schemes import rotated

from flashfs.errors import FlashfsError
from flashfs.fuse import daemon, file_systems, loop, mounts, up_registry
from nandimg import image

pytestmark = pytest.mark.mount


@pytest.fixture
def home(chip: Path, need_loop: None) -> Path:
    """Where the flashfs mount under the file system lives."""
    return up_registry.RUN / str(image.inspect(chip).uuid)


@pytest.fixture
def target(home: Path, tmp_path: Path) -> Iterator[Path]:
    """Where the file system goes; at the end nothing is there or under it."""
    path = tmp_path / "fs"
    path.mkdir()
    yield path
    devices = loop.loops_under(path)
    if mounts.at(path) is not None:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
    for device in devices:
        subprocess.run(["losetup", "-d", str(device)], check=False, capture_output=True)
    take_away(home)
    up_registry.remove(home)


def gone(home: Path, target: Path) -> bool:
    """Nothing of `up` is left."""
    left = [mounts.at(home), mounts.at(target), *mounts.loops_of(home / "disk")]
    return not any(left) and not home.exists() and not up_registry.record_of(home).exists()


def test_mkfs_beside_a_dead_mount(chip: Path, home: Path, target: Path, tmp_path: Path) -> None:
    """mkfs.btrfs looks at what all mounted loop devices lie on; what is dead there stays dead, and mounted."""
    flashfs("up", chip, target, "--fs", "ext4")
    (device,) = loop.loops_under(target)
    kill(home)
    assert mounts.is_corpse(home)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    os.truncate(plain, 128 << 20)
    file_systems.mkfs("mkfs.btrfs", "-q", str(plain), what="making btrfs")
    assert file_systems.signature(plain).name == "btrfs"
    assert mounts.mounts_of(device) == [target]
    with pytest.raises(FlashfsError, match=r"existing filesystem .btrfs"):
        file_systems.mkfs("mkfs.btrfs", "-q", str(plain), what="making btrfs")


@pytest.mark.parametrize("ftl", rotated(1, 3))
def test_up_and_down(chip: Path, home: Path, target: Path, ftl: str) -> None:
    assert "new ext4" in flashfs("up", chip, target, "--fs", "ext4", "--ftl", ftl).stdout
    data = random.Random(5).randbytes(5 << 20)
    (target / "file").write_bytes(data)
    assert "already up" in flashfs("up", chip, target).stdout
    assert "flashfs down" in flashfs("umount", target, code=2).stderr
    flashfs("down", target)
    assert gone(home, target)
    assert "new" not in flashfs("up", chip, target).stdout
    assert (target / "file").read_bytes() == data
    flashfs("down", target)
    assert gone(home, target)


@pytest.mark.parametrize("fs", ["xfs", "btrfs"])
def test_up_with_other_file_systems(need_loop: None, tmp_path: Path, fs: str) -> None:
    if shutil.which(f"mkfs.{fs}", path=mounts.environment()["PATH"]) is None:
        pytest.skip(f"needs mkfs.{fs}")
    if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
        pytest.skip(f"needs {fs}, which this kernel has not loaded")
    chip, target = tmp_path / "big.nand", tmp_path / "fs"
    target.mkdir()
    flashfs("create", chip, "--size", "320M")
    data = random.Random(6).randbytes(3 << 20)
    try:
        assert f"new {fs}" in flashfs("up", chip, target, "--fs", fs).stdout
        (target / "file").write_bytes(data)
        flashfs("down", target)
        assert f"{fs} on" in flashfs("up", chip, target, "--fs", fs).stdout
        assert (target / "file").read_bytes() == data
    finally:
        if mounts.at(target) is not None:
            flashfs("down", target)


def test_after_a_kill(chip: Path, home: Path, target: Path) -> None:
    flashfs("up", chip, target)
    (target / "file").write_bytes(b"flushed")
    subprocess.run(["sync", "-f", str(target / "file")], check=True)
    kill(home)
    for words in (("smart", target), ("dump", target, "lpa", 0)):
        line = f"its daemon is gone, killed or its power cut: `flashfs up {chip} {target}` recovers"
        assert line in flashfs(*words, code=1).stderr
    said = flashfs("up", chip, target, "-v").stdout
    assert -1 < said.find("its daemon was gone") < said.find("recovered") < said.find("spare reads")
    assert (target / "file").read_bytes() == b"flushed"
    kill(home)
    assert "next mount recovers" in flashfs("down", target, code=1).stderr
    assert gone(home, target)
    flashfs("up", chip, target)
    assert (target / "file").read_bytes() == b"flushed"
    flashfs("down", target)


def test_halves_are_completed_and_undone(chip: Path, home: Path, target: Path) -> None:
    flashfs("up", chip, target)
    subprocess.run(["umount", str(target)], check=True)
    flashfs("up", chip, target)
    subprocess.run(["umount", str(target)], check=True)
    flashfs("down", target)
    assert gone(home, target)


def test_down_takes_what_status_shows(chip: Path, home: Path, target: Path) -> None:
    """The image or the directory; also when the file system was unmounted by hand."""
    for place in (chip, home):
        flashfs("up", chip, target)
        line = f"in use by process {pid_of(home)}, up at {target}: `flashfs down {target}` ends that"
        assert line in flashfs("fsck", chip, code=1).stderr
        assert json.loads(flashfs("top", target, "--json").stdout)["mountpoint"] == str(target)
        if place == home:
            subprocess.run(["umount", str(target)], check=True)
        assert f"{chip} is checkpointed" in flashfs("down", place).stdout
        assert gone(home, target)


def test_refusals_leave_nothing(chip: Path, home: Path, target: Path, tmp_path: Path) -> None:
    assert "ext4, xfs, btrfs" in flashfs("up", chip, target, "--fs", "fat", code=2).stderr
    flashfs("up", chip, tmp_path / "nowhere" / "mnt", code=2)
    flashfs("up", tmp_path / "none", target, code=1)
    flashfs("down", target, code=2)
    assert gone(home, target)


def test_data_is_never_overwritten(chip: Path, home: Path, target: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    with (mountpoint / "disk").open("r+b", buffering=0) as disk:
        disk.write(b"no file system")
    flashfs("umount", mountpoint)
    assert "no file system" in flashfs("up", chip, target, code=2).stderr
    assert gone(home, target)


def test_busy(chip: Path, home: Path, target: Path) -> None:
    flashfs("up", chip, target)
    with (target / "open").open("w"):
        assert "busy" in flashfs("down", target, code=1).stderr
    flashfs("down", target)
    assert gone(home, target)


def test_only_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(loop.FlashfsError, match="needs root"):
        loop.need_root("up")


def test_the_umask_opens_nothing(chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of a mount are made with their own modes; ``up`` ends here before it mounts anything."""
    modes = []

    def mount(request: daemon.Request) -> daemon.Mounted:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in (request.mountpoint.parent, request.mountpoint))
        raise FlashfsError("far enough")

    monkeypatch.setattr(up_registry, "RUN", tmp_path / "run")
    monkeypatch.setattr(loop, "need_root", lambda command: None)
    monkeypatch.setattr(file_systems, "check_can_make", lambda fs: None)
    monkeypatch.setattr(daemon, "mount", mount)
    before = os.umask(0)
    try:
        with pytest.raises(FlashfsError, match="far enough"):
            loop.up(daemon.Request(chip, tmp_path / "files"), "ext4")
    finally:
        os.umask(before)
    assert modes == [0o755, 0o700]
    assert not up_registry.RUN.exists()
