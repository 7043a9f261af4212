"""What the judge of the kill tier says of files that are not as acknowledged; on a plain folder, without any device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from killed import killed_after

from flashfs.crash.kill.daemon_lives import Lost
from flashfs.crash.kill.files import Files
from flashfs.crash.kill.writers import files as writer


class Judged(Files):
    def __init__(self, folder: Path) -> None:
        root = folder / "files"
        root.mkdir()
        super().__init__(root, folder, "1", lambda: 0)

    def put(self, name: str, generation: int, size: int = 9000) -> list[int]:
        (self.root / name).write_bytes(writer.content(self.seed, generation, size))
        return [generation, size]

    def say(self, *lines: dict[str, object]) -> None:
        self.log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def settle(self) -> dict[str, list[int]]:
        """From the log to what is there for the next round."""
        self.read_log()
        self.judge()
        self.judge()  # the daemon may have died under the first: the second must say the same
        self.settled()
        return self.files


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def test_acknowledged_files_must_be_whole(judged: Judged) -> None:
    record = judged.put("f1", 1)
    done = {"done": 1, "name": "f1", "record": record, "gone": None, "up": True}
    judged.say({"kind": "create", "name": "f1", "meant": record}, done)
    assert judged.settle() == {"f1": record}
    data = bytearray((judged.root / "f1").read_bytes())
    data[5000] ^= 1
    (judged.root / "f1").write_bytes(data)
    with pytest.raises(Lost, match=r"f1 .* 1 blocks differ from \[1\]"):
        judged.judge()
    (judged.root / "f1").unlink()
    with pytest.raises(Lost, match=r"f1 .*No such file"):
        judged.judge()


@pytest.mark.parametrize("up", [True, False])
def test_an_acknowledgement_of_a_file_system_that_was_gone_is_none(judged: Judged, up: bool) -> None:
    """A renaming that was undone is lost, unless xfs had been shut down when it said that all was well."""
    record = judged.put("f1", 1)
    judged.files = {"f1": record}
    done = {"done": 2, "name": "f2", "record": record, "gone": "f1", "up": up}
    judged.say({"kind": "rename", "name": "f1", "to": "f2"}, done, *[{"kind": "delete", "name": "f1"}] * (not up))
    if up:
        with pytest.raises(Lost, match=r"f2 .*No such file"):
            judged.settle()
        return
    assert judged.settle() == {"f1": record}
    assert judged.generation == 3
    (judged.root / "f1").rename(judged.root / "f2")
    judged.files = {"f1": record}
    assert judged.settle() == {"f2": record}


def test_what_was_deleted_stays_so(judged: Judged) -> None:
    judged.put("f1", 1)
    judged.put("noise1", 2)
    with pytest.raises(Lost, match="f1 is back"):
        judged.judge()


@pytest.mark.parametrize("found", [1, 2, None])
def test_a_replacement_under_way_is_old_or_new(judged: Judged, found: int | None) -> None:
    new = judged.put("f1", 2)
    judged.files = {"f1": judged.put("f1", 1)}
    judged.say({"kind": "replace", "name": "f1", "meant": new})
    if found is None:
        judged.put("f1", 3)
        with pytest.raises(Lost, match="neither old nor new"):
            judged.settle()
    else:
        judged.put("f1", found)
        assert judged.settle()["f1"][0] == found


def test_an_overwrite_under_way_is_old_or_new_block_by_block(judged: Judged) -> None:
    new = judged.put("f1", 2)
    second = (judged.root / "f1").read_bytes()
    old = judged.put("f1", 1)
    first = (judged.root / "f1").read_bytes()
    judged.say({"kind": "overwrite", "name": "f1", "meant": new})
    judged.files = {"f1": old}
    (judged.root / "f1").write_bytes(first[:4096] + second[4096:])
    assert judged.settle() == {}  # made whole again: it is taken away
    judged.files = {"f1": old}
    (judged.root / "f1").write_bytes(first[:4000] + second[4000:])
    with pytest.raises(Lost, match="block 0 is neither"):
        judged.settle()
    (judged.root / "f1").write_bytes(first[:8000])
    with pytest.raises(Lost, match="has 8000 bytes, and 9000 were meant"):
        judged.settle()
    (judged.root / "f1").unlink()
    with pytest.raises(Lost, match="overwrite was under way"):
        judged.settle()


@pytest.mark.parametrize(("there", "well"), [("f1", True), ("f2", True), ("both", False), ("none", False)])
def test_a_renaming_under_way_is_done_or_not(judged: Judged, there: str, well: bool) -> None:
    record = judged.put("f1", 1)
    judged.files = {"f1": record}
    judged.say({"kind": "rename", "name": "f1", "to": "f2"})
    if there in ("f2", "both"):
        judged.put("f2", 1)
    if there in ("f2", "none"):
        (judged.root / "f1").unlink()
    if well:
        assert judged.settle() == {there: record}
    else:
        with pytest.raises(Lost, match="being renamed"):
            judged.settle()


@pytest.mark.parametrize("exists", [True, False])
def test_a_removal_under_way_is_done_or_not(judged: Judged, exists: bool) -> None:
    judged.files = {"f1": judged.put("f1", 1)}
    judged.say({"kind": "delete", "name": "f1"})
    if not exists:
        (judged.root / "f1").unlink()
    assert ("f1" in judged.settle()) is exists


def test_the_writer_acknowledges_what_is_there(judged: Judged) -> None:
    """Ended by a signal: its log agrees with what it left."""
    killed_after(judged, 7)
    assert judged.settle()
    assert judged.generation > 5


def test_the_writer_says_what_is_no_dead_device(tmp_path: Path) -> None:
    (tmp_path / "state").write_text('{"generation": 0, "files": {}}')
    arguments = [str(tmp_path / "no"), str(tmp_path / "log"), "1", str(tmp_path / "state")]
    done = subprocess.run([sys.executable, writer.__file__, *arguments], capture_output=True, text=True)
    assert done.returncode == 3
    assert "No such file" in done.stderr
