"""Which image is up: files, not what they hold; and several mountpoints of one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mounting import TIMEOUT_S, flashfs, take_away

from flashfs.errors import UsageError
from flashfs.fuse import daemon, loop, mounts, up_registry
from nandimg import PRESETS, clone, image

pytestmark = pytest.mark.mount
Targets = Callable[[str], Path]


@pytest.fixture
def target(need_loop: None, tmp_path: Path) -> Iterator[Targets]:
    """``target("a")``: where a file system goes; at the end nothing is there or under it."""
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(tmp_path / name)
        return made[-1]

    yield make
    for path in made:
        for device in loop.loops_under(path):
            home, _ = loop.home_of(path)
            subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
            subprocess.run(["losetup", "-d", str(device)], check=False, capture_output=True)
            take_away(home)
            up_registry.remove(home)
    for known in up_registry.all_homes():
        if tmp_path in known.image.parents:
            take_away(known.path)
            up_registry.remove(known.path)


def up(chip: Path, where: Path, *more: str) -> str:
    return str(flashfs("up", chip, where, *more).stdout)


def test_a_copy_by_cp_is_another_disk(chip: Path, target: Targets) -> None:
    a, b = target("A"), target("B")
    up(chip, a)
    (a / "file").write_text("first")
    flashfs("down", a)
    copy = chip.with_name("b.img")
    shutil.copy(chip, copy)
    assert image.inspect(copy).uuid == image.inspect(chip).uuid
    up(chip, a)
    (a / "file").write_text("second")
    up(copy, b)
    assert (b / "file").read_text() == "first"
    (b / "file").write_text("the copy's")
    assert (a / "file").read_text() == "second"
    link = chip.with_name("link.img")
    link.hardlink_to(chip)  # another name of the same file
    assert "already up" in up(link, a)
    flashfs("down", a)
    assert (b / "file").read_text() == "the copy's"
    flashfs("down", b)
    assert not any(chip.parent in home.image.parents for home in up_registry.all_homes())


@pytest.mark.parametrize("fs", ["xfs", "btrfs"])
def test_a_clone_beside_its_original(target: Targets, tmp_path: Path, fs: str) -> None:
    if shutil.which(f"mkfs.{fs}", path=mounts.environment()["PATH"]) is None:
        pytest.skip(f"needs mkfs.{fs}")
    if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
        pytest.skip(f"needs {fs}, which this kernel has not loaded")
    chip, copy, a, b = tmp_path / "a.img", tmp_path / "b.img", target("A"), target("B")
    flashfs("create", chip, "--size", "320M")
    up(chip, a, "--fs", fs)
    (a / "file").write_text("first")
    assert "in use" in flashfs("clone", chip, copy, code=1).stderr
    flashfs("down", a)
    said = json.loads(flashfs("clone", chip, copy, "--json").stdout)
    assert said["uuid"] == str(image.inspect(copy).uuid) != str(image.inspect(chip).uuid)
    assert "exists already" in flashfs("clone", chip, copy, code=1).stderr
    up(chip, a)
    (a / "file").write_text("second")
    up(copy, b)
    assert (b / "file").read_text() == "first"
    small = b / "small.img"  # on a file system whose files can share their blocks
    image.create(small, PRESETS["small-64m"].geometry)
    assert clone(small, b / "copy.img").shared
    assert small.read_bytes()[8192:] == (b / "copy.img").read_bytes()[8192:]
    flashfs("down", a)
    flashfs("down", b)


def test_an_image_that_is_up_keeps_its_options(chip: Path, target: Targets, tmp_path: Path) -> None:
    a, b = target("A"), target("B")
    up(chip, a, "--dram", "64M", "--opt", "gc_reserve=3")
    assert "already up" in up(chip, a, "--dram", "64M", "--opt", "gc_reserve=3", "--ftl", "pagemap", "--sync", "flush")
    for words in (["--ftl", "dftl"], ["--opt", "gc_reserve=4"], ["--record", str(tmp_path / "trace")]):
        said = flashfs("up", chip, b, *words, code=2).stderr
        assert " ".join(words) in said
        assert f"`flashfs down {a}`" in said
        assert not b.exists()
    assert "holds ext4, not xfs" in flashfs("up", chip, a, "--fs", "xfs", code=2).stderr
    flashfs("down", a)


def test_which_options_an_image_that_is_up_takes(tmp_path: Path) -> None:
    path, log = tmp_path / "a.img", tmp_path / "log"
    request = daemon.Request(path, tmp_path / "mnt", dram=1 << 20, log=log, faults=("cut=1",))
    mounted = daemon.Mounted(1, "pagemap", 0, "native", "read", True, "", [], [], [], [])
    home = up_registry.Home(tmp_path, path, (1, 2), loop._options(request, mounted), (request.mountpoint,))
    asked = {"dram": "1M", "log": log, "sync": "flush", "server": "auto", "fs": "ext4", "verbose": True}
    loop.refuse_others(home, request, asked)
    for other, word, value in (
        (replace(request, dram=2 << 20), "dram", "2M"), (replace(request, plp=True), "plp", True),
        (replace(request, realtime=True), "realtime", True), (replace(request, sync="none"), "sync", "none"),
        (replace(request, server="pyfuse3"), "server", "pyfuse3"), (replace(request, log=None), "log", "other"),
        (request, "fault", ["cut=1"]), (replace(request, options={"buffer": "1"}), "opt", ["buffer=1"]),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"--{word}.*is up already"):
            loop.refuse_others(home, other, {word: value})
    with pytest.raises(UsageError, match="--dram 1M: "):  # up, without a record of its options
        loop.refuse_others(replace(home, options={}), request, asked)


def test_what_is_there_is_mounted(target: Targets, tmp_path: Path) -> None:
    if "\txfs\n" not in Path("/proc/filesystems").read_text() or not shutil.which("mkfs.xfs"):
        pytest.skip("needs xfs")
    chip, a = tmp_path / "a.img", target("A")
    flashfs("create", chip, "--size", "320M")
    assert "new xfs" in up(chip, a, "--fs", "xfs")
    assert "already up" in (said := up(chip, a))
    assert "xfs on /dev/loop" in said
    flashfs("down", a)
    assert "holds xfs, not ext4" in flashfs("up", chip, a, "--fs", "ext4", code=2).stderr
    assert mounts.at(a) is None
    assert f"{a}: xfs on" in up(chip, a)
    flashfs("down", a)


def test_down_of_one_of_two_mountpoints(chip: Path, target: Targets) -> None:
    a, b = target("A"), target("B")
    up(chip, a)
    up(chip, b)
    (a / "file").write_text("seen at both")
    assert f"stays up at {b}" in flashfs("down", a).stdout
    assert mounts.at(a) is None
    assert (b / "file").read_text() == "seen at both"
    flashfs("down", a, code=2)
    up(chip, a)
    subprocess.run(["umount", str(a)], check=True)
    subprocess.run(["umount", str(b)], check=True)
    assert "is checkpointed" in flashfs("down", a).stdout
    flashfs("down", b, code=2)


@pytest.mark.parametrize("at", [5 << 20, 63 << 20], ids=["middle", "end"])
def test_data_anywhere_on_the_disk_is_not_formatted_over(
    chip: Path, target: Targets, mountpoint: Path, at: int
) -> None:
    """However far from the front, where file systems begin."""
    flashfs("mount", chip, mountpoint)
    with (mountpoint / "disk").open("r+b", buffering=0) as disk:
        disk.seek(at)
        disk.write(b"somebody's")
    flashfs("umount", mountpoint)
    a = target("A")
    assert "data that is no file system" in flashfs("up", chip, a, code=2).stderr
    assert mounts.at(a) is None
    flashfs("mount", chip, mountpoint)
    with (mountpoint / "disk").open("rb") as disk:
        disk.seek(at)
        assert disk.read(10) == b"somebody's"
    flashfs("umount", mountpoint)


def test_two_at_once(chip: Path, target: Targets, tmp_path: Path) -> None:
    """Both succeed or one gets an error; there is one file system, made once, and nothing else is left."""
    a, b = target("A"), target("B")
    command = [sys.executable, "-m", "flashfs.cli", "up", str(chip)]
    both = [
        subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for path in (a, b)
    ]
    said = ["".join(process.communicate(timeout=TIMEOUT_S)) for process in both]
    assert any(process.returncode == 0 for process in both), said
    assert sum("new ext4" in one for one in said) == 1, said
    for path, process in zip((a, b), both, strict=True):
        if process.returncode == 0:
            assert mounts.at(path) is not None
            flashfs("down", path)
        assert mounts.at(path) is None
    assert not [known for known in up_registry.all_homes() if tmp_path in known.image.parents]


def test_down_leaves_what_somebody_else_mounted_there(chip: Path, target: Targets, tmp_path: Path) -> None:
    a, theirs = target("A"), tmp_path / "theirs.img"
    up(chip, a)
    subprocess.run(["umount", str(a)], check=True)
    with theirs.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(theirs)], check=True)
    subprocess.run(["mount", "-o", "loop", str(theirs), str(a)], check=True)
    try:
        (a / "file").write_text("theirs")
        subprocess.run(
            [sys.executable, "-m", "flashfs.cli", "down", str(a)], capture_output=True, timeout=TIMEOUT_S, check=False
        )
        assert (a / "file").read_text() == "theirs"
    finally:
        subprocess.run(["umount", str(a)], check=True)
