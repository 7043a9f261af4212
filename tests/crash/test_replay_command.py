"""`flashfs crash replay`: what a line that no longer fits shows, and how it ends."""

from __future__ import annotations

import json

import pytest

from flashfs import cli


@pytest.mark.parametrize("line", ["", "ftl=pagemap", "cut=5:prefix"])
@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_line_without_a_program(capsys: pytest.CaptureFixture[str], command: str, line: str) -> None:
    assert cli.run(["crash", command, line]) == 2
    assert "it has no program; a line looks like: ftl=" in capsys.readouterr().err


def test_only_the_cut_that_never_fell_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["crash", "replay", "ftl=pagemap cut=5 cut=9000:prefix program='w0 f w1'"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("survived: 1 cuts")
    assert err.startswith("flashfs: cut=9000:prefix: never fell")


@pytest.mark.parametrize("word", ["cut=100000:prefix", "fail=100000", "fault=silent=100000"])
def test_what_never_fell_is_said(capsys: pytest.CaptureFixture[str], word: str) -> None:
    line = f"ftl=pagemap {word} program='w3 f'"
    assert cli.run(["crash", "replay", line]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("survived: 0 cuts")
    assert err.startswith(f"flashfs: {word}: never fell")
    assert cli.run(["crash", "replay", line, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["never_fell"] == [word]


def test_a_line_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["crash", "replay", "ftl=pagemap cut=5:prefix cut=2 program='w3 w4 f t3 w3+4'"]) == 0
    assert capsys.readouterr().err == ""
