"""The house stands as docs/design.md draws it: arrows run one way, and no files need each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import import_graph  # noqa: E402

from flashfs.ftl import ROOMS, SCHEMES  # noqa: E402

#: each may need those behind it and what they need, and nothing else
MAY = {
    "nandimg": set(),
    "engine": {"nandimg"},
    "ftl": {"engine", "nandimg"},
    "flashfs": {"api", "ftl", "engine", "nandimg", "replay"},  # api, replay: when somebody asks for what is in them
    "api": {"fuse", "replay", "flashfs", "ftl", "nandimg"},
    "replay": {"flashfs", "ftl", "engine", "nandimg"},
    "formulas": set(),
    "reproduce": {"formulas", "replay", "flashfs", "ftl", "engine", "nandimg"},
    "inspect": {"flashfs", "ftl", "engine", "nandimg"},
    "fuse": {"inspect", "replay", "flashfs", "ftl", "engine", "nandimg"},
    "crash": {"fuse", "inspect", "flashfs", "ftl", "engine", "nandimg"},
    "nbd": {"fuse", "inspect", "flashfs", "ftl", "engine", "nandimg"},
    "check": {"crash", "flashfs", "ftl", "engine", "nandimg"},
    "watch": {"fuse"},
    "scaffold": {"ftl"},
}


@pytest.fixture(scope="module")
def house() -> tuple[dict[str, set[import_graph.Need]], set[str]]:
    return import_graph.read(ROOT)


def test_no_files_need_each_other(house: tuple[dict[str, set[import_graph.Need]], set[str]]) -> None:
    assert import_graph.circles(*house) == []


def test_arrows_run_one_way(house: tuple[dict[str, set[import_graph.Need]], set[str]]) -> None:
    found: dict[str, set[str]] = {}
    for one, two in import_graph.arrows(*house):
        found.setdefault(room(one), set()).add(room(two))
    for name, may in MAY.items():
        assert found.get(name, set()) - {name} <= may, name


def test_no_scheme_needs_another(house: tuple[dict[str, set[import_graph.Need]], set[str]]) -> None:
    rooms = {f"flashfs/ftl/{folder}" for folder in ROOMS.values()}
    for one, two in import_graph.arrows(*house):
        assert not (one in rooms and two in rooms), (one, two)
        assert two not in rooms or one == "flashfs/ftl", (one, two)


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "flashfs").mkdir()
    (tmp_path / "flashfs/a.py").write_text("from flashfs import b\n")
    (tmp_path / "flashfs/b.pyx").write_text("def f():\n    from flashfs.c import d\n")
    (tmp_path / "flashfs/c.py").write_text("import flashfs.a\n")
    assert import_graph.circles(*import_graph.read(tmp_path)) == [["flashfs.a", "flashfs.b", "flashfs.c"]]


def test_each_of_ours_has_its_page() -> None:
    for name, scheme in SCHEMES.items():
        assert (ROOT / scheme.manual).is_file(), name
        assert name in (ROOT / scheme.manual).read_text()


def room(folder: str) -> str:
    """ftl for the schemes' folders too."""
    parts = folder.split("/")
    return parts[1] if len(parts) > 1 else parts[0]


def test_no_two_files_of_tests_share_a_name() -> None:
    """Without packages pytest knows a file by its name alone: the second of two is an error of collection."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)
