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
from flashfs.cli import ftls, show
from flashfs.device import Device
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
                except OSError:  # EIO: the other side is closed
                    break
                found += part
        assert process.returncode == 0
    finally:
        for one in {main, side} - {-1}:
            os.close(one)
    return found.decode().splitlines()


@pytest.mark.parametrize(("command", "names"), [("presets --all", list(PRESETS)), ("ftls", list(SCHEMES))])
def test_no_name_is_split_at_80_columns(command: str, names: list[str]) -> None:
    lines = on_terminal(*command.split())
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.strip() and line[1:2].strip("─ ")][1:] == names
    assert len(lines) < 3.5 * len(names)


@pytest.mark.parametrize("command", ["presets", "ftls"])
def test_a_pipe_gets_no_filling(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert cli.run([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(len(line) for line in lines if "─" in line) <= show.PICTURE_COLUMNS
    assert max(map(len, lines)) < 200  # each text of a result is in one line, without another's padding before it


def test_one_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["presets", "leaftl-2t"]) == 0
    out = capsys.readouterr().out
    assert "LeaFTL, ASPLOS'23, table 1" in out
    assert "geometry.oob_bytes" in out
    assert cli.run(["presets", "tiny-8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["geometry"] == PRESETS["tiny-8"].geometry.as_dict()
    assert cli.run(["presets", "leaftl2t"]) == 2
    assert "no preset is called 'leaftl2t' (did you mean leaftl-2t?)" in capsys.readouterr().err


def test_where_the_page_of_an_ftl_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel has no docs."""
    assert cli.run(["ftls", "dftl"]) == 0
    assert "docs/ftl/dftl.md\n" in capsys.readouterr().out
    monkeypatch.setattr(ftls, "ROOT", Path("/nonesuch"))
    assert cli.run(["ftls", "dftl"]) == 0
    assert "docs/ftl/dftl.md, in the source archive of flashfs" in capsys.readouterr().out
    assert cli.run(["ftls", "dftl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manual"] == "docs/ftl/dftl.md"


def test_a_table_as_wide_as_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side where there is room for it, else some columns at a time, or a row at a time: no word is split."""
    numbers = [{"block": i, **{f"field {k}": 10**k for k in range(9)}} for i in range(3)]
    texts = [{"name": f"row {i}", "says": "word " * 30, **{f"path{k}": "/a/" * 9 for k in range(4)}} for i in range(2)]
    monkeypatch.setattr(show, "PIPE_COLUMNS", 80)
    for data, n, tables in ((numbers, 10, 1), (numbers, 60, 2), (texts, 80, 2), (texts, 30, 2)):
        monkeypatch.setattr(show, "PIPE_COLUMNS", n if n > 10 else 200)
        show.rows(data, "the title")
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= max(n, 60) or n == 10
        assert sum("the title" in line for line in lines) == 1
        heads = [line for line in lines if line.lstrip().startswith(("block", "name"))]
        assert len(heads) == tables
    show.rows(numbers)
    out = capsys.readouterr().out
    assert all(f"{10**k:,}" in out for k in range(9))


def test_blocks_and_results_at_80_columns(tmp_path: Path) -> None:
    """`checkpoint` was in three lines, and a number in two."""
    image = str(tmp_path / "chip")
    assert cli.run(["create", image, "--size", "32M"]) == 0
    with Device.open(image, ftl="leaftl") as device:
        device.write(0, bytes(4096))
    lines = on_terminal("dump", image, "blocks")
    assert max(map(len, lines)) <= 80
    assert any("checkpoint" in line.split() for line in lines)
    assert {len(line.split()) for line in lines if "checkpoint" in line} == {10}
    lines = on_terminal("dump", image, "recovery")
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if 0 < len(line.strip()) < 3]
    ftls = ["pagemap", "dftl", "leaftl", "slimftl", "sftl"]
    lines = on_terminal("replay", "uniform:ops=100k", "--ftl", ",".join(ftls), "--size", "64M")
    assert not [line for line in lines if len(line) > 80 and "flashfs:" not in line]
    assert [word for line in lines for word in line.split() if word in ftls and "ground" not in line] == ftls
    assert sum(line.startswith(" host pages written") for line in lines) == 2
    assert not [line for line in lines if line.rstrip().endswith(" -") and not set(line.split()[-2:]) - {"-"}]
