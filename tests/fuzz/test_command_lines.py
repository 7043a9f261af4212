"""Senseless command lines."""

from __future__ import annotations

from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from fuzz_bases import bases
from fuzz_cli import WORDS, CommandLines
from hypothesis import HealthCheck, given, settings

from flashfs import cli
from flashfs.cli import show


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> CommandLines:
    """Over images of two schemes: the words of a command know no scheme."""
    made = bases()
    return CommandLines(tmp_path_factory.mktemp("lines") / "folder", [*made.of("pagemap"), *made.of("leaftl")])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_senseless_command_lines(lines: CommandLines, seed: int) -> None:
    lines.run(Random(seed))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from(["create", "dump", "fsck", "ftls", "presets", "top", "umount", "down", "remap"]),
       words=st.lists(st.one_of(st.sampled_from(WORDS), st.text(st.characters(exclude_characters="\0"), max_size=9)),
                      max_size=4))  # fmt: skip
def test_any_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = cli.run([command, *(word for word in words if not word.startswith("/") and word not in ("--size", "1G"))])
    said = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert said.count("\n") <= 1
    assert "internal error" not in said
    assert said.rstrip("\n").isprintable()
    for made in tmp_path.iterdir():
        if made.is_file():
            made.unlink()


def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Names are other people's: of files, and of what an image says of itself."""
    assert show.printable("a\x1b[2Jb\udcffc\nd\u202e") == r"a\x1b[2Jb\udcffc\nd\u202e"
    assert cli.run(["fsck", str(tmp_path / "\x1b[31m\udcff")]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_a_circle_of_links(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for words in (
        ["mount", "x", "loop"],
        ["mount", "loop", "."],
        ["umount", "loop"],
        ["fsck", "loop"],
        ["dump", "loop"],
    ):
        where = [str(tmp_path / word) if word in ("loop", ".") else word for word in words]
        assert cli.run(where) in (1, 2)
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "internal error" not in said


@pytest.mark.parametrize(
    "line", ["'", "cut=99999999999999999999:after program=w0", "cut=0:before program=w0", "cut=-1 program=w0"]
)
def test_replay_lines_that_are_none(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert cli.run(["crash", "replay", line]) == 2
    assert capsys.readouterr().err.startswith("flashfs: replay line: ")
