"""What `mount -v` and the help of the commands that unmount say, without a mount."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

import nandimg
from flashfs import cli
from flashfs.cli.mount import with_sum
from flashfs.device import Device
from nandimg import PRESETS


def test_the_steps_of_a_recovery_have_a_sum_and_the_commit_takes_time(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS["tiny-24d"].geometry)
    device = Device.open(path)
    device.write(0, b"a" * 4096)
    device.flush()
    device.close(clean=False)
    with Device.open(path) as device:
        steps = [asdict(step) for step in device.recovery.steps]
    *each, total = with_sum(steps)
    assert total["name"] == "all"
    for column in ("spare_reads", "reads", "programs", "virtual_us"):
        assert total[column] == pytest.approx(sum(step[column] for step in each)), column
    commit = each[-1]
    assert commit["name"] == "commit"
    assert commit["programs"] and commit["virtual_us"] > 0


@pytest.mark.parametrize(("command", "says"), [("umount", "mounted"), ("down", "file system")])
def test_what_is_unmounted_is_no_empty_directory(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "empty directory" not in text.lower()
    assert says in text
