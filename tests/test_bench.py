"""`python bench`: every measurement is there, and can begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if "\ndef main()" in path.read_text())[1:]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench"), *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_all_are_listed_with_what_they_are() -> None:
    said = bench()
    assert said.returncode == 0
    rows = [line.split(maxsplit=1) for line in said.stdout.splitlines() if line.startswith("  ")]
    assert sorted(row[0] for row in rows if len(row) == 2 and row[0] != "python") == NAMES
    assert len(NAMES) > 20


def test_one_that_is_not_there() -> None:
    said = bench("nothing")
    assert (said.returncode, said.stderr.count("\n")) == (2, 1)
    assert said.stderr.startswith("bench: nothing: there is ")


def test_one_by_its_name_from_anywhere() -> None:
    said = bench("leaftl-dram", "--help")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("usage: bench leaftl_dram [-h]")


def test_what_they_need_is_there() -> None:
    """Without this test, a renamed function is noticed only at the next measurement. In a process of
    its own: some of them bring schemes along."""
    program = (
        "import sys; from importlib import import_module; from flashfs.ftl import SCHEMES; before = list(SCHEMES)\n"
        "for name in sys.argv[1:]: assert callable(import_module(f'bench.{name}').main)\n"
        "assert list(SCHEMES) == before, 'an import registers a scheme'"
    )
    command = [sys.executable, "-c", program, *NAMES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["scale", "recovery", "gecko", "geckorec"])
def test_the_page_has_the_table_of_the_raw_results(name: str) -> None:
    made = (
        f"import sys; sys.path.insert(0, '.'); from bench import {name} as bench\n"
        "pages = {path: lambda text, path=path: bench.page(path, text) for path in getattr(bench, 'PAGES', ())}\n"
        "texts = {path: (path.read_text(), made) for path, made in (pages or {bench.PAGE: bench.page}).items()}\n"
        "print(all(made(text) == text and text.count(bench.MARKS[0]) == 1 for text, made in texts.values()))"
    )
    said = subprocess.run([sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
