"""Crash states of a workload of one's own: its tape, the states made of it, and the whole way round on ext4."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from flashfs import cli
from flashfs.crash import workload as own
from flashfs.crash.workload import stand
from flashfs.crash.workload.settings import Folder, Settings
from flashfs.crash.workload.states import Place, Replay, Tape, choose, parts
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import SERVERS, daemon, file_systems, loop, mounts, tape
from flashfs.replay._record import OPERATIONS
from nandimg import Geometry, image

ROOT = Path(__file__).parents[2]
PAGE = 4096
MIB = 1 << 20
READ, WRITE, TRIM, ZERO, FLUSH = range(5)
assert OPERATIONS[WRITE] == "write" and OPERATIONS[FLUSH] == "flush"


# --- the tape


def test_a_tape_has_what_changes_the_device_in_order(tmp_path: Path) -> None:
    made = tape.Tape(tmp_path / "tape", MIB)
    made.record(WRITE, PAGE, 5, b"hello")
    made.record(READ, 0, PAGE)
    made.mark(b"one\ntwo\n")
    made.record(TRIM, 0, PAGE)
    made.record_copy(0, 8 * PAGE, PAGE)
    made.record_remap(0, 9 * PAGE, PAGE, True)
    made.record(FLUSH, 0, 0)
    figures = made.figures()
    made.close()
    found = list(tape.read(made.path))
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
    assert [one.at for one in tape.read(made.path)] == [one.at for one in found[:-1]]
    made.path.write_bytes(b"\xff" * 100)
    with pytest.raises(FlashfsError, match="none of a tape's"):
        list(tape.read(made.path))


@pytest.mark.parametrize("word", [b"", b"\n", b"a\n\nb", b"x" * 5000])
def test_what_is_no_mark_is_refused(tmp_path: Path, word: bytes) -> None:
    made = tape.Tape(tmp_path / "tape", MIB)
    with pytest.raises(OSError) as caught:
        made.mark(word)
    assert caught.value.errno == errno.EINVAL
    made.close()
    assert made.path.stat().st_size == 0


def test_a_tape_that_cannot_be_written_says_so() -> None:
    full = tape.TapeWriter(MIB, os.open("/dev/full", os.O_WRONLY))
    assert not full.record(WRITE, 0, 5, b"hello")
    assert not full.record(FLUSH, 0, 0)
    assert (full.error_number, full.noted, full.lost, full.written) == (errno.ENOSPC, 2, 2, 0)
    with pytest.raises(OSError, match="No space left"):
        full.note_mark(b"one")


# --- states, without a mount


def page(n: int) -> bytes:
    return bytes([n]) * PAGE


def recorded(path: Path, settings: Settings) -> tuple[Folder, Replay]:
    """A tape: page 1; then, as the workload: page 2, flush, mark, page 3, mark, page 2 anew, flush, page 4."""
    folder = Folder(path)
    nvram = 64 << 10 if settings.plp else 0
    image.create(folder.base, Geometry.sized(MIB, pages_per_block=16, op=1.0, nvram_bytes=nvram))
    with Device.open(folder.base, ftl=settings.ftl, options=settings.options, plp=settings.plp) as device:
        device.write(0, page(100))
    made = tape.Tape(folder.tape, MIB)
    made.record(WRITE, PAGE, PAGE, page(1))
    begin = folder.tape.stat().st_size
    made.record(WRITE, 2 * PAGE, PAGE, page(2))
    made.record(FLUSH, 0, 0)
    made.mark(b"first")
    made.record(WRITE, 3 * PAGE, PAGE, page(3))
    made.mark(b"second")
    made.record(WRITE, 2 * PAGE, PAGE, page(20))
    made.record(FLUSH, 0, 0)
    made.record(WRITE, 4 * PAGE, PAGE, page(4))
    span = (begin, folder.tape.stat().st_size)
    made.record(FLUSH, 0, 0)  # behind the workload: not its own
    made.close()
    folder.save(settings, "none", span)
    return folder, Replay(folder, settings, Tape(folder, span))


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
    record = tape.Taped(0, "write", 90, 200, 0, data)
    found = [(part.offset, part.length, bytes(part.data)) for part in parts(record, 100)]
    assert [(offset, length) for offset, length, _ in found] == [(90, 10), (100, 100), (200, 90)]
    assert b"".join(part for _, _, part in found) == bytes(data)
    for operation in ("trim", "zero"):
        given_back = [*parts(replace(record, operation=operation), 100)]
        assert [(part.offset, part.length) for part in given_back] == [(90, 10), (100, 100), (200, 90)]
        assert {part.operation for part in given_back} == {operation}
    for operation in ("copy", "remap", "move", "flush"):
        assert list(parts(replace(record, operation=operation), 100)) == [replace(record, operation=operation)]


def replay_of(path: Path, *requests: Callable[[tape.Tape], object]) -> tuple[Folder, Replay]:
    """A workload of these; on `slimftl`, which remaps, and whose first pages are 100 to 104."""
    folder, settings = Folder(path), Settings(ftl="slimftl")
    image.create(folder.base, Geometry.sized(MIB, pages_per_block=16, op=1.0))
    with Device.open(folder.base, ftl="slimftl") as device:
        for n in range(5):
            device.write(n * PAGE, page(100 + n))
    made = tape.Tape(folder.tape, MIB)
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

    def take(made: tape.Tape) -> None:
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
    stand.copy(source, target)
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
    code = cli.run(["crash", "--workload", "true", "--check", "true", "--at", "flush:1,mark:2", "--json"])
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
        (["--check", "true"], "--check: belongs to --workload"),
        (["--size", "64M"], "--size: belongs to --workload"),
        (["--workload", "true"], "add --check COMMAND"),
        (["--workload", "true", "--check", "true", "--kill"], "they go without --tier"),
        (["--workload", "true", "--check", "true", "--fs", "vfat"], "use --mkfs COMMAND for others"),
        (["--workload", "true", "--check", "true", "--at", "sometimes"], "flush:N, mark:N"),
        (["--recording", "nowhere", "--check", "true"], "no recording"),
        (["--recording", "nowhere", "--check", "true", "--size", "64M"], "--size: the recording has it already"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.run(["crash", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_recording_does_not_choose_what_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path)
    folder.save(Settings(ftl="somebodys.module:Ftl"), "true", (0, 0))
    assert cli.run(["crash", "--recording", str(tmp_path), "--check", "true"]) == 1
    assert "somebodys.module:Ftl, which is not registered" in capsys.readouterr().err
    assert cli.run(["crash", "--recording", str(tmp_path), "--check", "true", "--ftl", "dftl"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["recording.json"]


def test_the_page_names_each_option() -> None:
    page = (ROOT / "docs" / "crash-workload.md").read_text()
    own = get_command(cli.crash.app).params
    names = [one.opts[0] for one in own if getattr(one, "rich_help_panel", None) == cli.crash.OWN]
    assert len(names) == 13
    for name in (*names, "examples/spool.py", "examples/sqlite_commits.py"):
        assert name in page, name


# --- mounts


@pytest.fixture
def need_fuse() -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        pytest.skip("needs /dev/fuse and fusermount3 (package fuse3)")


@pytest.fixture
def need_ext4(need_fuse: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Skips by name where ext4 cannot be mounted; temporary recordings are made in ``tmp_path``, and nothing of it may
    be mounted at the end."""
    try:
        loop.need_root("this test")
        file_systems.check_can_make("ext4")
    except FlashfsError as error:
        pytest.skip(str(error))
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True, env=mounts.environment())
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.mount
@pytest.mark.parametrize("server", list(SERVERS))
def test_a_mount_with_a_tape_takes_marks(need_fuse: None, tmp_path: Path, server: str) -> None:
    chip, at, taped = tmp_path / "chip", tmp_path / "mnt", tmp_path / "tape"
    image.create(chip, Geometry.sized(MIB, pages_per_block=16, op=1.0))
    at.mkdir()
    daemon.mount(daemon.Request(chip, at, server=server, sync="none", tape=taped))
    try:
        with (at / "disk").open("r+b", buffering=0) as disk:
            disk.write(page(7))
            subprocess.run(["sh", "-c", "echo one > mark; echo two >> mark"], cwd=at, check=True)
            os.fsync(disk.fileno())
        (at / "mark").write_text("three")
        assert json.loads((at / "mark").read_text())["failed"] is None
        with (at / "mark").open("wb", buffering=0) as mark, pytest.raises(OSError, match="Invalid argument"):
            mark.write(b"\n")
        assert json.loads((at / "stats.json").read_text())["record"]["failed"] is None
    finally:
        daemon.unmount(at)
    found = [(one.operation, bytes(one.data)) for one in tape.read(taped)]
    assert found[:5] == [("write", page(7)), ("mark", b"one"), ("mark", b"two"), ("flush", b""), ("mark", b"three")]


def example(name: str, *words: str) -> str:
    return shlex.join([sys.executable, str(ROOT / "examples" / name), *words])


def crash(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.run(["crash", *words, "--json"])
    said = capsys.readouterr()
    assert said.err == ""
    (result,) = json.loads(said.out)
    return code, result


def nothing_mounted(under: Path) -> bool:
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    return str(under) not in Path("/proc/self/mountinfo").read_text() + "".join(backing)


@pytest.mark.mount
def test_a_missing_fsync_is_found_and_found_again(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgetful = example("spool.py", "deliver", "{}", "--messages", "4", "--forget")
    check = example("spool.py", "check", "{}")
    code, result = crash(capsys, "--workload", forgetful, "--check", check, "--cuts", "3", "--seed", "1",
                         "--at", "flushes,marks,operations")  # fmt: skip
    assert (code, result["fs"], result["cuts"], result["marks"], result["seed"]) == (1, "ext4", 3, 4, 1)
    failure = result["failures"][-1]
    assert (failure["why"], result["failed"]) == ("--check ended with 1", len(result["failures"]))
    assert any("bytes, or others" in line for line in failure["output"])
    assert nothing_mounted(tmp_path)
    words = shlex.split(failure["replay"])
    assert words[:2] == ["flashfs", "crash"]
    code, again = crash(capsys, *words[2:])
    assert (code, again["failures"]) == (1, [failure])  # the same cut, the same words
    kept = {path.name for path in Path(result["recording"]).iterdir()}
    assert kept == {"base.nand", "tape", "recording.json", "crashed.nand"}


@pytest.mark.mount
def test_one_that_does_not_forget_survives(need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, check = example("spool.py", "deliver", "{}", "--messages", "1"), example("spool.py", "check", "{}")
    code, result = crash(capsys, "--workload", work, "--check", check, "--ftl", "slimftl")
    assert (code, result["failures"], result["ftl"], result["marks"]) == (0, [], "slimftl", 1)
    assert result["cuts"] == result["flushes"] + result["marks"] + 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mount
def test_sqlite_keeps_what_it_acknowledged(need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup, check = (example("sqlite_commits.py", what, "{}") for what in ("create", "check"))
    work = example("sqlite_commits.py", "insert", "{}", "--commits", "4")
    code, result = crash(capsys, "--setup", setup, "--workload", work, "--check", check, "--cuts", "4", "--seed", "1")
    assert (code, result["failures"], result["cuts"], result["marks"]) == (0, [], 4, 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mount
def test_sqlite_loses_what_it_did_not_promise(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup, check = example("sqlite_commits.py", "create", "{}"), example("sqlite_commits.py", "check", "{}")
    work = example("sqlite_commits.py", "insert", "{}", "--commits", "2", "--synchronous", "NORMAL")
    code, result = crash(capsys, "--setup", setup, "--workload", work, "--check", check, "--at", "mark:2")
    assert code == 1
    assert result["failures"][0]["output"] == ["commit 2 was acknowledged, and 0 is the last one that is there"]


ORDER = """
import os, sys
file = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
if sys.argv[1] == "check":
    first, second = os.pread(file, 1, 0), os.pread(file, 1, 1 << 20)
    sys.exit(0 if first >= second else f"{second} is there, and {first} was written before")
for version in b"12345":
    for at in (0, 1 << 20):
        os.pwrite(file, bytes([version]) * 4096, at)
    os.fsync(file)
"""


@pytest.mark.mount
def test_an_order_that_nobody_promised(need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two pages, the second is to be no newer than the first: so it is behind each flush, by luck."""
    script = tmp_path / "order.py"
    script.write_text(ORDER)
    write, check = (shlex.join([sys.executable, str(script), what]) + " {}/file" for what in ("write", "check"))
    words = ["--check", check, "--recording", str(tmp_path / "kept"), "--seed", "1"]
    code, result = crash(capsys, "--setup", write, "--workload", write, *words, "--at", "flushes", "--cuts", "2")
    assert (code, result["failures"]) == (0, [])
    # This seed loses the first page of a flush and keeps the second; some flushes are the journal's.
    code, result = crash(capsys, *words, "--at", "subset:2.8,subset:3.8,subset:4.8")
    assert code == 1 and result["cuts"] == 3
    assert all("was written before" in failure["output"][0] for failure in result["failures"])


@pytest.mark.mount
@pytest.mark.parametrize(
    ("work", "check", "said"),
    [
        ("echo of what it did; exit 3", "true", "--workload ended with 3: of what it did"),
        ("true", "echo no; exit 1", "--check, before any cut, ended with 1: no"),
        ("kill -9 $$", "true", "--workload ended by signal 9"),
        ("true", "true", "none of these, so there is nothing to cut"),
        ("sleep 1000 > {}/kept & true", 'test "$FLASHFS_CUT" = none', ""),  # and is not left running
    ],
)
def test_failures_without_a_cut_leave_nothing(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], work: str, check: str, said: str
) -> None:
    code = cli.run(["crash", "--workload", work, "--check", check, "--at", "marks" if work == check else "end"])
    said_then = capsys.readouterr()
    assert code == (2 if work == check else 1)
    assert said in said_then.err and (said or "--check ended with 1" in said_then.out)
    assert nothing_mounted(tmp_path)
    kept = [path.name for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert sorted(kept) == ([] if said else ["base.nand", "crashed.nand", "recording.json", "tape"])


@pytest.mark.mount
@pytest.mark.parametrize(
    ("work", "check", "code", "said"),
    [
        ("true", "true", 1, "--workload did nothing to the device before it ended, so there is nothing to cut: let it"),
        ("echo 1 > {}/one", "true", 1, "--workload wrote, but flushed nothing and set no mark before it ended"),
        ("echo 1 > {}/one; sync", "nosuchcommand {}", 2, "--check, before any cut, ended with 127"),
    ],
)
def test_a_run_that_could_not_fail_is_an_error(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], work: str, check: str, code: int, said: str
) -> None:
    """And with the recording alone too: a checker is tried on what was not cut."""
    if "wrote" in said:  # what is written late does not reach the device before the workload's end
        work += "; dd if=/dev/zero of={}/two bs=4k count=1 oflag=direct conv=notrunc status=none"
    words = ["--recording", str(tmp_path / "kept"), "--check"]
    assert cli.run(["crash", "--workload", work, *words, check]) == code
    assert said in capsys.readouterr().err
    assert cli.run(["crash", *words, check]) == code
    assert said in capsys.readouterr().err
    assert nothing_mounted(tmp_path)


def any_loop(failures: list[dict[str, Any]]) -> str:
    """A checker names the device, and it has another number the next time."""
    return re.sub(r"/dev/loop\d+", "/dev/loop", json.dumps(failures))


@pytest.mark.mount
def test_a_file_system_of_ones_own_is_made_and_checked(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ext4 without a journal: each file is there, and the tables are not in order."""
    made = 'mkfs.ext4 -q -F -O ^has_journal "$FLASHFS_DEVICE"'
    work = "for i in 1 2 3 4; do mkdir {}/$i; sync; done"
    words = ["--workload", work, "--mkfs", made, "--fs", "ext4", "--at", "flushes,operations", "--cuts", "6"]
    code, result = crash(capsys, *words, "--seed", "1", "--fsck", "fsck.ext4 -fn {}")
    assert code == 1
    assert {failure["why"][:18] for failure in result["failures"]} == {"--fsck ended with "}
    failure = result["failures"][0]
    assert "--fsck 'fsck.ext4 -fn {}' --at" in failure["replay"] and "--check" not in failure["replay"]
    again = crash(capsys, *shlex.split(failure["replay"])[2:])[1]["failures"]
    assert any_loop(again) == any_loop([failure])
    assert nothing_mounted(tmp_path)


@pytest.mark.mount
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_but_what_was_found(need_ext4: None, tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM comes when the checker looks at the second cut, after a failure; SIGHUP in the workload."""
    place, wait = tmp_path / "there", f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/there; sleep 1000"
    check = f"case $FLASHFS_CUT in none) ;; flush:1) exit 1 ;; *) {wait} ;; esac"
    work = "echo 1 > {}/one; sync" if number == signal.SIGTERM else wait
    words = ["crash", "--workload", work, "--check", check, "--at", "flush:1,end"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from flashfs.cli import main; main()", *words],
        env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # under nohup, SIGHUP is ignored
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not place.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(number)
        process.send_signal(number)  # a second one does not cut the cleaning up short
        out, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.terminate()  # it takes away what it mounted
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
        process.kill()
        process.wait()
    assert (process.returncode, said) == (128 + number, "")
    assert nothing_mounted(tmp_path)
    assert not Path("/proc", place.read_text().strip()).exists()
    kept = [path for path in tmp_path.iterdir() if path != place]
    if number == signal.SIGHUP:
        assert kept == [] and out == ""
        return
    (folder,) = kept
    assert {path.name for path in folder.iterdir()} == {"base.nand", "tape", "recording.json"}
    assert "flush:1 (no mark passed): --check ended with 1" in out and f"--recording {folder}" in out


@pytest.mark.mount
def test_a_folder_is_kept_if_it_is_named_and_holds_nothing_that_is_not_whole(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--check", "true", "--at", "end", "--recording", str(tmp_path / "kept")]
    assert cli.run(["crash", "--workload", "exit 3", *words]) == 1
    assert capsys.readouterr().err == "flashfs: --workload ended with 3\n"
    assert list((tmp_path / "kept").iterdir()) == []
    assert crash(capsys, "--workload", "echo 1 > {}/one", *words)[0] == 0
    words[1] = 'test "$FLASHFS_CUT" = none || ! test -e {}/one'  # it was not synced
    assert crash(capsys, *words)[0] == 0


@pytest.mark.mount
def test_a_folder_with_something_in_it_is_left_alone(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "marks").write_text("mine")
    assert cli.run(["crash", "--workload", "true", "--check", "true", "--recording", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "marks").read_text() == "mine"


@pytest.mark.mount
def test_one_run_at_a_time_works_in_a_folder(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = recorded(tmp_path, Settings())
    folder.state.write_text("another's")
    with folder.held():
        assert cli.run(["crash", "--recording", str(tmp_path), "--check", "true"]) == 1
    assert "another run works with it" in capsys.readouterr().err
    assert folder.state.read_text() == "another's"
