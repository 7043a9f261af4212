"""Tables as they are read: at 80 columns no name is split, and a pipe gets no filling."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from flashfs import cli
from flashfs.cli import show
from flashfs.ftl import SCHEMES
from nandimg.presets import PRESETS

ROOT = Path(__file__).parents[2]


def on_terminal(*arguments: str, columns: int = 80) -> list[str]:
    """The lines that a command prints on a terminal of that width."""
    main, side = pty.openpty()
    try:
        termios.tcsetwinsize(side, (50, columns))
        code = "import sys; from flashfs.cli import main; sys.exit(main())"
        environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
        environment.pop("COLUMNS", None)
        with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=side, env=environment) as process:
            os.close(side)
            side = -1
            found = b""
            while True:
                try:
                    part = os.read(main, 1 << 16)
                except OSError:  # EIO: nobody has the other side any more
                    break
                found += part
        assert process.returncode == 0
    finally:
        for one in {main, side} - {-1}:
            os.close(one)
    return found.decode().splitlines()


@pytest.mark.parametrize(("command", "names"), [("presets", list(PRESETS)), ("ftls", list(SCHEMES))])
def test_no_name_is_split_at_80_columns(command: str, names: list[str]) -> None:
    lines = on_terminal(command)
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.strip() and line[1:2].strip("─ ")][1:] == names
    assert len(lines) < 3.5 * len(names)


@pytest.mark.parametrize("command", ["presets", "ftls"])
def test_a_pipe_gets_no_filling(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert cli.run([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(len(line) for line in lines if "─" in line) <= show.PICTURE_COLUMNS
    assert max(map(len, lines)) < 200  # each of a result's texts is in one line, and none behind another's filling


def test_one_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["presets", "leaftl-2t"]) == 0
    out = capsys.readouterr().out
    assert "LeaFTL, ASPLOS'23, table 1" in out
    assert "geometry.oob_bytes" in out
    assert cli.run(["presets", "tiny-8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["geometry"] == PRESETS["tiny-8"].geometry.as_dict()
    assert cli.run(["presets", "leaftl2t"]) == 2
    assert "no preset is called 'leaftl2t' (did you mean leaftl-2t?)" in capsys.readouterr().err


def test_what_is_not_folded() -> None:
    assert show.unfolded([10, 4, 60], 80) == {0, 1}
    assert show.unfolded([10, 20, 20, 20, 60], 80) == {0}  # no room for all of them
    assert show.unfolded([60, 60], 80) == set()
