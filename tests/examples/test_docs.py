"""What docs/python-ftl.md shows is what is there, runs, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from flashfs.ftl import SCHEMES, Scheme
from flashfs.scaffold import COMPILED

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


# --- other pages


def test_the_tutorial_of_a_compiled_scheme_shows_what_is_made() -> None:
    page = (ROOT / "docs/compiled-ftl.md").read_text()
    template = (ROOT / "flashfs/scaffold/mapping.pyx.in").read_text()
    blocks = [text for language, _, text in BLOCK.findall(page) if language == "cython"]
    assert len(blocks) == 4
    assert all(text in template for text in blocks)
    for path in COMPILED.values():
        assert path.format(name="mine") in page
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page.split("## What the scheme says of itself")[1], re.M)
    assert len(named) == 6
    for name in re.findall(r"`(\w+)`", " ".join(named)):
        assert name in {field.name for field in fields(Scheme)}


def test_the_index_has_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/README.md").read_text()))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked
    assert all((ROOT / "docs" / link).exists() for link in linked)


PAGES = ["CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("name", SCHEMES)
def test_each_scheme_has_a_page_with_the_same_headings(name: str) -> None:
    """And each option of its own is described there."""
    text = (ROOT / SCHEMES[name].manual).read_text()
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings[:3] == ["Idea", "Options", "Parts and files"]
    assert headings[-1] == "Measured"
    assert headings.index("Recovery") < headings.index("Decisions")
    options = text.partition("\n## Options\n")[2].partition("\n## ")[0]
    assert {option.name for option in SCHEMES[name].options} <= set(re.findall(r"`(\w+)`", options))


CLASS = re.compile(r"^(?:cdef )?class (\w+)(?:\(([\w., ]*)\))?:", re.M)


def test_what_the_design_says_of_classes_they_have() -> None:
    """Each `Class.name` of docs/design is a name in the class's files, or in those of a class that it is based on."""
    files: dict[str, list[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in (one for room in ("flashfs", "nandimg") for one in (ROOT / room).rglob("*.p*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            text = path.read_text()
            for name, over in CLASS.findall(text):
                files.setdefault(name, []).append(text)
                bases.setdefault(name, set()).update(re.findall(r"\w+", over))

    def has(cls: str, name: str) -> bool:
        found = any(re.search(rf"\b{name}\b", text) for text in files.get(cls, ()))
        return found or any(has(base, name) for base in bases.get(cls, ()) if base != cls)

    said = {one for page in (ROOT / "docs" / "design").glob("*.md")
            for one in re.findall(r"`([A-Z][A-Za-z]+)\.([a-z_]+)`", page.read_text())}  # fmt: skip
    assert len(said) > 10
    assert [f"{cls}.{name}" for cls, name in sorted(said) if not has(cls, name)] == []


@pytest.mark.parametrize("what", [[], ["--rooms"]], ids=["folders", "rooms"])
def test_the_house_is_drawn_as_it_is(what: list[str]) -> None:
    """`python tools/import_graph.py` prints it anew."""
    drawn = subprocess.run(
        [sys.executable, "tools/import_graph.py", *what], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert drawn in (ROOT / "docs/design.md").read_text()
