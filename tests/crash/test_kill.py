"""The kill tier, a few rounds of each file system and each writer; that it finds what is lost, and cleans up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from namespaces import anything_mounted
from schemes import thinned

from flashfs import cli
from flashfs.crash import kill
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.fuse import daemon, mounts
from nandimg import Cut

#: file system, writer, rounds; each scheme runs some of them
BENCHES = [
    ("ext4", "files", 3),
    ("xfs", "files", 2),
    ("btrfs", "files", 2),
    ("ext4", "sqlite-delete", 3),
    ("ext4", "sqlite-wal", 3),
    ("xfs", "sqlite-wal", 2),
    ("btrfs", "sqlite-delete", 2),
    ("ext4", "fio", 2),
    ("btrfs", "fio", 2),
    ("none", "sqlite-remap", 3),
]

Need = Callable[[str, str], None]


def quick(bench: tuple[str, str, int]) -> bool:
    """Each writer on ext4, and files on each file system."""
    fs, writer, _ = bench
    return fs == "ext4" or writer == "files"



@pytest.fixture
def need_kill() -> Need:
    """Skips by name where the tier cannot run on that file system with that writer."""

    def check(fs: str, writer: str) -> None:
        try:
            kill.check_machine(fs, writer)
        except FlashfsError as error:
            pytest.skip(str(error))
        if fs == "none":
            return
        if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
            subprocess.run(["modprobe", fs], capture_output=True, check=False, env=mounts.environment())
            if f"\t{fs}\n" not in Path("/proc/filesystems").read_text():
                pytest.skip(f"needs {fs}, which this kernel does not have")
        free = subprocess.run(["losetup", "-f"], capture_output=True, text=True, env=mounts.environment())
        if free.returncode != 0 or not Path(free.stdout.strip()).exists():
            pytest.skip("needs a free loop device, and there is none")

    return check


@pytest.mark.mount
@pytest.mark.parametrize(
    ("fs", "writer", "rounds", "ftl"),
    [
        *(
            pytest.param(*bench, list(SCHEMES)[i % len(SCHEMES)], marks=() if quick(bench) else pytest.mark.slow)
            for i, bench in enumerate(BENCHES)
        ),
        *(("none", "sqlite-remap", 3, name) for name in SCHEMES if SCHEMES[name].remaps),
    ],
    ids=lambda value: str(value),
)
def test_rounds(
    need_kill: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fs: str, writer: str, rounds: int, ftl: str
) -> None:
    need_kill(fs, writer)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    heard: list[int] = []
    result = kill.run(ftl, 1, rounds, fs=fs, writer=writer, progress=heard.append)
    assert not result.failures, str(result.failures[0])
    assert (result.cuts, heard) == (rounds, list(range(1, rounds + 1)))
    row = result.as_dict()
    assert (row["ftl"], row["tier"], row["fs"], row["writer"], row["cuts"]) == (ftl, "kill", fs, writer, rounds)
    assert list(tmp_path.iterdir()) == []
    assert not anything_mounted(tmp_path)


@pytest.mark.mount
@pytest.mark.parametrize("writer", thinned(["files", "sqlite-delete", "sqlite-wal", "sqlite-remap", "fio"], 3))
def test_a_loss_is_found_told_and_cleaned_up(
    need_kill: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    """A device that takes back all that was written since the writer began: planted between kill and recovery."""
    need_kill("none" if writer == "sqlite-remap" else "ext4", writer)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(kill.Moments, "EARLY", 0.0)  # the first life reaches its writer
    settle, run_writer = kill.Bench.settle, kill.Bench.run_writer

    def planted(bench: kill.Bench, last: bool = False) -> bool:
        before = bench.image.with_name("before")
        if before.exists():
            before.replace(bench.image)
        return settle(bench, last)

    def remembered(bench: kill.Bench) -> None:
        shutil.copyfile(bench.image, bench.image.with_name("before"))
        run_writer(bench)

    monkeypatch.setattr(kill.Bench, "settle", planted)
    monkeypatch.setattr(kill.Bench, "run_writer", remembered)
    command = ["crash", "kill", "--ftl", "pagemap", "--writer", writer, "--rounds", "2", "--seed", "4"]
    assert cli.run(command) == 1
    out = capsys.readouterr().out
    where = "" if writer == "sqlite-remap" else " --fs ext4"
    assert f"flashfs crash kill{where} --writer {writer} --ftl pagemap --seed 4 --rounds 2" in out
    assert "round 1: " in out or "round 2: " in out  # a first life may end before anything was acknowledged
    assert not anything_mounted(tmp_path)
    (kept,) = tmp_path.iterdir()
    assert (kept / "crashed.nand").exists()


@pytest.mark.mount
def test_options_are_the_same_in_all_lives(need_kill: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that chance would choose from life to life too; a failure's line has them."""
    need_kill("ext4", "files")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    heard, mount = [], kill.daemon_lives.mount

    def listening(request: daemon.Request, cut: Cut | None) -> kill.daemon_lives.Life | None:
        heard.append(request.options)
        return mount(request, cut)

    monkeypatch.setattr("flashfs.crash.kill.bench.mount", listening)
    result = kill.run("remapssd", 3, 4, options={"dedup": "on", "segment": "512"})
    assert not result.failures, str(result.failures[0])
    assert result.as_dict()["options"] == {"dedup": "on", "segment": "512"}
    assert len(heard) > 4
    assert all((options["dedup"], options["segment"]) == ("on", "512") for options in heard)
    assert len({options["references"] for options in heard}) > 1  # chance has the others


@pytest.mark.mount
def test_a_failure_says_the_options(need_kill: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_kill("ext4", "files")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(kill.Bench, "begin", failing)
    result = kill.run("remapssd", 3, 6, options={"dedup": "on"})
    assert result.failures[0].replay.endswith(" --ftl remapssd --seed 3 --rounds 6 --opt dedup=on")


def failing(bench: kill.Bench) -> None:
    raise kill.Lost("as planted")


def test_a_kill_is_aimed_at_a_checkpoint(tmp_path: Path) -> None:
    """It was inside one if the log says that it began, and not that it is durable."""
    from flashfs.crash.kill.remapped import SqliteRemap

    work = SqliteRemap(tmp_path, tmp_path, "1", lambda: 0)
    inside = '{"begun": 1}\n{"done": 1}\n{"checkpoint": 1}\n'
    for text, began, aimed in (
        ('{"begun": 1}\n', False, 0),
        (inside, False, 1),
        (inside + '{"now": 7}\n{"checkpoi', True, 2),
        (inside + '{"now": 7}\n{"checkpointed": 9}\n{"begun": 2}\n', True, 2),
    ):
        work.log.write_text(text)
        work.read_log()
        assert (work.began(), work.aimed) == (began, aimed)


def test_options_that_no_image_can_have(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "check_machine", lambda fs, writer: None)
    for ftl, option, said in (("remapssd", "dedup=maybe", "use off or on"), ("pagemap", "x=1", "pagemap has")):
        assert cli.run(["crash", "kill", "--ftl", ftl, "--opt", option]) == 2
        assert said in capsys.readouterr().err
    assert cli.run(["crash", "run", "--ftl", "remapssd", "--opt", "dedup=on"]) == 2
    assert "No such option: --opt" in capsys.readouterr().err


@pytest.mark.mount
def test_a_daemon_that_fails_by_itself_is_a_loss(
    need_kill: Need, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cut is planned, and the daemon ends otherwise: it is not taken for the cut."""
    need_kill("ext4", "files")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kill_it, me = os.kill, os.getpid()

    def end(pid: int, number: int) -> None:
        """In the daemon, which means to end by a signal at its cut."""
        kill_it(pid, number) if os.getpid() == me else os._exit(7)

    monkeypatch.setattr("os.kill", end)
    monkeypatch.setattr(kill.Moments, "AT_RANDOM", 0.0)
    monkeypatch.setattr("flashfs.crash.kill.bench.RECOVERY_KILLED", 0.0)
    result = kill.run("pagemap", 5, 2)
    assert "ended by itself with exit code 7" in result.failures[0].why
    assert not anything_mounted(tmp_path)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="nonesuch"):
        kill.check_machine("nonesuch")
    with pytest.raises(UsageError, match="--writer nonesuch: there is files"):
        kill.writers(["files", "nonesuch"])
    assert kill.benches(["xfs", "ext4"], ["sqlite-remap", "fio"]) == [
        ("xfs", "fio"), ("ext4", "fio"), ("none", "sqlite-remap"),
    ]  # fmt: skip
    assert kill.writers(["sqlite", "files", "sqlite-wal"]) == ["sqlite-delete", "sqlite-wal", "files"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda *_: True)
    missing = {"e2fsck"}
    monkeypatch.setattr(shutil, "which", lambda program, path: None if program in missing else program)
    with pytest.raises(FlashfsError, match="e2fsck: install e2fsprogs"):
        kill.check_machine("ext4")
    missing = {"xfs_repair"}
    with pytest.raises(FlashfsError, match="xfs_repair: install xfsprogs"):
        kill.check_machine("xfs")
    missing = {"fio"}
    with pytest.raises(FlashfsError, match="fio: install fio"):
        kill.check_machine("btrfs", "fio")
    kill.check_machine("btrfs", "files")
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/dev/fuse")
    with pytest.raises(FlashfsError, match="/dev/fuse"):
        kill.check_machine("ext4")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FlashfsError, match="root"):
        kill.check_machine("ext4")
