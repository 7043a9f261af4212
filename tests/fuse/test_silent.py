"""A daemon that does not answer: every command says so and ends; the other mounts are listed all the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import flashfs, kill, pid_of

from flashfs.errors import FlashfsError
from flashfs.fuse import asking, mounts
from nandimg import image

pytestmark = pytest.mark.mount


@pytest.fixture
def stopped(chip: Path, mountpoint: Path) -> Iterator[tuple[Path, int]]:
    """A mount whose daemon was stopped, and that daemon; at the end it goes on."""
    flashfs("mount", chip, mountpoint)
    pid = pid_of(mountpoint)
    os.kill(pid, signal.SIGSTOP)
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
    assert (rows[str(mountpoint)]["state"], rows[str(mountpoint)]["pid"]) == ("silent", pid)
    assert str(pid) in flashfs("status").stdout


def test_it_is_unmounted_when_it_goes_on(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    pid = pid_of(mountpoint)
    os.kill(pid, signal.SIGSTOP)
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


def test_an_answer_that_does_not_come(tmp_path: Path) -> None:
    """Where the kernel does not say whether the daemon is stopped, there is a limit."""
    read, write = os.pipe()
    try:
        with pytest.raises(asking.SilentError, match=r"has not answered for 0\.05 s"):
            asking.ask(tmp_path, str(tmp_path / "none"), lambda: os.read(read, 1), timeout_s=0.05)
    finally:
        os.write(write, b"x")
        os.close(write)
    with pytest.raises(ZeroDivisionError):
        asking.ask(tmp_path, "", lambda: 1 // 0)
    assert asking.ask(tmp_path, "", lambda: 5) == 5


def test_dead_is_not_silent(chip: Path, mountpoint: Path) -> None:
    """Whoever asks a mount whose power was cut hears how it goes on."""
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
