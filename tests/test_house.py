"""The house stands as docs/design.md draws it: arrows run one way, and no files need each other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import import_graph  # noqa: E402

from flashfs.ftl import ROOMS, SCHEMES  # noqa: E402

#: each may need those after the colon, and nothing else; of the rooms that are no folder of a folder, the folder
FLOORS = {
    "nandimg": "",
    "engine": "nandimg",
    "engine/blocks": "engine nandimg",
    "engine/contract": "engine/blocks engine nandimg",
    "engine/device": "engine/contract engine/blocks engine nandimg",
    "engine/views": "engine/device engine/contract engine/blocks engine nandimg",
    "engine/recovery": "engine/device engine/contract engine/blocks engine nandimg",
    "parts/defaults": "ENGINE",
    "parts/battery": "parts/defaults ENGINE",
    "parts/paged": "parts/battery parts/defaults ENGINE",
    "parts/validity": "parts/paged parts/battery parts/defaults ENGINE",
    "parts/from_pages": "parts/validity parts/paged parts/defaults ENGINE",
    "parts/superblocks": "parts/defaults ENGINE",
    "parts/python": "parts/defaults ENGINE",
    "ftl": "flashfs PARTS ENGINE",  # flashfs: its _core is the door for schemes
    "sizing": "nandimg",
    "flashfs": "sizing api ftl PARTS ENGINE replay",  # api, replay: imported at the first use of their names
    "api": "inspect fuse replay flashfs sizing ftl nandimg",
    "formulas": "",
    "replay": "formulas flashfs ftl PARTS ENGINE",
    "comparison": "replay flashfs ftl PARTS ENGINE",
    "reproduce": "formulas replay flashfs ftl PARTS ENGINE",
    "inspect": "flashfs ftl PARTS ENGINE",
    "fuse": "inspect replay flashfs ftl PARTS ENGINE",
    "crash": "fuse inspect flashfs ftl PARTS ENGINE",
    "nbd": "fuse flashfs ftl PARTS ENGINE",
    "check": "crash flashfs ftl PARTS ENGINE",
    "watch": "fuse inspect replay flashfs ENGINE",
    "scaffold": "ftl",
}
ENGINE = {"nandimg", *(name for name in FLOORS if name.startswith("engine"))}
PARTS = {name for name in FLOORS if name.startswith("parts")}


def may_need(name: str) -> set[str]:
    words = set(FLOORS[name].split())
    for word, rooms in (("ENGINE", ENGINE), ("PARTS", PARTS)):
        if word in words:
            words = words - {word} | rooms
    return words


@pytest.fixture(scope="module")
def house() -> tuple[dict[str, set[import_graph.Need]], set[str]]:
    return import_graph.read(ROOT)


def test_no_files_need_each_other(house: tuple[dict[str, set[import_graph.Need]], set[str]]) -> None:
    """But those of the contract: it is one interface, and a file a part."""
    found = import_graph.circles(*house)
    assert [group for group in found if not all(name.startswith("flashfs.engine.contract.") for name in group)] == []


def test_arrows_run_one_way(house: tuple[dict[str, set[import_graph.Need]], set[str]]) -> None:
    found: dict[str, set[str]] = {}
    for one, two in import_graph.arrows(*house):
        found.setdefault(room(one), set()).add(room(two))
    assert set(found) - {"cli"} <= set(FLOORS), "a room without a floor: give it one above"
    for name in FLOORS:
        assert found.get(name, set()) - {name} <= may_need(name), name


def test_floors_lie_one_above_the_other() -> None:
    """What may need another may not be needed by it; the doors of the package alone, inside functions."""
    doors = {"flashfs", "api", "replay"}
    for name in FLOORS:
        for other in may_need(name) - doors - {name}:
            assert name in doors or name not in may_need(other), (name, other)


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


def test_each_folder_has_its_line() -> None:
    """In the table of docs/design.md that says why it is one."""
    page = (ROOT / "docs/design.md").read_text()
    folders = [path.parent.name for path in (ROOT / "flashfs").glob("*/__init__.py")]
    assert [name for name in folders if f"\n| `flashfs/{name}/` |" not in page] == []


def test_each_of_ours_has_its_page() -> None:
    for name, scheme in SCHEMES.items():
        assert (ROOT / scheme.manual).is_file(), name
        assert name in (ROOT / scheme.manual).read_text()


def room(folder: str) -> str:
    """engine/device, parts/paged; ftl for the schemes' folders too, crash for what lies in it."""
    parts = folder.split("/")[1:] or [folder]
    return "/".join(parts[:2]) if parts[0] in ("engine", "parts") else parts[0]


def test_no_two_files_of_tests_share_a_name() -> None:
    """Without packages pytest knows a file by its name alone: the second of two is an error of collection."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)


DEALLOC = re.compile(r"    def __dealloc__\(self\):\n((?:        .*\n|\n)+)")
CLASS = re.compile(r"^((?:@\S+\n)*)cdef class (\w+)(\(\w+\))?:", re.MULTILINE)


def test_a_dealloc_calls_what_no_subclass_has() -> None:
    """Where the base's ``__cinit__`` fails, for want of memory, an object dies that has the base's table of methods: a
    call that goes through it ends anywhere."""
    wrong = []
    for path in (*ROOT.glob("flashfs/**/*.pyx"), *ROOT.glob("nandimg/*.pyx")):
        text = path.read_text()
        for found in DEALLOC.finditer(text):
            head, name, base = CLASS.findall(text[: found.start()])[-1]
            of_class = text[text.index(f"cdef class {name}") :]
            wrong += [
                f"{path.name}: {name}.{called}" for called in re.findall(r"self\.(\w+)\(", found[1])
                if base and "@cython.final" not in head
                and not re.search(rf"@cython\.final\n    cdef [\w* ]*\b{called}\(", of_class)
            ]  # fmt: skip
    assert wrong == []


def test_calls_through_the_device_are_those_that_are_drawn() -> None:
    """docs/design/device.md, "Who may call what": a call that is new may close a circle."""
    text = (ROOT / "docs/design/device.md").read_text()
    drawn = [(set(re.findall(r"`(\w+)`", calls)), set(by.split(", ")))
             for calls, by in re.findall(r"^\| (`[a-z_`, ]+`) \| ([a-z_/, ]+) \|$", text, re.M)]  # fmt: skip
    assert len(drawn) == 5
    for calls, by in drawn:
        made = set()
        for room in ("engine", "parts", "ftl"):
            for path in (ROOT / "flashfs" / room).rglob("*.pyx"):
                if re.search(rf"\bssd\.({'|'.join(calls)})\(", path.read_text()):
                    made.add(f"{path.parent.name}/{path.stem}" if room == "ftl" else path.stem)
        assert made == by, calls
