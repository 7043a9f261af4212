"""``flashfs status``: what is up, what is dead, and nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mounting import flashfs, kill, pid_of

from flashfs.fuse import loop, mounts, nbd_servers, status, up_registry, users
from nandimg import image


def of(chip: Path) -> list[dict[str, Any]]:
    """The lines about this image; other tests' mounts may be there too."""
    found = json.loads(flashfs("status", "--json").stdout)["mounts"]
    return [one for one in found if one["image"] == str(chip)]


def test_nothing_is_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from flashfs import cli

    monkeypatch.setattr(mounts, "table", list)
    monkeypatch.setattr(nbd_servers, "servers", list)
    monkeypatch.setattr(users, "lockers", list)
    assert cli.run(["status"]) == 0
    assert capsys.readouterr().out == "nothing is mounted, and `flashfs nbd` serves nothing\n"
    assert cli.run(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mounts": [], "nbd": []}


@pytest.mark.mount
def test_a_mount_and_its_corpse(chip: Path, mountpoint: Path) -> None:
    assert of(chip) == []
    flashfs("mount", chip, mountpoint, "--ftl", "slimftl")
    pid = pid_of(mountpoint)
    line = {
        "image": str(chip), "ftl": "slimftl", "pid": pid, "state": "up", "directory": str(mountpoint),
        "file_system": None, "mountpoints": [], "loops": [], "held_by": [],
    }  # fmt: skip
    assert of(chip) == [line]
    (shown,) = [row for row in flashfs("status").stdout.splitlines() if str(chip) in row]
    assert f" {pid} " in shown
    kill(mountpoint)
    assert of(chip) == [{**line, "ftl": None, "pid": None, "state": "dead"}]


@pytest.mark.mount
def test_an_image_that_is_up_twice(chip: Path, need_loop: None, tmp_path: Path) -> None:
    home, places = up_registry.RUN / str(image.inspect(chip).uuid), [tmp_path / "a", tmp_path / "b"]
    try:
        for place in places:
            flashfs("up", chip, place)
        (line,) = of(chip)
        assert (line["directory"], line["state"], line["file_system"]) == (str(home), "up", "ext4")
        assert line["mountpoints"] == [str(place) for place in places]
        assert line["loops"] == [str(one) for one in loop.loops_under(places[0])]
    finally:
        for place in places:
            if mounts.at(place) is not None:
                flashfs("down", place)
    assert of(chip) == []


@pytest.mark.mount
def test_what_another_user_may_see(chip: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flashfs("mount", chip, mountpoint)

    def refused(*_: object) -> str:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert status._asked(mountpoint, str(chip)) == ("another user's", {})
