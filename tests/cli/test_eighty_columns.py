"""Every command that prints a table, on a terminal of 80 columns: what it says is what it says on a wide one.

No value is cut, no word is broken, and no line is wider than the terminal unless one word, or a line to be copied, is.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

import pytest
from rich.console import Console

from flashfs import cli
from flashfs.cli import show
from flashfs.cli.commands import names
from flashfs.crash.campaign import Result
from flashfs.crash.kill import KillResult
from flashfs.crash.workload import WorkloadFailure, WorkloadResult
from flashfs.device import Device

WIDE, NARROW = 1000, 80
LINE = "--program 'w1 w2 w3' --check 'python check.py {}' --at flush:1 --seed 1234567890 --and so on and on and on"

#: command lines that need no mount; IMAGE and RESULTS are made once
COMMANDS = [
    "presets", "presets leaftl-2t", "ftls", "ftls remapssd", "create NEW --size 32M", "smart IMAGE", "fsck IMAGE",
    "dump IMAGE header", "dump IMAGE lpa 0", "dump IMAGE blocks", "dump IMAGE page 8", "dump IMAGE log",
    "dump IMAGE recovery", "dump IMAGE map", "clone IMAGE NEW", "upgrade IMAGE", "resize IMAGE 32M",
    "replay uniform:ops=3k --size 64M --ftl pagemap,dftl,sftl,leaftl,slimftl",
    "plot --list", "trace info TRACE", "crash --ftl pagemap --tier random --cuts 20 --seed 4294967295 --jobs 1",
    "recovery-model --capacity 2T,16T", "reproduce", "check pagemap --only clean",
]  # fmt: skip
#: those that have no tables, or are typed on a mount by tests of their own
ELSEWHERE = {
    "compare", "cut", "down", "fault", "mount", "nbd", "new-ftl", "remap", "status", "sweep", "top", "umount", "up",
}  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("a-folder-with-a-name-that-is-long") / "and another one"
    folder.mkdir()
    image = folder / "image.nand"
    assert cli.run(["create", str(image), "--size", "32M"]) == 0
    with Device.open(image, ftl="pagemap") as device:
        for lpa in range(64):
            device.write(lpa * 4096, bytes([lpa]) * 4096)
    trace = folder / "trace.csv"
    lines = (f"{i},W,{i % 9 * 4096},4096\n" for i in range(40))
    trace.write_text("time_us,op,offset_bytes,length_bytes\n" + "".join(lines))
    return {"IMAGE": str(image), "TRACE": str(trace), "NEW": str(folder / "new.nand")}


def typed(line: str, files: dict[str, str], columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a command prints on a terminal of that width."""
    Path(files["NEW"]).unlink(missing_ok=True)
    out = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(show, "console", lambda stderr=False: console(io.StringIO() if stderr else out, columns))
        assert cli.run([files.get(word, word) for word in line.split()]) == 0
    return out.getvalue().splitlines()


def console(stream: TextIO, columns: int) -> Console:
    return Console(file=stream, width=columns, highlight=False, color_system=None)


def words_of(lines: list[str]) -> set[str]:
    """Without what only draws, and without fractions, which may be of seconds."""
    return {word for line in lines for word in line.split() if word.strip("─│┃━╸╺═ ") and "." not in word}


def test_every_command_is_here() -> None:
    typed_here = {line.split()[0] for line in COMMANDS}
    assert typed_here | ELSEWHERE == names()
    assert not typed_here & ELSEWHERE


@pytest.mark.parametrize("line", COMMANDS)
def test_nothing_is_cut(line: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = (typed(line, files, columns, monkeypatch) for columns in (WIDE, NARROW))
    assert too_long(narrow, files) == []
    assert not any("…" in text for text in narrow)
    if not line.startswith(("crash", "clone")):  # whose rates, or UUID, are never twice the same
        assert words_of(wide) <= words_of(narrow)


def too_long(lines: list[str], files: dict[str, str]) -> list[str]:
    """Lines over the edge, but for those with a path or a command in them."""
    over = [line for line in lines if len(line.rstrip()) > NARROW]
    return [line for line in over if "flashfs " not in line and not any(path in line for path in files.values())]


def campaigns() -> list[Result]:
    """As campaigns end that found something, each kind with numbers as large as they get."""
    kill = KillResult("learnedftl", "kill", 4294967295)
    kill.fs, kill.writer, kill.cuts, kill.cases = "btrfs", "sqlite-delete", 1_000_000, 1_000_000
    own = WorkloadResult("examples.hotcold:HotCold", "workload", 4294967295, fs="ext4", flushes=123456, marks=99999)
    own.operations, own.cuts, own.cases, own.failed, own.seconds = 12_345_678, 1000, 1000, 1, 12345.67
    own.failures = [WorkloadFailure("flush:1", "a mark", "--check ended with 1", ["x" * 300], f"flashfs crash {LINE}")]
    return [kill, own]


@pytest.mark.parametrize("which", [0, 1])
def test_a_campaign_that_found_something(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed and names are whole, and the line that is to be copied is one line."""
    from flashfs.cli.crash_common import tell

    out = Terminal()
    result = campaigns()[which]
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(show, "console", lambda stderr=False: console(out, NARROW))
    tell([result], False)
    words = out.getvalue().split()
    assert {"4294967295", result.ftl, result.as_dict()["fs"], f"{result.cuts:,}"} <= set(words)
    assert not result.failures or f"flashfs crash {LINE}" in out.getvalue()


def test_a_title_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be a path, and is wider than its table."""
    title = "/" + "/".join(["a-folder"] * 20) + "/and a blank.csv"
    for columns in (NARROW, WIDE):
        monkeypatch.setattr(show, "console", lambda stderr=False, columns=columns: console(sys.stdout, columns))
        show.rows([{"name": "a", "n": 1}], title=title)
        assert title in [line.strip() for line in capsys.readouterr().out.splitlines()]
