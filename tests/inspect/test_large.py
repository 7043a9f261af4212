"""Dumps of large chips that hold little: what was never written costs next to nothing, in time and in lines."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from flashfs import cli, inspect
from flashfs.device import Device
from nandimg import create, open_image
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
    rows = inspect.blocks(large)
    assert [row["block"] for row in rows] == list(range(65_536))
    assert [row["die"] for row in rows[:9]] == [block % PRESETS["geckoftl-32g"].geometry.dies for block in range(9)]
    short = inspect.folded_blocks(large, progress=said.append)
    assert said[0] == 0
    assert said == sorted(said)
    assert len(short) < 2000
    assert list(inspect.unfolded(short, PRESETS["geckoftl-32g"].geometry.dies)) == rows
    assert sum(row["next_page"] for row in short) >= (8 << 20) // 4096


def test_neighbours_alike_are_one_row_and_others_are_not(tmp_path: Path) -> None:
    """What differs may be a block that was written, or only its erases or its health."""
    path = tmp_path / "chip"
    geometry = replace(PRESETS["geckoftl-32g"].geometry, blocks=5000, lpas=400_000)
    create(path, geometry)
    with closing(open_image(path)) as image:
        image.chip.mark_factory_bad(7)
        image.chip.used_before(4000, 3, 0)
        image.chip.program_page(4500, 0, bytes(geometry.page_bytes), bytes(20))
    short = inspect.folded_blocks(path)
    assert [str(row["block"]) for row in short] == ["0 to 6", "7", "8 to 3999", "4000", "4001 to 4499", "4500",
                                                    "4501 to 4999"]  # fmt: skip
    assert list(inspect.unfolded(short, geometry.dies)) == inspect.blocks(path)


#: two and a half million blocks, in a process that may have no more memory than this
BYTES_A_BLOCK, BASE_BYTES, LIMIT_S = 64, 700 << 20, 20
COMMANDS = (["blocks"], ["--html", "PAGE"])


@pytest.mark.parametrize("command", COMMANDS, ids=["blocks", "html"])
def test_the_memory_of_a_look_at_two_tebibytes(tmp_path: Path, command: list[str]) -> None:
    """13.5 GB and 21.6 GB of objects, one per block and field."""
    path = tmp_path / "chip"
    create(path, PRESETS["leaftl-2t"].geometry)
    limit = BASE_BYTES + BYTES_A_BLOCK * PRESETS["leaftl-2t"].geometry.blocks
    words = [str(tmp_path / "page.html") if word == "PAGE" else word for word in command]
    code = ("import resource, sys\n"
            f"resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))\n"
            f"resource.setrlimit(resource.RLIMIT_CPU, ({LIMIT_S}, {LIMIT_S}))\n"
            "from flashfs import cli\n"
            "sys.exit(cli.run(sys.argv[1:]))")  # fmt: skip
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run([sys.executable, "-c", code, "dump", str(path), *words], stdout=out,
                              stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    assert (tmp_path / "out").stat().st_size < 4096
