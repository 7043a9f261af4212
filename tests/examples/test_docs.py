"""What docs/python-ftl.md shows is what is there, runs, and prints what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python-ftl.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield


def test_files_are_shown_as_they_are() -> None:
    shown = [(name, text) for _, name, text in BLOCK.findall(PAGE.read_text()) if name]
    assert [name for name, _ in shown] == ["examples/minimal.py"]
    for name, text in shown:
        assert (ROOT / name).read_text() == text


def test_examples_run_and_print_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("docs")  # the classes in it are found by --ftl docs:Class
    monkeypatch.setitem(sys.modules, "docs", module)
    ran = 0
    for language, name, text in BLOCK.findall(PAGE.read_text()):
        if language == "python" and not name:
            exec(compile(text, str(PAGE), "exec"), module.__dict__)
            ran += 1
        elif language == "text":
            assert capsys.readouterr().out == text
    assert ran == 3


def test_the_tutorial_is_short() -> None:
    assert len((ROOT / "examples" / "tutorial.py").read_text().splitlines()) <= 150
    for name in ("minimal", "tutorial", "hotcold"):
        assert f"examples/{name}.py" in PAGE.read_text()
