"""The man pages say what the help says, and the command says its version and completes itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flashfs
from flashfs.cli import run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import manpages  # noqa: E402

TOUCHED = "man/flashfs-mount.1: is not up to date: make man\n"


def test_every_page_is_up_to_date() -> None:
    stale = {name for name, page in manpages.pages().items() if (manpages.MAN / name).read_text() != page}
    assert stale == set(), "make man"
    assert {path.name for path in manpages.MAN.glob("*.1")} == set(manpages.pages())


def test_each_option_of_a_command_is_on_its_page() -> None:
    page = manpages.pages()["flashfs-mount.1"].replace("\\-", "-")
    for words in ("--ftl", "--allow-other", "-v\\fR, \\fB--verbose", "\\fIIMAGE\\fR", "[default: auto]", "flashfs (1)"):
        assert words in page
    assert {"flashfs.1", "flashfs-recovery-model.1", "flashfs-crash-replay.1"} <= manpages.pages().keys()


def test_the_check_tells_stale_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manpages, "MAN", tmp_path)
    monkeypatch.setattr(sys, "argv", ["manpages.py"])
    assert manpages.main() == 0
    (tmp_path / "flashfs-mount.1").write_text("")
    (tmp_path / "flashfs-gone.1").write_text("")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["manpages.py", "--check"])
    assert manpages.main() == 1
    assert capsys.readouterr().out == "man/flashfs-gone.1: is not up to date: make man\n" + TOUCHED
    monkeypatch.setattr(sys, "argv", ["manpages.py"])
    assert manpages.main() == 0
    assert not (tmp_path / "flashfs-gone.1").exists()


@pytest.mark.parametrize("line", [".TH not a macro", "'quoted", "a\\b -- c"])
def test_no_text_is_a_macro(line: str) -> None:
    assert not manpages.text(line).startswith((".", "'"))
    assert "\\e" in manpages.text(line) or "\\" not in line


def test_groff_finds_nothing_wrong() -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff")
    pages = sorted(str(path) for path in manpages.MAN.glob("*.1"))
    done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", *pages], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"flashfs {flashfs.__version__}\n"
    written = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert written is not None
    assert written[1] == flashfs.__version__


@pytest.mark.parametrize(
    ("shell", "asks"),
    [
        ("bash", {"COMP_WORDS": "flashfs umo", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "flashfs umo"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "flashfs umo", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_completion(shell: str, asks: dict[str, str]) -> None:
    code = "import sys; from flashfs.cli import main; sys.argv = ['flashfs']; main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    for how, expected in ((f"source_{shell}", "_FLASHFS_COMPLETE"), (f"complete_{shell}", "umount")):
        words = {**env, **asks, "_FLASHFS_COMPLETE": how}
        done = subprocess.run([sys.executable, "-c", code], env=words, capture_output=True, text=True, timeout=60)
        assert expected in done.stdout, done.stderr
