"""`flashfs new-ftl`: what it makes builds and passes the checks; what it cannot make it says in a line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flashfs import cli

ROOT = Path(__file__).parents[2]
FILES_MOST = 8
BUILD_S = 300


def run(command: list[str], where: Path, **more: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(where), **more}
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def files(root: Path) -> set[str]:
    """Sources: neither what is compiled nor what a run leaves."""
    made = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in made if path.suffix not in (".c", ".cpp", ".so", ".pyc", ".o") and
            path.parts[0] not in ("build", ".pytest_cache")}  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy with what is compiled already."""
    root = tmp_path / "checkout"
    for name in ("nandimg", "flashfs", "tests/engine", "tests/replay", "tests/ftl", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.cpp"))
    for name in ("setup.py", "pyproject.toml", "tests/golden.py", "tests/schemes.py"):
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.mark.parametrize("checks", ["names,content", pytest.param("", marks=pytest.mark.slow)])
def test_a_compiled_one_builds_and_passes(checkout: Path, checks: str) -> None:
    """With all checks, its golden counts and its tests where there is time for them."""
    flashfs = [sys.executable, "-m", "flashfs.cli"]
    before = files(checkout)
    said = json.loads(run([*flashfs, "new-ftl", "some_map", "--json"], checkout))
    assert {str(path) for path in said["files"]} == files(checkout) - before
    unbuilt = subprocess.run([*flashfs, "ftls"], cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)},
                             capture_output=True, text=True)  # fmt: skip
    assert unbuilt.returncode == 0  # no other scheme is any the worse for it
    assert "`make setup` compiles" in unbuilt.stderr
    assert unbuilt.stderr.count("\n") == 1
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    run(build, checkout, FLASHFS_ONLY="flashfs/ftl/some_map/mapping.pyx")
    assert any(row["name"] == "some_map" for row in json.loads(run([*flashfs, "ftls", "--json"], checkout)))
    only = ["--only", checks] if checks else []
    report, = json.loads(run([*flashfs, "check", "some_map", *only, "--json"], checkout))
    assert {one["result"] for one in report["checks"]} == {"pass"}
    if checks:
        return
    for command in said["next"][2:]:
        run([sys.executable, *command.split()[1:]], checkout)
    run([sys.executable, "-m", "pytest", "-q", "tests/ftl/some_map", "tests/engine/test_golden.py", "-k", "some_map"],
        checkout)  # fmt: skip
    made = files(checkout) - before
    assert "tests/ftl/some_map/golden.json" in made
    bug, = tomllib.loads((checkout / "tests/ftl/some_map/bugs.toml").read_text())["bug"]
    assert (checkout / "flashfs/ftl/some_map/mapping.pyx").read_text().count(bug["old"]) == 1
    assert len(made) <= FILES_MOST, made
    assert not before - files(checkout)


def test_one_in_python_passes(tmp_path: Path) -> None:
    flashfs = [sys.executable, "-m", "flashfs.cli"]
    run([*flashfs, "new-ftl", "an_idea", "--python", "--folder", str(tmp_path)], ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["an_idea.py"]
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    report, = json.loads(run([*flashfs, "check", "an_idea:AnIdea", "--only", "names,rules,content,clean", "--json"],
                             ROOT, PYTHONPATH=path))  # fmt: skip
    assert {one["result"] for one in report["checks"]} == {"pass"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pagemap"], "FTL pagemap: there is one of that name; use another name"),
        (["Mine"], "use small letters, digits and single underscores between them"),
        (["../up"], "FTL '../up': use small letters"),
        (["9lives"], "FTL '9lives': it must begin with a letter"),
        (["a" * 33], "use 32 letters at most"),
        (["class"], "Python has that word; use another name"),
        (["common", "--folder", str(ROOT)], "FTL common: flashfs/ftl/common.py is something else"),
        (["mine", "--folder", "/nonesuch"], "/nonesuch: no checkout of flashfs, setup.py is missing"),
        (["mine", "--python", "--folder", "/nonesuch"], "/nonesuch: no such folder"),
    ],
)
def test_what_will_not_do(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["new-ftl", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("precious")
    assert cli.run(["new-ftl", "mine", "--python", "--folder", str(tmp_path)]) == 2
    assert "mine.py exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "precious"
