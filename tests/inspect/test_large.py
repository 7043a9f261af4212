"""Dumps of large chips that hold little: what was never written costs next to nothing, in time and in lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flashfs import cli, inspect
from flashfs.device import Device
from nandimg import create
from nandimg.presets import PRESETS


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 GiB of flash, 65,536 blocks, and 8 MiB in it."""
    path = tmp_path_factory.mktemp("large") / "chip"
    create(path, PRESETS["geckoftl-32g"].geometry)
    with Device.open(path, ftl="slimftl") as device:
        device.write(0, bytes(range(256)) * (8 << 12))
    return path


def test_blocks_and_html(capsys: pytest.CaptureFixture[str], large: Path) -> None:
    """The table read all of seven pages of each block, and had a line for each: two minutes."""
    began = time.process_time()
    assert cli.run(["dump", str(large), "blocks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 2000
    assert any(" to " in line for line in lines)
    assert cli.run(["dump", str(large), "--html", str(large.with_suffix(".html"))]) == 0
    assert time.process_time() - began < 30


def test_two_tebibytes_of_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each block was looked at eight times, and each look took a page of memory: three minutes."""
    chip = tmp_path / "chip"
    assert cli.run(["create", str(chip), "--size", "2T"]) == 0
    began = time.process_time()
    assert cli.run(["dump", str(chip), "--html", str(tmp_path / "page.html")]) == 0
    assert time.process_time() - began < 8
    assert "2,306,872 blocks" in capsys.readouterr().out
    assert (tmp_path / "page.html").stat().st_size > 100_000  # of 32,492 cells


def test_how_far_a_page_is(large: Path) -> None:
    said: list[float] = []
    inspect.html(large, progress=said.append)
    assert said == sorted(said)
    assert (said[0], len(said) > 16, said[-1] < 1) == (0, True, True)


def test_progress_and_folding(large: Path) -> None:
    said: list[float] = []
    rows = inspect.blocks(large, progress=said.append)
    assert len(rows) == 65_536
    assert said[0] == 0
    assert said == sorted(said)
    assert len(said) == 64
    short = inspect.folded(rows)
    covered = 0
    for row in short:
        first, _, last = str(row["block"]).partition(" to ")
        assert int(first) == covered
        covered = int(last or first) + 1
    assert covered == len(rows)
    assert sum(row["next_page"] for row in short) >= (8 << 20) // 4096
    assert inspect.folded(rows[:100]) == rows[:100]
