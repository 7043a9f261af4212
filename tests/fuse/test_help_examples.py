"""The examples in the help of commands that need a mount, as they are typed. Those of the others: tests/cli."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer
from mounting import flashfs

from flashfs.cli import complete
from flashfs.cli.examples import EXAMPLES
from flashfs.fuse import mounts


def words(line: str) -> list[str]:
    """Of an example, without `flashfs` and without the comment."""
    return shlex.split(line, comments=True)[1:]


@pytest.mark.mount
def test_examples_of_a_mount(mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last way to mount has a place for faults; the last of them is a cut."""
    monkeypatch.chdir(mountpoint.parent)
    flashfs("create", "ssd.img", "--size", "64M")
    image = mountpoint.parent / "ssd.img"
    for line in EXAMPLES["mount"][1:]:
        assert image.exists() and mounts.at(mountpoint) is None
        flashfs(*words(line))
        for umount in EXAMPLES["umount"] if line != EXAMPLES["mount"][-1] else ():
            flashfs(*words(umount))
    assert "vbt" in complete.views(cast(typer.Context, SimpleNamespace(params={"image": Path("mnt")})), "")
    for name in ("fault", "status", "top", "smart"):
        for line in EXAMPLES[name]:
            if "ssd.img" not in line:  # that one is for an image that is not mounted
                flashfs(*words(line))
    for line in EXAMPLES["cut"][::-1]:
        flashfs(*words(line))
    flashfs("umount", "mnt")  # the power was cut, as it was asked for
    for line in EXAMPLES["smart"]:
        if "ssd.img" in line:
            flashfs(*words(line))
    flashfs(*words(EXAMPLES["mount"][0]))
    assert (mountpoint / "disk").exists()
    flashfs("umount", "mnt")
