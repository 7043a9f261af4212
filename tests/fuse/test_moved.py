"""A mount that is not where it was made: its folder was renamed, it was moved, or its daemon is in another pid
namespace. And two mounts that want the same place."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import TIMEOUT_S, flashfs, pid_of, refused, take_away

from flashfs import cli, inspect
from flashfs.cli import mount_helper
from flashfs.device import Device
from flashfs.fuse import SERVERS, asking, loop, mounts
from flashfs.poll import readable

pytestmark = pytest.mark.mount
DATA = b"kept" * 1024


@pytest.fixture
def places(need_fuse: None, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two folders to mount in, each in a folder of its own; whatever is mounted there is taken away."""
    found = (tmp_path / "a" / "mnt", tmp_path / "b" / "mnt")
    found[0].mkdir(parents=True)
    yield found
    for place in found:
        take_away(place)


def put(place: Path) -> None:
    with (place / "disk").open("r+b") as disk:
        disk.write(DATA)


def ended(pid: int) -> None:
    """Wait until a process is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert readable(descriptor, timeout_s=TIMEOUT_S)
    os.close(descriptor)


@pytest.mark.parametrize("server", list(SERVERS))
def test_a_disk_below_a_loop_device_is_not_emptied(
    chip: Path, places: tuple[Path, Path], need_loop: None, server: str
) -> None:
    first, second = places
    flashfs("mount", chip, first, "--server", server)
    put(first)
    device = loop.attach(first / "disk")[0]
    try:
        first.parent.rename(second.parent)
        assert refused(lambda: os.truncate(second / "disk", 0)) == errno.EBUSY
        assert (second / "disk").read_bytes()[: len(DATA)] == DATA
    finally:
        mounts.detach(device)
    os.truncate(second / "disk", 0)
    flashfs("umount", second)


@pytest.mark.parametrize("server", list(SERVERS))
def test_sigterm_leaves_no_mount(chip: Path, places: tuple[Path, Path], server: str) -> None:
    first, second = places
    flashfs("mount", chip, first, "--server", server)
    first.parent.rename(second.parent)
    pid = pid_of(second)
    os.kill(pid, signal.SIGTERM)
    ended(pid)
    assert mounts.at(second) is None
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean


def test_a_daemon_in_another_pid_namespace(chip: Path, places: tuple[Path, Path]) -> None:
    """It has another pid there than here."""
    place = places[0]
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, for a pid namespace")
    command = [sys.executable, "-m", "flashfs.cli", "mount", str(chip), str(place), "--foreground"]
    # the first process of a namespace ends the others with it, so it is a shell that waits
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "sh", "-c", '"$@" & wait', "sh", *command], stdout=subprocess.DEVNULL
    ) as outer:
        try:
            end = time.monotonic() + TIMEOUT_S
            while mounts.at(place) is None:
                assert outer.poll() is None and time.monotonic() < end
                time.sleep(0.02)
            says = pid_of(place)
            seen = asking.as_seen_here(says, str(chip))
            assert seen != says and b"mount" in Path("/proc", str(seen), "cmdline").read_bytes().split(b"\0")
            put(place)
            assert "is checkpointed" in flashfs("umount", place).stdout
            ended(seen)
        finally:
            take_away(place)
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.read(0, len(DATA)) == DATA


def test_two_that_want_one_place(chip: Path, places: tuple[Path, Path], tmp_path: Path) -> None:
    """One of them is mounted, the other refused, whichever is first."""
    place, other = places[0], tmp_path / "other.nand"
    flashfs("create", other, "--preset", "small-64m")
    for _ in range(3):
        both = [
            subprocess.Popen(
                [sys.executable, "-m", "flashfs.cli", "mount", str(image), str(place)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for image in (chip, other)
        ]  # fmt: skip
        said = [one.communicate(timeout=TIMEOUT_S)[1] for one in both]
        assert sorted(one.returncode for one in both) == [0, 1], said
        assert "is already mounted" in "".join(said)
        assert len([one for one in mounts.table() if one.mountpoint == place]) == 1
        flashfs("umount", place)
    assert inspect.problems(chip) == inspect.problems(other) == []


def test_umount_helper_detaches_what_is_busy(
    chip: Path, places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`umount -l`: at once, and the checkpoint comes with the end of the last user."""
    place = places[0]
    flashfs("mount", chip, place)
    pid = pid_of(place)
    with (place / "disk").open("r+b", buffering=0) as disk:
        assert mount_helper.unmount([str(place), "-l"], cli.run) == 0
        assert mounts.at(place) is None
        disk.write(DATA)
    ended(pid)
    assert capsys.readouterr().err == ""
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.read(0, len(DATA)) == DATA


def test_an_atomic_remap_that_cannot_be_is_no_failure_of_the_hosts_disk(
    chip: Path, places: tuple[Path, Path], tmp_path: Path
) -> None:
    place, log = places[0], tmp_path / "log"
    flashfs("mount", chip, place, "--ftl", "remapssd", "--opt", "atomic=command", "--log", log)
    assert "the log of the mount says why" in flashfs("remap", place, "1M", "0", "8k", code=1).stderr
    assert "a remap that is atomic: LPA 0 holds nothing" in log.read_text()
    assert json.loads((place / "smart.json").read_text())["host_disk"] is None
    flashfs("smart", place)
    flashfs("umount", place)
