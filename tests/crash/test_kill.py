"""The kill tier, a few rounds of it; and what its judge says of files that are not as acknowledged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flashfs import cli
from flashfs.crash import kill, writer
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.fuse import mounts

ROUNDS = 3


@pytest.fixture
def need_kill() -> None:
    """Skips by name where the tier cannot run."""
    try:
        kill.check_machine("ext4")
    except FlashfsError as error:
        pytest.skip(str(error))
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True, env=mounts.environment())
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")


@pytest.mark.mount
@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_rounds(need_kill: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ftl: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    heard: list[int] = []
    result = kill.run(ftl, 1, ROUNDS, progress=heard.append)
    assert not result.failures, str(result.failures[0])
    assert (result.cuts, heard) == (ROUNDS, list(range(1, ROUNDS + 1)))
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.mount
def test_a_loss_is_found_told_and_cleaned_up(
    need_kill: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that takes back all that was written since it was formatted: planted between kill and recovery."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    check = kill.Bench.check

    def planted(bench: kill.Bench) -> None:
        bench.image.unlink()
        shutil.copyfile(bench.image.with_name("first"), bench.image)
        check(bench)

    def first(bench: kill.Bench) -> None:
        begin(bench)
        daemon_is_quiet = subprocess.run(["sync", "-f", str(bench.root)], check=True)
        assert daemon_is_quiet.returncode == 0
        shutil.copyfile(bench.image, bench.image.with_name("first"))

    begin = kill.Bench.begin
    monkeypatch.setattr(kill.Bench, "begin", first)
    monkeypatch.setattr(kill.Bench, "check", planted)
    assert cli.run(["crash", "--kill", "--ftl", "pagemap", "--rounds", "2", "--seed", "4"]) == 1
    out = capsys.readouterr().out
    assert "flashfs crash --kill --fs ext4 --ftl pagemap --seed 4 --rounds 2" in out
    assert "round 2: " in out
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    (kept,) = tmp_path.iterdir()
    assert (kept / "crashed.nand").exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="nonesuch"):
        kill.check_machine("nonesuch")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(shutil, "which", lambda program, path: None if program == "e2fsck" else program)
    with pytest.raises(FlashfsError, match="e2fsck: install e2fsprogs"):
        kill.check_machine("ext4")
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/dev/fuse")
    with pytest.raises(FlashfsError, match="/dev/fuse"):
        kill.check_machine("ext4")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FlashfsError, match="root"):
        kill.check_machine("ext4")


class Judged(kill.Bench):
    """The judge on a plain folder, without any device."""

    def __init__(self, folder: Path) -> None:
        self.root, self.log = folder / "files", folder / "log"
        self.root.mkdir()
        self.seed = "1"
        self.state = kill.State(0, {})

    def put(self, name: str, generation: int, size: int = 9000) -> list[object]:
        data = writer.content(self.seed, generation, size)
        (self.root / name).write_bytes(data)
        return [generation, size, hashlib.sha256(data).hexdigest()]

    def say(self, *lines: dict[str, object]) -> None:
        self.log.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def test_acknowledged_files_must_be_whole(judged: Judged) -> None:
    record = judged.put("f1", 1)
    done = {"done": 1, "name": "f1", "record": record, "gone": None}
    judged.say({"kind": "create", "name": "f1", "meant": record}, done)
    judged.judge()
    assert judged.state.files == {"f1": record}
    data = bytearray((judged.root / "f1").read_bytes())
    data[5000] ^= 1
    (judged.root / "f1").write_bytes(data)
    with pytest.raises(kill.Lost, match=r"f1 .* 1 blocks differ from \[1\]"):
        judged.judge()
    (judged.root / "f1").unlink()
    with pytest.raises(kill.Lost, match=r"f1 .*No such file"):
        judged.judge()


def test_what_was_deleted_stays_so(judged: Judged) -> None:
    judged.put("f1", 1)
    judged.put("noise1", 2)
    with pytest.raises(kill.Lost, match="f1 is back"):
        judged.judge()


@pytest.mark.parametrize("found", [1, 2, None])
def test_a_replacement_under_way_is_old_or_new(judged: Judged, found: int | None) -> None:
    new = judged.put("f1", 2)
    old = judged.put("f1", 1)
    judged.state.files = {"f1": old}
    judged.say({"kind": "replace", "name": "f1", "meant": new})
    if found is None:
        judged.put("f1", 3)
        with pytest.raises(kill.Lost, match="neither old nor new"):
            judged.judge()
    else:
        judged.put("f1", found)
        judged.judge()
        assert judged.state.files["f1"][0] == found


def test_an_overwrite_under_way_is_old_or_new_block_by_block(judged: Judged) -> None:
    new = judged.put("f1", 2)
    second = (judged.root / "f1").read_bytes()
    old = judged.put("f1", 1)
    first = (judged.root / "f1").read_bytes()
    lines = {"kind": "overwrite", "name": "f1", "meant": new}
    for mixed, well in ((first[:4096] + second[4096:], True), (first[:4000] + second[4000:], False)):
        judged.state.files = {"f1": old}
        judged.say(lines)
        (judged.root / "f1").write_bytes(mixed)
        if well:
            judged.judge()
            assert judged.state.files == {}  # made whole again: it is taken away
        else:
            with pytest.raises(kill.Lost, match="block 0 is neither"):
                judged.judge()


@pytest.mark.parametrize(("there", "well"), [("f1", True), ("f2", True), ("both", False), ("none", False)])
def test_a_renaming_under_way_is_done_or_not(judged: Judged, there: str, well: bool) -> None:
    record = judged.put("f1", 1)
    judged.state.files = {"f1": record}
    judged.say({"kind": "rename", "name": "f1", "to": "f2"})
    if there in ("f2", "both"):
        judged.put("f2", 1)
    if there in ("f2", "none"):
        (judged.root / "f1").unlink()
    if well:
        judged.judge()
        assert judged.state.files == {there: record}
    else:
        with pytest.raises(kill.Lost, match="being renamed"):
            judged.judge()


@pytest.mark.parametrize("exists", [True, False])
def test_a_removal_under_way_is_done_or_not(judged: Judged, exists: bool) -> None:
    record = judged.put("f1", 1)
    judged.state.files = {"f1": record}
    judged.say({"kind": "delete", "name": "f1"})
    if not exists:
        (judged.root / "f1").unlink()
    judged.judge()
    assert ("f1" in judged.state.files) is exists


def test_the_writer_acknowledges_what_is_there(tmp_path: Path) -> None:
    """On a plain folder, ended by a signal: its log agrees with what it left."""
    judged = Judged(tmp_path)
    (tmp_path / "state").write_text('{"generation": 0, "files": {}}')
    command = [sys.executable, writer.__file__, str(judged.root), str(judged.log), "1", str(tmp_path / "state")]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(command, timeout=2)
    judged.judge()
    assert judged.state.generation > 5
    assert judged.state.files


def test_the_writer_says_what_is_no_dead_device(tmp_path: Path) -> None:
    (tmp_path / "state").write_text('{"generation": 0, "files": {}}')
    command = [
        sys.executable,
        writer.__file__,
        str(tmp_path / "no"),
        str(tmp_path / "log"),
        "1",
        str(tmp_path / "state"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert "No such file" in done.stderr
