"""Crash states of a workload of one's own: its tape, and the states made of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import FLUSH, MIB, PAGE, READ, TRIM, WRITE, page, recorded

from flashfs import cli
from flashfs.cli import commands
from flashfs.crash import workload as own
from flashfs.crash.workload import commands as shell
from flashfs.crash.workload import mounted_image
from flashfs.crash.workload.settings import Folder, Settings
from flashfs.crash.workload.states import Place, Replay, Tape, choose, parts
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import write_log
from nandimg import Geometry, image

ROOT = Path(__file__).parents[2]


# --- the tape


def test_a_tape_has_what_changes_the_device_in_order(tmp_path: Path) -> None:
    made = write_log.Tape(tmp_path / "tape", MIB)
    made.record(WRITE, PAGE, 5, b"hello")
    made.record(READ, 0, PAGE)
    made.mark(b"one\ntwo\n")
    made.record(TRIM, 0, PAGE)
    made.record_copy(0, 8 * PAGE, PAGE)
    made.record_remap(0, 9 * PAGE, PAGE, True)
    made.record(FLUSH, 0, 0)
    figures = made.figures()
    made.close()
    found = list(write_log.read(made.path))
    assert [(one.operation, one.offset, one.length, one.source, bytes(one.data)) for one in found] == [
        ("write", PAGE, 5, 0, b"hello"),
        ("mark", 0, 3, 0, b"one"),
        ("mark", 0, 3, 0, b"two"),
        ("trim", 0, PAGE, 0, b""),
        ("copy", 8 * PAGE, PAGE, 0, b""),
        ("move", 9 * PAGE, PAGE, 0, b""),
        ("flush", 0, 0, 0, b""),
    ]
    assert figures == {"requests": 7, "dropped": 0, "bytes": made.path.stat().st_size, "failed": None}
    whole = made.path.read_bytes()
    made.path.write_bytes(whole[:-1])  # its last record is not whole
    assert [one.at for one in write_log.read(made.path)] == [one.at for one in found[:-1]]
    made.path.write_bytes(b"\xff" * 100)
    with pytest.raises(FlashfsError, match="none of a tape's"):
        list(write_log.read(made.path))


@pytest.mark.parametrize("word", [b"", b"\n", b"a\n\nb", b"x" * 5000])
def test_what_is_no_mark_is_refused(tmp_path: Path, word: bytes) -> None:
    made = write_log.Tape(tmp_path / "tape", MIB)
    with pytest.raises(OSError) as caught:
        made.mark(word)
    assert caught.value.errno == errno.EINVAL
    made.close()
    assert made.path.stat().st_size == 0


def test_a_tape_that_cannot_be_written_says_so() -> None:
    full = write_log.TapeWriter(MIB, os.open("/dev/full", os.O_WRONLY))
    assert not full.record(WRITE, 0, 5, b"hello")
    assert not full.record(FLUSH, 0, 0)
    assert (full.error_number, full.noted, full.lost, full.written) == (errno.ENOSPC, 2, 2, 0)
    with pytest.raises(OSError, match="No space left"):
        full.note_mark(b"one")


# --- states, without a mount


def pages_of(folder: Folder) -> list[int]:
    """The first byte of each of the first five pages, once the state is recovered."""
    with Device.open(folder.state) as device:
        return [device.read(n * PAGE, 1)[0] for n in range(5)]


@pytest.mark.parametrize(
    ("place", "pages", "marks"),
    [
        ("flush:1", [100, 1, 2, 0, 0], []),
        ("mark:1", [100, 1, 2, 0, 0], ["first"]),
        ("mark:2", [100, 1, 2, 0, 0], ["first", "second"]),  # page 3 was not flushed: it is lost
        ("flush:2", [100, 1, 20, 3, 0], ["first", "second"]),
        ("end", [100, 1, 20, 3, 0], ["first", "second"]),
    ],
)
@pytest.mark.parametrize("ftl", ["pagemap", "slimftl"])
def test_what_was_not_flushed_is_lost(tmp_path: Path, ftl: str, place: str, pages: list[int], marks: list[str]) -> None:
    folder, replay = recorded(tmp_path, Settings(ftl=ftl))
    assert replay.make(Place.parse(place)) == marks
    assert pages_of(folder) == pages


def test_power_loss_protection_keeps_it(tmp_path: Path) -> None:
    folder, replay = recorded(tmp_path, Settings(plp=True, options={"buffer": "4"}))
    replay.make(Place.parse("end"))
    with Device.open(folder.state, plp=True) as device:
        assert [device.read(n * PAGE, 1)[0] for n in range(5)] == [100, 1, 20, 3, 4]


def test_every_operation_leaves_old_or_new(tmp_path: Path) -> None:
    folder, replay = recorded(tmp_path, Settings())
    replay.measure()
    places = choose(replay, ["operations"], None, 1)
    first, last = replay.operations
    assert [place.n for place in places] == list(range(first, last + 1)) and len(places) >= 4
    assert choose(replay, ["operations"], None, 1) == places != choose(replay, ["operations"], None, 2)
    seen = set()
    for place in places:
        marks = replay.make(place)
        found = pages_of(folder)
        assert found[0] == 100 and found[1] in (0, 1) and found[2] in (0, 2, 20) and found[3] in (0, 3), place
        assert found[4] == 0, place
        assert not marks or found[2] != 0, place
        seen.add(tuple(found))
    assert len(seen) > 1


def test_a_workload_that_asked_for_nothing(tmp_path: Path) -> None:
    folder, replay = recorded(tmp_path, Settings())
    begin = replay.tape.records[replay.tape.begin].at
    idle = Replay(folder, Settings(), Tape(folder, (begin, begin)))
    idle.measure()
    first, last = idle.operations
    assert first > last
    assert choose(idle, ["flushes", "marks", "end", "operations"], None, 1) == [Place("end")]
    assert idle.make(Place("end")) == []
    assert pages_of(folder) == [100, 0, 0, 0, 0]  # page 1, from before, was not flushed either


def test_subsets_lose_any_part_of_what_was_not_flushed(tmp_path: Path) -> None:
    folder, replay = recorded(tmp_path, Settings())
    replay.measure()
    places = choose(replay, ["subsets"], 40, 1)
    assert len(places) == 40 and {place.n for place in places} == {1, 2, 3}
    seen: dict[int, set[tuple[int, ...]]] = {}
    for place in places:
        assert Place.parse(str(place)) == place
        assert replay.make(place) == ([] if place.n == 1 else ["first", "second"])
        seen.setdefault(place.n, set()).add(tuple(pages_of(folder)))
    assert seen[1] == {(100, a, b, 0, 0) for a in (0, 1) for b in (0, 2)}
    assert seen[2] == {(100, 1, a, b, 0) for a in (2, 20) for b in (0, 3)}
    assert seen[3] == {(100, 1, 20, 3, a) for a in (0, 4)}
    with pytest.raises(UsageError, match="has 2 of them"):
        choose(replay, ["subset:4.1"], None, 1)
    replay.settings = Settings(plp=True)
    with pytest.raises(UsageError, match="with --plp"):
        choose(replay, ["subsets"], None, 1)


def test_a_request_is_lost_by_pages() -> None:
    data = memoryview(bytes(range(200)))
    record = write_log.Taped(0, "write", 90, 200, 0, data)
    found = [(part.offset, part.length, bytes(part.data)) for part in parts(record, 100)]
    assert [(offset, length) for offset, length, _ in found] == [(90, 10), (100, 100), (200, 90)]
    assert b"".join(part for _, _, part in found) == bytes(data)
    for operation in ("trim", "zero"):
        given_back = [*parts(replace(record, operation=operation), 100)]
        assert [(part.offset, part.length) for part in given_back] == [(90, 10), (100, 100), (200, 90)]
        assert {part.operation for part in given_back} == {operation}
    for operation in ("copy", "remap", "move", "flush"):
        assert list(parts(replace(record, operation=operation), 100)) == [replace(record, operation=operation)]


def replay_of(path: Path, *requests: Callable[[write_log.Tape], object]) -> tuple[Folder, Replay]:
    """A workload of these; on `slimftl`, which remaps, and whose first pages are 100 to 104."""
    folder, settings = Folder(path), Settings(ftl="slimftl")
    image.create(folder.base, Geometry.sized(MIB, pages_per_block=16, op=1.0))
    with Device.open(folder.base, ftl="slimftl") as device:
        for n in range(5):
            device.write(n * PAGE, page(100 + n))
    made = write_log.Tape(folder.tape, MIB)
    for request in requests:
        request(made)
    made.close()
    span = (0, folder.tape.stat().st_size)
    return folder, Replay(folder, settings, Tape(folder, span))


def test_a_trim_is_lost_by_pages(tmp_path: Path) -> None:
    folder, replay = replay_of(tmp_path, lambda made: made.record(TRIM, 0, 2 * PAGE))
    seen = set()
    for seed in range(16):
        replay.make(Place("subset", 1, seed=seed))
        seen.add(tuple(pages_of(folder)[:3]))
    assert seen == {(a, b, 102) for a in (0, 100) for b in (0, 101)}


@pytest.mark.parametrize("how", ["copy", "remap", "move"])
def test_a_copy_that_is_kept_has_what_it_copied(tmp_path: Path, how: str) -> None:
    """Page 1 is written, and copied to page 3: which is old, or is what was written, and never the old page 1."""

    def take(made: write_log.Tape) -> None:
        if how == "copy":
            made.record_copy(PAGE, 3 * PAGE, PAGE)
        else:
            made.record_remap(PAGE, 3 * PAGE, PAGE, how == "move")

    folder, replay = replay_of(
        tmp_path, lambda made: made.record(WRITE, PAGE, PAGE, page(7)), take,
        lambda made: made.record(WRITE, 4 * PAGE, PAGE, page(8)),
    )  # fmt: skip
    seen = set()
    for seed in range(24):
        replay.make(Place("subset", 1, seed=seed))
        seen.add(tuple(pages_of(folder)))
    behind = 0 if how == "move" else 7
    assert seen == {
        (100, source, 102, target, last)
        for source, target in ((101, 103), (7, 103), (behind, 7)) for last in (104, 8)
    }  # fmt: skip


def test_an_operation_that_is_not_reached_is_no_cut(tmp_path: Path) -> None:
    _, replay = recorded(tmp_path, Settings())
    replay.measure()
    beyond = replay.operations[1] + 1
    with pytest.raises(FlashfsError, match=f"--at {beyond}:before: operation {beyond} was not reached.*deterministic"):
        replay.make(Place("operation", beyond, "before"))


@pytest.mark.parametrize("size", [0, 5, 3 * MIB])
def test_a_small_image_is_copied_with_its_holes(tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(size)
        for at in (MIB, 2 * MIB) if size > MIB else ():
            file.seek(at)
            file.write(page(9))
    target.write_bytes(b"what was there before")
    mounted_image.copy(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks


@pytest.mark.parametrize("error", [FlashfsError("no room"), KeyboardInterrupt()])
def test_what_was_found_before_an_error_is_reported_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    def record(folder: Folder, *_: object) -> None:
        recorded(folder.path, Settings())

    def judge(_: own.Job, folder: Folder, settings: Settings, place: Place, __: list[str]) -> tuple[str, list[str]]:
        if str(place) == "mark:2":
            raise error
        return "it is wrong", []

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(own, "check_machine", lambda settings: None)
    monkeypatch.setattr(own, "record", record)
    monkeypatch.setattr(own, "look", lambda *_: None)
    monkeypatch.setattr(own, "judge", judge)
    code = cli.run(["crash", "workload", "true", "--check", "true", "--at", "flush:1,mark:2", "--json"])
    said = capsys.readouterr()
    assert (code, said.err) == ((1, "flashfs: no room\n") if error.args else (130, "flashfs: interrupted\n"))
    (result,) = json.loads(said.out)
    assert (result["cuts"], result["failed"], result["marks"]) == (1, 1, 2)
    assert [failure["cut"] for failure in result["failures"]] == ["flush:1"]
    (folder,) = tmp_path.iterdir()
    assert (result["recording"], Folder(folder).load()[0]) == (str(folder), Settings())


def test_places(tmp_path: Path) -> None:
    _, replay = recorded(tmp_path, Settings())
    replay.measure()
    words = [str(place) for place in choose(replay, ["marks", "end", "flushes"], None, 1)]
    assert words == ["flush:1", "mark:1", "mark:2", "flush:2", "end"]
    assert [str(Place.parse(word)) for word in (*words, "7:prefix", "7")] == [*words, "7:prefix", "7:before"]
    assert len(choose(replay, ["marks", "end", "flushes", "operations"], 3, 1)) == 3
    for word in ("flush", "flush:0", "mark:x", "7:sideways", "", "sometimes"):
        with pytest.raises(UsageError, match="use "):
            Place.parse(word)
    with pytest.raises(UsageError, match="has 2 of them"):
        choose(replay, ["mark:3"], None, 1)
    with pytest.raises(UsageError, match=r"--at 9999:before: the workload's are operations \d+ to \d+"):
        choose(replay, ["9999"], None, 1)


# --- the command line, without a mount


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check", "true"], "name a COMMAND to run, or the --recording of one"),
        (["true"], "add --check COMMAND"),
        (["true", "--check", "true", "--tier", "sweep"], "--tier"),
        (["true", "--check", "true", "--fs", "vfat"], "use --mkfs COMMAND for others"),
        (["true", "--check", "true", "--at", "sometimes"], "flush:N, mark:N"),
        (["--recording", "nowhere", "--check", "true"], "no recording"),
        (["--recording", "nowhere", "--check", "true", "--size", "64M"], "--size: the recording has it already"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.run(["crash", "workload", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ([], ["run"]),
        (["--ftl", "leaftl"], ["run", "--ftl", "leaftl"]),
        (["--every", "--length", "2"], ["run", "--tier", "every", "--length", "2"]),
        (["--ftl", "dftl", "--kill", "--rounds", "2"], ["kill", "--ftl", "dftl", "--rounds", "2"]),
        (["--workload", "true", "--check", "true"], ["workload", "--workload", "true", "--check", "true"]),
        (["--check", "true", "--recording=a"], ["workload", "--check", "true", "--recording=a"]),
        (["replay", "ftl=dftl"], ["replay", "ftl=dftl"]),
        (["--help"], ["--help"]),
    ],
)
def test_options_without_a_command(words: list[str], whole: list[str]) -> None:
    assert cli.crash.whole(words) == whole


def test_a_recording_does_not_choose_what_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path)
    folder.save(Settings(ftl="somebodys.module:Ftl"), "true", (0, 0))
    assert cli.run(["crash", "workload", "--recording", str(tmp_path), "--check", "true"]) == 1
    assert "somebodys.module:Ftl, which is not registered" in capsys.readouterr().err
    assert cli.run(["crash", "workload", "--recording", str(tmp_path), "--check", "true", "--ftl", "dftl"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["recording.json"]


def test_the_page_names_each_option() -> None:
    page = (ROOT / "docs" / "crash-workload.md").read_text()
    own: Any = commands.program("crash").commands["crash"]
    params = own.commands["workload"].params
    names = [one.opts[0] for one in params if one.param_type_name == "option" and not one.hidden]
    assert len(names) == 17
    for name in (*names, "examples/spool.py", "examples/sqlite_commits.py"):
        assert name in page, name


def test_a_command_finds_what_su_leaves_out_of_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert shell.run("mkfs.ext4 -V", Path("/"), {}).code == 0
