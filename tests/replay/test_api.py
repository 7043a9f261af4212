"""``flashfs.replay(...)`` and ``flashfs.sweep(...)`` give what the commands give."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_files import DATA

import flashfs
import flashfs.replay
from flashfs import cli
from flashfs.cli.replay import command
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import api, grid, results

MEASURED = ("wall_s", "pages_per_s")
SOURCES = ["uniform:ops=2k,write=0.5", str(DATA / "msr.csv")]


def figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what the clock says."""
    return [{name: value for name, value in row.items() if name not in MEASURED} for row in rows]


def test_the_package_is_a_function_too() -> None:
    assert inspect.ismodule(flashfs.replay)
    assert callable(flashfs.replay)
    assert inspect.signature(flashfs.replay) == inspect.signature(api.replay)
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        flashfs.nonesuch  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        flashfs.replay.nonesuch  # noqa: B018


def test_the_same_as_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--preset", "small-64m", "--dram", "2M", "--qd", "4", "--precondition", "fill", "--fit", "wrap"]
    flags += ["--opt", "buffer=8", "--opt", "shift=2", "--ftl", "pagemap,slimftl"]
    assert cli.run(["replay", *SOURCES, *flags, "--json", "--full", "--out", str(tmp_path / "r.parquet")]) == 0
    printed = json.loads(capsys.readouterr().out)
    table = flashfs.replay(
        SOURCES, ftl=["pagemap", "slimftl"], opt={"buffer": 8, "shift": 2}, preset="small-64m", dram="2M", qd=4,
        precondition="fill", fit="wrap",
    )  # fmt: skip
    assert figures(table.to_dicts()) == figures(results.frame([results.row(one) for one in printed]).to_dicts())
    written = results.read([tmp_path / "r.parquet"])
    assert written.columns == table.columns
    assert figures(written.to_dicts()) == figures(table.to_dicts())
    assert table["config.options.shift"].to_list() == [None, 2, None, 2]


def test_a_bad_name_is_told_before_anything_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["replay", "uniform:ops=100", "--out", "r.xls"]) == 2
    assert capsys.readouterr() == ("", "flashfs: --out r.xls: use a name that ends in .parquet or .csv\n")


def test_what_is_decided_for_a_trace_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"msr\.csv: on a device of 1 GiB, which has all its addresses") as caught:
        table = flashfs.replay(str(DATA / "msr.csv"))
    assert caught[0].filename == __file__
    assert table["config.geometry.lpas"].to_list() == [(1 << 30) // 4096]


def test_keywords_are_the_flags() -> None:
    """But for those about printing and pages, a few that only Python has, and trust: there, ftl names the image's."""
    of_command = {"source" if name == "sources" else name for name in inspect.signature(command).parameters}
    of_function = set(inspect.signature(api.replay).parameters)
    assert of_command - of_function == {"baseline", "full", "as_json", "trust", "steps", "force"}
    assert of_function - of_command == {"seed", "jobs"}
    assert of_function - {"jobs", "out"} == {*grid.AXES, grid.OPTIONS}


def test_rows_are_put_behind_others(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    for seed in (1, 2):
        flashfs.replay("uniform:ops=100", preset="small-64m", seed=seed, out=path)
    assert results.read([path])["source"].to_list() == ["uniform:ops=100,seed=1", "uniform:ops=100,seed=2"]
    with pytest.raises(UsageError, match=r"--out r\.xls: use a name that ends in"):
        flashfs.replay("uniform:ops=100", out="r.xls")


def test_in_processes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"source": ["uniform:ops=1k", "zipf:ops=1k"], "preset": "small-64m", "dram": ["2M", "4M"]}
    assert figures(flashfs.replay(**given, jobs=2).to_dicts()) == figures(flashfs.replay(**given).to_dicts())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_replay_that_fails_is_an_exception(jobs: int) -> None:
    with pytest.raises(FlashfsError, match="pagemap, uniform:ops=10, dram=1 KiB: --dram 1024 is 1 KiB: pagemap needs "):
        flashfs.replay("uniform:ops=10", preset="small-64m", dram=["4M", "1k"], jobs=jobs)
    with pytest.raises(UsageError, match="dram = '4q': "):
        flashfs.replay("uniform:ops=10", dram="4q")
    with pytest.raises(TypeError, match="nonesuch"):
        flashfs.replay("uniform:ops=10", nonesuch=1)


def test_on_an_image(tmp_path: Path) -> None:
    assert cli.run(["create", str(tmp_path / "chip"), "--preset", "small-64m"]) == 0
    from flashfs.device import Device

    with Device.open(tmp_path / "chip", ftl="slimftl") as device:
        device.write(0, bytes(1 << 20))
    before = (tmp_path / "chip").read_bytes()
    table = flashfs.replay("uniform:ops=100,write=0", image=str(tmp_path / "chip"))
    assert table.select("ftl", "config.image").rows() == [("slimftl", str(tmp_path / "chip"))]
    assert (tmp_path / "chip").read_bytes() == before


def test_sweep(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('source = "uniform:ops=100"\npreset = "small-64m"\ndram = ["1k", "4M"]\n')
    table = flashfs.sweep(tmp_path / "s.toml", jobs=1)
    assert [error is None for error in table["error"]] == [False, True]
    assert results.read([tmp_path / "s"]).equals(table)
    given = {"source": "uniform:ops=100", "preset": "small-64m", "dram": ["4M", "8M"]}
    assert len(flashfs.sweep(given, tmp_path / "s", jobs=1)) == 2
    assert len(list((tmp_path / "s" / "points").iterdir())) == 3  # one was there
    with pytest.raises(UsageError, match="out: use a folder for the results"):
        flashfs.sweep(given)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    """What `flashfs --help` waits for."""
    heavy = ("matplotlib", "polars", "dask", "distributed", "numpy", "flashfs.replay.api", "flashfs.replay.results")
    script = f"import sys, flashfs, flashfs.cli; print([name for name in {heavy} if name in sys.modules])"
    root = str(Path(flashfs.__file__).parents[1])
    found = subprocess.run([sys.executable, "-c", script], check=True, text=True, stdout=subprocess.PIPE, cwd=root)
    assert found.stdout == "[]\n"
