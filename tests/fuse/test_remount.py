"""mount(8)'s remount, as `systemctl reload` of a mount in /etc/fstab asks for it: nothing can change."""

from __future__ import annotations

from pathlib import Path

import pytest
from mounting import flashfs

from flashfs import cli
from flashfs.cli import mount_helper

pytestmark = pytest.mark.mount


def remounted(chip: Path, mountpoint: Path, options: str) -> int:
    """mount(8)'s exit code."""
    return mount_helper.mount([str(chip), str(mountpoint), "-o", options], cli.run)


def test_remount(chip: Path, mountpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remounted(chip, mountpoint, "remount,rw") == 1
    assert "nothing is mounted there" in capsys.readouterr().err
    flashfs("mount", chip, mountpoint, "--ftl", "dftl", "--dram", "64M", "--opt", "gc_reserve=3", "--fault", "later")
    for options in ("remount,rw", "rw,noatime,remount,ftl=dftl,dram=64M,opt=gc_reserve=3,server=auto,sync=flush"):
        assert remounted(chip, mountpoint, options) == 0
    assert capsys.readouterr() == ("", "")
    for option, word in (
        ("dram=32M", "--dram 32M"), ("realtime", "--realtime"), ("allow_other", "--allow-other"),
        ("ftl=sftl", "--ftl sftl"), ("opt=gc_reserve=4", "--opt gc_reserve=4"), ("fault=later", "--fault later"),
        ("server=pyfuse3", "--server pyfuse3"),
    ):  # fmt: skip
        assert remounted(chip, mountpoint, f"remount,{option}") == 1
        err = capsys.readouterr().err
        assert f"flashfs: {word}: {chip} was mounted otherwise, and a remount cannot change that" in err
        assert f"`flashfs umount {mountpoint}`" in err
    flashfs("create", tmp_path / "other", "--size", "16M")
    assert remounted(tmp_path / "other", mountpoint, "remount") == 1
    assert f"{chip} is mounted there, and not {tmp_path / 'other'}" in capsys.readouterr().err
    flashfs("umount", mountpoint)
