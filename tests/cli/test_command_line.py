"""What the commands print and end with, where nothing is mounted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flashfs import cli
from flashfs.cli import commands, show, units
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from nandimg import inspect
from nandimg.presets import PRESETS


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of one command line; an error is one line."""
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert err.count("\n") <= 1, err
    assert "internal error" not in err
    return code, out, err


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4k", 4096), ("512M", 512 << 20), ("1G", 1 << 30), ("1.5g", 3 << 29), ("2 TiB", 2 << 40)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert units.size("--size", text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "k", "3q", "1.0000001k", "4 k k", "1e9", "9" * 400])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--size") as caught:
        units.size("--size", text)
    assert "\n" not in str(caught.value)


def test_a_size_that_is_no_whole_number_says_what_it_is() -> None:
    with pytest.raises(UsageError, match=r"^--size 3\.7T: that is 4068193022771\.2 bytes; use a whole number"):
        units.size("--size", "3.7T")


@pytest.mark.parametrize(("size", "text"), [(1, "1 B"), (4096, "4 KiB"), (1 << 30, "1 GiB"), (1717986918, "1.6 GiB")])
def test_sizes_shown(size: int, text: str) -> None:
    assert units.shown(size) == text


def test_pairs() -> None:
    assert units.pairs("--opt", ["shift=8", "a=b=c"]) == {"shift": "8", "a": "b=c"}
    for text in ("shift", "=8"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            units.pairs("--opt", [text])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonesuch"], ["nonesuch"], ["create"], ["mount", "image"], ["create", "x", "--dies", "many"],
        ["dump", "x", "nonesuch"], ["dump", "x", "page"], ["dump", "x", "header", "3"], ["ftls", "nonesuch"],
        ["create", "x", "--size", "3q"], ["create", "x", "--size", ""], ["create", "x", "--size", "1"],
        ["create", "x", "--tables", "no"], ["create", "x", "--backend", "nope"], ["replay", "seq", "--backend", "nope"],
        ["create", "x", "--pages-per-block", "0"], ["create", "x", "--pages-per-block", "3"],
        ["create", "x", "--preset", "nonesuch"],
        ["top"], ["top", "x"], ["top", "x", "--interval", "0"],
        ["dump", "x", "blocks", "--html", "y"], ["dump", "x", "--force"],
        ["create", "x", "--preset", "tiny-8", "--dies", "4"], ["create", "x", "--preset", "tiny-8", "--size", "1G"],
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("flashfs: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", ["nan", "inf", "-1", "0", "1e400", "-inf", "", "1%%"])
@pytest.mark.parametrize("command", [["create", "x"], ["replay", "uniform:ops=9"]])
def test_a_share_that_is_none(capsys: pytest.CaptureFixture[str], command: list[str], share: str) -> None:
    code, out, err = run(capsys, *command, "--op", share)
    assert (code, out) == (2, "")
    assert err == f"flashfs: --op {share}: use a share above 0, as 0.1 or 10%\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "seq", "--qd", "-1"], "--qd -1: use 0 or more"),
        (["replay", "seq", "--qd", "65537"], "--qd 65537: use 65536 or less"),
        (["check", "pagemap", "--jobs", "0"], "--jobs 0: use 1 or more"),
        (["crash", "run", "--cuts", "0"], "--cuts 0: use 1 or more"),
        (["crash", "run", "--seconds", "soon"], "--seconds soon: use a number"),
        (["cut", "mnt", "--at", "1e3"], "--at 1e3: use a whole number"),
        (["replay", "seq", "--dram", "9" * 25], f"--dram {'9' * 25}: use less than 8 EiB"),
    ],
)
def test_a_number_that_is_not_taken(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.removeprefix("flashfs: ").partition(" (see ")[0].rstrip("\n") == said


def test_an_exception_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("what\nnobody expected")

    monkeypatch.setattr(commands, "program", broken)
    assert cli.run([]) == 1
    assert capsys.readouterr().err == "flashfs: internal error: ValueError: what nobody expected\n"


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "program", interrupted)
    assert cli.run([]) == 130
    assert capsys.readouterr().err == "flashfs: interrupted\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {command} " in out for command in commands.names())


def test_presets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "presets")
    assert code == 0
    named = [name for name in PRESETS if not name.startswith("tiny-")]
    assert [line.split()[0] for line in out.splitlines() if line.strip() and "─" not in line][1:] == named
    assert "tiny-1330" in run(capsys, "presets", "--all")[1]
    listed = json.loads(run(capsys, "presets", "--json", "--all")[1])
    assert [one["name"] for one in listed] == list(PRESETS)
    assert all(one["geometry"]["lpas"] > 0 for one in listed)
    assert len(json.loads(run(capsys, "presets", "--json")[1])) == len(named) < len(PRESETS)
    assert run(capsys, "presets", "tiny-8")[0] == 0


def test_create(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chip"
    code, out, _ = run(capsys, "create", path, "--size", "16M", "--pages-per-block", 64, "--dies", 2, "--channels", 1)
    assert code == 0
    assert "16 MiB for the host" in out
    allocated = inspect(path).allocated_bytes
    assert out.splitlines()[0].endswith(f"; {units.shown(allocated)} of tables allocated")
    assert 0 <= path.stat().st_blocks * 512 - allocated < 65536  # the host's disk has blocks of its own
    code, _, err = run(capsys, "create", path)
    assert code == 1
    assert "exists already" in err
    made = json.loads(run(capsys, "create", path, "--preset", "tiny-8", "--force", "--json")[1])
    assert made["geometry"]["blocks"] == 8
    assert made["allocated_bytes"] == inspect(path).allocated_bytes
    assert run(capsys, "create", tmp_path / "none" / "chip")[0] == 1
    assert run(capsys, "create", tmp_path / "b", "--backend", "tape")[0] == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["chip"]


def test_ftls(capsys: pytest.CaptureFixture[str]) -> None:
    names = [one["name"] for one in json.loads(run(capsys, "ftls", "--json")[1])]
    assert set(SCHEMES) <= set(names)
    code, out, _ = run(capsys, "ftls")
    assert code == 0
    assert all(name in out for name in names)
    assert "shift" in run(capsys, "ftls", "slimftl")[1]


def test_dump_and_fsck(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from flashfs.device import Device

    path = tmp_path / "chip"
    run(capsys, "create", path, "--preset", "small-64m")
    device = Device.open(path, ftl="slimftl")
    device.write(0, b"x" * 100_000)
    device.close()
    for view in (["header"], ["blocks"], ["page", 0], ["lpa", 3], ["map"], ["recovery"]):
        code, out, err = run(capsys, "dump", path, *view)
        assert (code, err) == (0, "")
        assert out.strip()
        json.loads(run(capsys, "dump", path, *view, "--json")[1])
    assert json.loads(run(capsys, "fsck", path, "--json")[1]) == {"ok": True, "problems": []}
    assert "sound" in run(capsys, "fsck", path)[1]
    assert run(capsys, "dump", path, "page", 10**12)[0] in (1, 2)
    assert run(capsys, "dump", tmp_path / "none")[0] == 1


def test_fsck_names_what_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from flashfs.device import Device

    path = tmp_path / "chip"
    run(capsys, "create", path, "--preset", "tiny-16")
    Device.open(path).close()
    monkeypatch.setattr(Device, "problems", lambda self, progress=None: ["LPA 5: two places", "block 3: BVC 4, 5 live"])
    code, out, _ = run(capsys, "fsck", path)
    assert code == 1
    assert "block 3: BVC 4, 5 live" in out
    code, out, _ = run(capsys, "fsck", path, "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_remap(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chip"
    run(capsys, "create", path, "--preset", "small-64m")
    with Device.open(path, ftl="slimftl") as device:
        device.write(0, b"x" * 4096 + b"y" * 4096)
    code, out, err = run(capsys, "remap", path, "1M", "0", "6k")
    assert (code, err) == (0, "")
    assert out == f"{path}: 6 KiB remapped from 0 to 1M: 0 pages remapped, 2 copied by slimftl\n"
    found = json.loads(run(capsys, "remap", path, "1M", "1M", "8k", "--json", "--move")[1])
    assert found == {
        "target": 1 << 20, "source": 1 << 20, "length": 8192, "move": True, "ftl": "slimftl", "pages": 0,
        "remapped": 0, "copied": 0,
    }  # fmt: skip
    with Device.open(path) as device:
        assert device.read(1 << 20, 8192) == b"x" * 4096 + b"y" * 2048 + bytes(2048)
    for words, said, fails in (
        (("3q", "0", "4k"), "TARGET 3q", 2), (("0", "1T", "4k"), "the device has", 2), (("0", "0", "0"), "LENGTH 0", 2),
    ):  # fmt: skip
        code, _, err = run(capsys, "remap", path, *words)
        assert (code, said in err) == (fails, True)
    assert run(capsys, "remap", tmp_path, "0", "4k", "4k")[0] == 2
    assert run(capsys, "remap", tmp_path / "none", "0", "4k", "4k")[0] == 1


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "name": "x[bold]",
        "sizes": {"pages": 1234567, "share": 0.25},
        "rows": [{"block": 1, "kind": "user"}, {"block": 22, "kind": None, "torn": True}],
        "none": [],
    }
    show.tables(data, "title")
    out = capsys.readouterr().out
    for text in ("title", "x[bold]", "sizes.pages", "1,234,567", "0.25", "rows", "user", "torn", "yes"):
        assert text in out


def test_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, copy = str(tmp_path / "a.img"), str(tmp_path / "b.img")
    assert run(capsys, "create", image, "--preset", "small-64m")[0] == 0
    code, out, _ = run(capsys, "clone", image, copy)
    assert (code, out.startswith(f"{copy}: a copy of {image} with UUID ")) == (0, True)
    code, _, err = run(capsys, "clone", image, copy)
    assert (code, err) == (1, f"flashfs: {copy}: exists already; use another name\n")


# --- slips


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("dump text", 1, "text: no flashfs image: it begins with b'hello\\n'"),
        ("mount text folder", 1, "text: no flashfs image: "),
        ("smart nowhere", 1, "nowhere: no such file\n"),
        ("mount nowhere folder", 1, "nowhere: no such file; `flashfs create"),
        ("up /dev/nowhere folder", 1, "/dev/nowhere: no such file\n"),
        ("mount /dev/nowhere folder", 1, "/dev/nowhere: no such file\n"),
        ("fsck folder", 1, "folder: a directory, not a regular file"),
        ("create nowhere/chip", 1, "there is no directory nowhere"),
        ("clone chip nowhere/copy", 1, "there is no directory nowhere"),
        ("umount chip", 2, "it is a file, and mounted nowhere"),
        ("down chip", 2, "it is a file, and mounted nowhere"),
        ("cut folder", 2, "nothing is mounted there"),
        ("mount folder chip", 2, "name an empty one, after the image"),
        ("replay uniform:ops=1k --out nowhere/x.csv", 2, "there is no directory nowhere"),
        ("replay uniform:ops=1k --out folder.csv", 2, "a directory; use the name of a file"),
        ("plot text", 2, "use .parquet, .csv, .json or the folder of a sweep"),
        ("dump chip --ftl slimft", 2, "no FTL is called 'slimft' (did you mean slimftl?)"),
        ("dump chip --ftl pagemap", 1, "bound to slimftl for life, not pagemap: leave that out"),
        ("dump chip lpa 999,999", 2, "LPA 999999: chip has LPAs 0 to 16383"),
        ("dump chip cmt", 2, "slimftl has header, blocks, page, lpa, log, scheme, recovery, map, hids, vbt"),
        ("create x --size 100T", 2, "size 100 TiB: use 14 TiB or less, with 256 pages of 4 KiB per block and"),
        ("create x --page-size 3000", 2, "--page-size 3000: use a power of two"),
        ("create x --op ten", 2, "--op ten: use a share above 0, as 0.1 or 10%"),
        ("create x --op 10 --size 16M", 2, "op is 10, which is 1000 %: did you mean 0.1?"),
        ("replay uniform:ops=1k --op 25 --size 64M", 2, "op is 25, which is 2500 %: did you mean 0.25?"),
        ("replay uniform:ops=1k --dram 10", 1, "--dram 10 is 10 B: pagemap needs 1142852 bytes here at least (1.1"),
        ("reproduce nosuch", 2, "nosuch: no such paper; use dftl, "),
        ("reproduce slimftl 99", 2, "slimftl 99: no such figure; use 2, 3, 6, 8, 9, 10, 11, 12, 11runs, groups, map\n"),
        ("crash replay garbage", 2, "'garbage' is not understood; a line looks like: ftl=slimftl preset=tiny-16 cut="),
        ("crash replay --verbos x", 2, "(see flashfs crash replay --help)"),
        ("resize chip 77M", 1, "size 77 MiB: {chip} has 78 MiB of flash, of which slimftl can export 71 MiB at most"),
        ("resize chip 90M", 2, "size 90 MiB: {chip} has 78 MiB of flash, of which slimftl can export 71 MiB at most"),
        ("create x --preset tiny", 2, "no such preset; see flashfs presets"),
        ("dump chip lpa x", 2, "LPA x: it must be a number from 0 up"),
        ("dump chip page -1", 2, "-1: it must be a number from 0 up"),
        ("dump chip page -12", 2, "-12: it must be a number from 0 up"),
        ("dump chip lpa " + "9" * 30, 2, "it must be a number from 0 up"),
        ("dump chip foo", 2, "dump foo: slimftl has header, blocks, page, lpa, log, scheme, recovery, map, "),
        ("dump chip segments", 2, "dump segments: slimftl has header"),
        ("dump chip header 7", 2, "dump header takes no number, 7 was given"),
        ("mount chip folder --fault kaboom", 2, "--fault kaboom: use one of cut=N, later, fail=N, "),
        ("mount chip folder --fault later=3", 2, "--fault later=3: use one of cut=N, later, fail=N, "),
    ],
)
def test_slips(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: str, code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("hello\n")
    Path("folder").mkdir()
    Path("folder.csv").mkdir()
    cli.run(["create", "chip", "--size", "64M"])
    Device.open("chip", ftl="slimftl").close()
    capsys.readouterr()
    if "--ftl" in words:
        words += " lpa 0"
    assert cli.run(words.split()) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:9]) == ("", 1, "flashfs: ")
    assert said.replace("{chip}", str(tmp_path / "chip")) in err
    assert not Path("x").exists()


def test_the_size_that_resize_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the largest one, in whole MiB."""
    path = tmp_path / "chip"
    run(capsys, "create", path, "--size", "64M")
    Device.open(path, ftl="slimftl").close()
    assert run(capsys, "resize", path, "72M")[0] == 1
    assert run(capsys, "resize", path, "71M")[0] == 0


def test_op_in_per_cent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(run(capsys, "create", tmp_path / "a", "--size", "64M", "--op", "25%", "--json")[1])
    again = json.loads(run(capsys, "create", tmp_path / "b", "--size", "64M", "--op", "0.25", "--json")[1])
    assert made["geometry"] == again["geometry"]


def test_empty_tables_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chip"
    run(capsys, "create", path, "--size", "64M")
    Device.open(path, ftl="pagemap").close()
    for view, names in ((["lpa", 0], ("copies", "trims", "nvram")), (["log"], ("trims", "nvram"))):
        lines = run(capsys, "dump", path, *view)[1].splitlines()
        for name in names:
            assert [line.split() for line in lines if line.split()[:1] == [name]] == [[name, "none"]]


def test_rows_that_are_alike_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of SlimFTL's virtual block table, most rows of a large chip say nothing."""
    path = tmp_path / "chip"
    run(capsys, "create", path, "--size", "1G")
    with Device.open(path, ftl="slimftl") as device:
        device.write(0, b"x" * 4096)
    lines = run(capsys, "dump", path, "scheme")[1].splitlines()
    assert sum(" -  " in line for line in lines) == 2
    assert len(json.loads(run(capsys, "dump", path, "vbt", "--json")[1])) > 1000


def test_python_m_flashfs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flashfs", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flashfs ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--version", 0, "flashfs "),
        ("status", 0, ""),
        ("fsck {}/chip", 0, "sound"),
        ("replay uniform:ops=10 --size 4M", 0, "pagemap"),
        ("umount {}", 2, "nothing is mounted there"),
        ("fsck chip", 2, "chip: the present folder was deleted: use a path that begins with /"),
        ("umount chip", 2, "chip: the present folder was deleted: use a path that begins with /"),
    ],
)
def test_in_a_folder_that_was_deleted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: str, code: int, said: str,
) -> None:  # fmt: skip
    """Only what needs it complains."""
    cli.run(["create", str(tmp_path / "chip"), "--size", "64M"])
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr("flashfs.ftl_search.SEARCHED", [])
    monkeypatch.setattr(sys, "argv", ["flashfs", *words.format(tmp_path).split()])
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        commands.main()
    out, err = capsys.readouterr()
    assert (caught.value.code, said in out + err, err.count("\n") <= 1) == (code, True, True), out + err


def test_closed_streams_take_no_file(tmp_path: Path) -> None:
    """An AttributeError, and the number of the first file that was opened."""
    for closed in (">&-", "<&- >&- 2>&-"):
        line = f"exec {closed}; exec {sys.executable} -m flashfs.cli create chip --size 64M --force"
        assert subprocess.run(["sh", "-c", line], cwd=tmp_path, timeout=60, check=False).returncode == 0
        with Device.open(tmp_path / "chip") as device:
            assert not device.read(0, 4096).strip(b"\0")
        assert b"flash" not in (tmp_path / "chip").read_bytes()[:64]


def test_interrupted_while_it_imports() -> None:
    """At any moment from the first of our own lines on: a word at most, and never a traceback."""
    code = (
        "import os, signal, sys, builtins\n"
        "import flashfs.cli\n"
        "real = builtins.__import__\n"
        "def slow(name, *more, **named):\n"
        "    if name == 'typer':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *more, **named)\n"
        "builtins.__import__ = slow\n"
        "sys.argv = ['flashfs', 'ftls']\n"
        "flashfs.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
