"""Crash states of a workload of one's own: the whole way round, on ext4."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from namespaces import anything_mounted
from recorded import MIB, page, recorded

from flashfs import cli
from flashfs.crash.workload.settings import Settings
from flashfs.errors import FlashfsError
from flashfs.fuse import SERVERS, daemon, file_systems, loop, mounts, write_log
from nandimg import Geometry, image

ROOT = Path(__file__).parents[2]

#: ext4 flushes its journal every five seconds, which a workload that is held up would meet
SELDOM = ("--mount-options", "commit=600")


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
    found = [(one.operation, bytes(one.data)) for one in write_log.read(taped)]
    assert found[:5] == [("write", page(7)), ("mark", b"one"), ("mark", b"two"), ("flush", b""), ("mark", b"three")]


def example(name: str, *words: str) -> str:
    return shlex.join([sys.executable, str(ROOT / "examples" / name), *words])


def crash(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.run(["crash", *words, "--json"])
    said = capsys.readouterr()
    assert said.err == ""
    (result,) = json.loads(said.out)
    return code, result


@pytest.mark.mount
def test_a_missing_fsync_is_found_and_found_again(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgetful = example("spool.py", "deliver", "{}", "--messages", "4", "--forget")
    check = example("spool.py", "check", "{}")
    code, result = crash(capsys, "workload", forgetful, "--check", check, "--cuts", "3", "--seed", "1",
                         "--at", "flushes,marks,operations")  # fmt: skip
    assert (code, result["fs"], result["cuts"], result["marks"], result["seed"]) == (1, "ext4", 3, 4, 1)
    failure = result["failures"][-1]
    assert (failure["why"], result["failed"]) == ("--check ended with 1", len(result["failures"]))
    assert any("bytes, or others" in line for line in failure["output"])
    assert not anything_mounted(tmp_path)
    words = shlex.split(failure["replay"])
    assert words[:2] == ["flashfs", "crash"]
    code, again = crash(capsys, *words[2:])
    assert (code, again["failures"]) == (1, [failure])  # the same cut, the same words
    kept = {path.name for path in Path(result["recording"]).iterdir()}
    assert kept == {"base.nand", "tape", "recording.json", "crashed.nand"}


@pytest.mark.mount
def test_one_that_does_not_forget_survives(need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, check = example("spool.py", "deliver", "{}", "--messages", "1"), example("spool.py", "check", "{}")
    code, result = crash(capsys, "workload", work, "--check", check, "--ftl", "slimftl")
    assert (code, result["failures"], result["ftl"], result["marks"]) == (0, [], "slimftl", 1)
    assert result["cuts"] == result["flushes"] + result["marks"] + 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mount
def test_sqlite_keeps_what_it_acknowledged(need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup, check = (example("sqlite_commits.py", what, "{}") for what in ("create", "check"))
    work = example("sqlite_commits.py", "insert", "{}", "--commits", "4")
    code, result = crash(capsys, "workload", work, "--setup", setup, "--check", check, "--cuts", "4", "--seed", "1")
    assert (code, result["failures"], result["cuts"], result["marks"]) == (0, [], 4, 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mount
def test_sqlite_loses_what_it_did_not_promise(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup, check = example("sqlite_commits.py", "create", "{}"), example("sqlite_commits.py", "check", "{}")
    work = example("sqlite_commits.py", "insert", "{}", "--commits", "2", "--synchronous", "NORMAL")
    code, result = crash(capsys, "workload", work, "--setup", setup, "--check", check, "--at", "mark:2")
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
    """Two pages, of which the second must be no newer than the first: that holds after each flush, but only by luck."""
    script = tmp_path / "order.py"
    script.write_text(ORDER)
    write, check = (shlex.join([sys.executable, str(script), what]) + " {}/file" for what in ("write", "check"))
    words = ["--check", check, "--recording", str(tmp_path / "kept"), "--seed", "1"]
    code, result = crash(
        capsys, "workload", write, "--setup", write, *SELDOM, *words, "--at", "flushes", "--cuts", "2"
    )
    assert (code, result["failures"]) == (0, [])
    # This seed loses the first page of a flush and keeps the second; some flushes are the journal's.
    code, result = crash(capsys, *words, "--at", "subset:2.8,subset:3.8,subset:4.8")
    assert code == 1 and result["cuts"] == 3
    assert all("was written before" in failure["output"][0] for failure in result["failures"])


@pytest.mark.mount
@pytest.mark.parametrize(
    ("work", "check", "said"),
    [
        ("echo of what it did; exit 3", "true", "the workload ended with 3: of what it did"),
        ("true", "echo no; exit 1", "--check, before any cut, ended with 1: no"),
        ("kill -9 $$", "true", "the workload ended by signal 9"),
        ("true", "true", "none of these, so there is nothing to cut"),
        ("sleep 1000 > {}/kept & true", 'test "$FLASHFS_CUT" = none', ""),  # and is not left running
    ],
)
def test_failures_without_a_cut_leave_nothing(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], work: str, check: str, said: str
) -> None:
    code = cli.run(["crash", "workload", work, "--check", check, "--at", "marks" if work == check else "end"])
    said_then = capsys.readouterr()
    assert code == (2 if work == check else 1)
    assert said in said_then.err and (said or "--check ended with 1" in said_then.out)
    assert not anything_mounted(tmp_path)
    kept = [path.name for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert sorted(kept) == ([] if said else ["base.nand", "crashed.nand", "recording.json", "tape"])


@pytest.mark.mount
@pytest.mark.parametrize(
    ("work", "check", "code", "said"),
    [
        ("true", "true", 1, "the workload did nothing to the device before it ended, so there is nothing to cut"),
        ("echo 1 > {}/one", "true", 1, "the workload wrote, but flushed nothing and set no mark before it ended"),
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
    assert cli.run(["crash", "workload", work, *SELDOM, *words, check]) == code
    assert said in capsys.readouterr().err
    assert cli.run(["crash", *words, check]) == code
    assert said in capsys.readouterr().err
    assert not anything_mounted(tmp_path)


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
    words = ["workload", work, "--mkfs", made, "--fs", "ext4", "--at", "flushes,operations", "--cuts", "6"]
    code, result = crash(capsys, *words, "--seed", "1", "--fsck", "fsck.ext4 -fn {}")
    assert code == 1
    assert {failure["why"][:18] for failure in result["failures"]} == {"--fsck ended with "}
    failure = result["failures"][0]
    assert "--fsck 'fsck.ext4 -fn {}' --at" in failure["replay"] and "--check" not in failure["replay"]
    again = crash(capsys, *shlex.split(failure["replay"])[2:])[1]["failures"]
    assert any_loop(again) == any_loop([failure])
    assert not anything_mounted(tmp_path)


@pytest.mark.mount
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_but_what_was_found(need_ext4: None, tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM comes when the checker looks at the second cut, after a failure; SIGHUP in the workload."""
    place, wait = tmp_path / "there", f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/there; sleep 1000"
    check = f"case $FLASHFS_CUT in none) ;; flush:1) exit 1 ;; *) {wait} ;; esac"
    work = "echo 1 > {}/one; sync" if number == signal.SIGTERM else wait
    words = ["crash", "workload", work, "--check", check, "--at", "flush:1,end"]
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
    assert not anything_mounted(tmp_path)
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
    assert cli.run(["crash", "workload", "exit 3", *words]) == 1
    assert capsys.readouterr().err == "flashfs: the workload ended with 3\n"
    assert list((tmp_path / "kept").iterdir()) == []
    assert crash(capsys, "workload", "echo 1 > {}/one", *SELDOM, *words)[0] == 0
    words[1] = 'test "$FLASHFS_CUT" = none || ! test -e {}/one'  # it was not synced
    assert crash(capsys, *words)[0] == 0


@pytest.mark.mount
def test_a_folder_with_something_in_it_is_left_alone(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "marks").write_text("mine")
    assert cli.run(["crash", "workload", "true", "--check", "true", "--recording", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "marks").read_text() == "mine"


@pytest.mark.mount
def test_one_run_at_a_time_works_in_a_folder(
    need_ext4: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = recorded(tmp_path, Settings())
    folder.state.write_text("another's")
    with folder.held():
        assert cli.run(["crash", "workload", "--recording", str(tmp_path), "--check", "true"]) == 1
    assert "another run works with it" in capsys.readouterr().err
    assert folder.state.read_text() == "another's"
