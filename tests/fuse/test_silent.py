"""A daemon that does not answer: every command says so and ends; the other mounts are listed all the same."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import flashfs, kill, pid_of
from processes import stop

from flashfs.errors import FlashfsError
from flashfs.fuse import asking, mounts
from nandimg import image

pytestmark = pytest.mark.mount


@pytest.fixture
def stopped(chip: Path, mountpoint: Path) -> Iterator[tuple[Path, int]]:
    """A mount whose daemon was stopped, and that daemon; at the end it goes on."""
    flashfs("mount", chip, mountpoint)
    pid = pid_of(mountpoint)
    stop(pid)
    yield mountpoint, pid
    os.kill(pid, signal.SIGCONT)


def test_a_stopped_daemon_is_said_to_be_one(stopped: tuple[Path, int]) -> None:
    mountpoint, pid = stopped
    asked = (("umount",), ("smart",), ("cut",), ("top", "--once"), ("dump", "map"), ("fault",),
             ("remap", "0", "4096", "4096"))  # fmt: skip
    for words in asked:
        said = flashfs(words[0], mountpoint, *words[1:], code=1).stderr
        assert f"its daemon, process {pid}, was stopped; `kill -CONT {pid}` lets it go on" in said, words


def test_status_lists_the_others(stopped: tuple[Path, int], tmp_path: Path) -> None:
    mountpoint, pid = stopped
    rows = {row["directory"]: row for row in json.loads(flashfs("status", "--json").stdout)["mounts"]}
    assert (rows[str(mountpoint)]["state"], rows[str(mountpoint)]["pid"]) == ("does not answer", pid)
    assert str(pid) in flashfs("status").stdout


def test_it_is_unmounted_when_it_goes_on(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    pid = pid_of(mountpoint)
    stop(pid)
    try:
        flashfs("umount", mountpoint, code=1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "is checkpointed" in flashfs("umount", mountpoint).stdout


def test_a_link_to_a_mountpoint_asks_nobody(stopped: tuple[Path, int], tmp_path: Path) -> None:
    mountpoint, _ = stopped
    link = tmp_path / "link"
    link.symlink_to(mountpoint)
    assert mounts.absolute(link) == mountpoint
    assert mounts.absolute(link / "control/.././disk") == mountpoint / "disk"
    assert mounts.absolute(link / "../link/other") == mountpoint / "other"
    assert mounts.absolute(link / "..") == tmp_path


def test_an_answer_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not say whether the daemon is stopped, there is a limit."""
    read, write = os.pipe()
    try:
        with pytest.raises(asking.SilentError, match=r"has not answered for 0\.05 s"):
            asking.ask(tmp_path, str(tmp_path / "none"), lambda: os.read(read, 1), timeout_s=0.05)
    finally:
        os.write(write, b"x")
        os.close(write)
    monkeypatch.setattr(asking, "daemon_of", lambda _: 77)
    monkeypatch.setattr(asking, "stopped", lambda _: None)
    with pytest.raises(asking.SilentError, match="its daemon, process 77, is busy or stuck"):
        asking.ask(tmp_path, "", threading.Event().wait, timeout_s=0.05)
    with pytest.raises(ZeroDivisionError):
        asking.ask(tmp_path, "", lambda: 1 // 0)
    assert asking.ask(tmp_path, "", lambda: 5) == 5


def test_a_daemon_that_is_stopped_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work has no time limit, and still the wait ends."""
    looks = iter([None, None])
    monkeypatch.setattr(asking, "stopped", lambda _: next(looks, 77))
    monkeypatch.setattr(asking, "LOOK_S", 0.01)
    with pytest.raises(asking.SilentError, match="process 77, was stopped"):
        asking.ask(tmp_path, "", threading.Event().wait, timeout_s=None)


def test_nothing_in_a_mount_is_asked_for(stopped: tuple[Path, int], tmp_path: Path) -> None:
    """A command on a file of the mount reports that it is one, or that the daemon was stopped."""
    mountpoint, pid = stopped
    disk = mountpoint / "disk"
    assert mounts.absolute(disk) == disk
    for words in (("smart",), ("dump",), ("cut",), ("top", "--once"), ("remap", "0", "4096", "4096")):
        said = flashfs(words[0], disk, *words[1:], code=2).stderr
        assert f"it is in the mount at {mountpoint}: name that" in said, words
    for words in (("umount",), ("fsck",), ("create", "--size", "16M"), ("nbd",), ("clone", tmp_path / "copy")):
        said = flashfs(words[0], disk, *words[1:], code=1).stderr
        assert f"its daemon, process {pid}, was stopped" in said, words


def test_dead_is_not_silent(chip: Path, mountpoint: Path) -> None:
    """A command on a mount whose power was cut says how to go on."""
    flashfs("mount", chip, mountpoint)
    kill(mountpoint)
    for command, more in (("dump", ("map",)), ("smart", ()), ("cut", ()), ("fault", ()), ("top", ("--once",))):
        said = flashfs(command, mountpoint, *more, code=1).stderr
        assert "its daemon is gone, killed or its power cut" in said
        assert f"`flashfs mount {chip} {mountpoint}` recovers what was flushed" in said
    with pytest.raises(FlashfsError, match="its daemon is gone"):
        mounts.text(mountpoint, "config.json")
    flashfs("mount", chip, mountpoint)
    assert image.holder(chip.stat()) == pid_of(mountpoint)


@pytest.mark.parametrize("code", [errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED])
def test_a_daemon_that_is_gone_is_said_to_be(tmp_path: Path, code: int) -> None:
    """Over io_uring a request may have been on its way when the daemon was killed."""

    def gone() -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(asking.DeadError, match="its daemon is gone, killed or its power cut"):
        asking.ask(tmp_path, str(tmp_path / "none"), gone)


def test_of_several_processes_that_have_an_image_the_one_that_was_asked_is_named(chip: Path) -> None:
    """Two servers may have it read-only; the kernel names the first that locked it."""
    with subprocess.Popen(["sleep", "60"]) as server:
        try:
            assert asking.ask(chip, str(chip), lambda: 7, pid=server.pid) == 7
            stop(server.pid)
            with pytest.raises(asking.SilentError, match=f"process {server.pid}, was stopped"):
                asking.ask(chip, str(chip), lambda: 7, pid=server.pid)
        finally:
            server.kill()
