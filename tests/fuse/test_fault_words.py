"""The words of ``--fault``, and a daemon whose power goes at a chosen operation."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from flashfs import cli
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.fuse import mounts
from flashfs.fuse.fault_words import FaultPlan, parse
from nandimg import PRESETS, Cut, PowerCut, image
from nandimg.faults import Fault


def test_words() -> None:
    assert parse([]) == FaultPlan()
    assert parse(["cut=7"]) == FaultPlan(Cut(7, "before"))
    plan = parse(["fail=3", "cut=1234:prefix", "flip=11:4"])
    assert plan == FaultPlan(Cut(1234, "prefix"), (Fault("fail", 3), Fault("flip", 11, bits=4)))


@pytest.mark.parametrize(
    "words",
    [["cut=0"], ["cut=x"], ["cut="], ["cut=3:sideways"], ["fail="], ["fail=-2"], ["boom=1"], ["cut=1", "cut=2"]],
)
def test_words_that_do_not_fit_are_named(words: list[str]) -> None:
    with pytest.raises(UsageError, match=f"--fault {words[-1]}: "):
        parse(words)
    with pytest.raises(UsageError, match="--fault kaboom: use one of cut=N, later, fail=N, silent=N"):
        parse(["kaboom"])


def test_the_cut_tells_before_anything_else(tmp_path: Path) -> None:
    """The hook sees the operation once; the engine only sees that the power is gone."""
    path = tmp_path / "chip.nand"
    image.create(path, PRESETS["small-64m"].geometry)
    Device.open(path).close()
    heard: list[tuple[int, str]] = []
    front = parse(["cut=60:prefix"]).front(lambda operation, shape: heard.append((operation, shape)))
    device = Device.open(path, front=front)
    with pytest.raises(PowerCut):
        for page in range(200):
            device.write(page * 4096, b"x" * 4096)
            device.flush()
    with pytest.raises(PowerCut):
        device.flush()
    assert heard == [(60, "prefix")]
    assert device.stats()["operations"] == 60
    device.close(clean=False)
    assert Device.open(path).problems() == []


@pytest.mark.mount
def test_a_mount_whose_power_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse, which this machine does not let us open")
    path, mountpoint = tmp_path / "chip.nand", tmp_path / "mnt"
    mountpoint.mkdir()
    image.create(path, PRESETS["small-64m"].geometry)
    try:
        assert cli.run(["mount", str(path), str(mountpoint), "--fault", "cut=2:after"]) == 1
        assert "power cut at flash operation 2 (after)" in capsys.readouterr().err
        assert cli.run(["mount", str(path), str(mountpoint), "--fault", "cut=90"]) == 0
        disk = os.open(mountpoint / "disk", os.O_RDWR)
        done = 0
        with pytest.raises(OSError):
            for page in range(200):
                os.pwrite(disk, bytes([page]) * 4096, page * 4096)
                os.fsync(disk)
                done = page + 1
        with suppress(OSError):  # what is closed is a corpse
            os.close(disk)
        assert 20 < done < 90
        assert cli.run(["mount", str(path), str(mountpoint)]) == 0
        with (mountpoint / "disk").open("rb", buffering=0) as found:
            assert all(found.read(4096) == bytes([page]) * 4096 for page in range(done))
    finally:
        if mounts.is_corpse(mountpoint):
            mounts.clear_corpse(mountpoint)
        elif mounts.at(mountpoint):
            cli.run(["umount", str(mountpoint)])
    assert mounts.at(mountpoint) is None
