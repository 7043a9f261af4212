"""What campaigns noted becomes a page: which cuts of this version each FTL has survived."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from flashfs.crash import campaign

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("campaigns", ROOT / "tools" / "campaigns.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "survived"
    for seed in (3, 4):
        campaign.note_survivors(file, [campaign.run("leaftl", "random", seed, 40)])
    mine = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["sources"] for line in mine} == {campaign.sources("leaftl")}
    cuts = sum(line["cuts"] for line in mine)
    old = {"ftl": "dftl", "tier": "kill", "fs": "ext4", "writer": "files", "seed": 5, "cuts": 1_000, "on": "2026-01-02"}
    made = tool.page([*mine, old])
    now, _, before = made.partition("## Earlier versions")
    assert f"| `leaftl` | {cuts:,} (2) | {cuts:,} |" in now.splitlines()
    assert "dftl" not in now
    assert "| FTL | kill, ext4 files | in all |" in before.splitlines()
    assert "| `dftl` | 1,000 (1) | 1,000 |" in before.splitlines()


def test_the_sources_are_those_of_chip_engine_and_ftl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import flashfs

    for name in ("nandimg", "flashfs/engine", "flashfs/parts", "flashfs/ftl/dftl", "flashfs/ftl/leaftl", "flashfs/cli"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "one.py").write_text("")
    monkeypatch.setattr(flashfs, "__file__", str(tmp_path / "flashfs" / "__init__.py"))
    last = campaign.sources("dftl")
    for name in ("nandimg/notes.txt", "flashfs/cli/one.py", "flashfs/ftl/leaftl/one.py"):
        (tmp_path / name).write_text("another's")
        assert campaign.sources("dftl") == last, name
    for name in ("nandimg/one.py", "flashfs/engine/one.py", "flashfs/parts/one.py", "flashfs/ftl/dftl/one.py",
                 "flashfs/ftl/common.py"):  # fmt: skip
        (tmp_path / name).write_text("changed")
        assert campaign.sources("dftl") != last, name
        last = campaign.sources("dftl")


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("a.py", 'x = 1  # so\n', '"""Why."""\n\nx = 1\n', True),
        ("a.pyx", 'def f():\n    """Old.\n    more"""\n    return "#"\n',
         'def f():\n    """New."""\n    return "#"\n', True),
        ("a.pyx", 'return "# one"\n', 'return "# two"\n', False),
        ("a.pyx", 'f("""one""")\n', 'f("""two""")\n', False),
        ("a.pyx", "    x = 1\n", "        x = 1\n", False),
        ("a.h", "int a; // one\n", "/* two\n */\nint a;\n", True),
        ("a.h", "int a;\n", "int b;\n", False),
    ],
)
def test_a_comment_makes_no_other_version(
    name: str, one: str, other: str, same: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import flashfs

    (tmp_path / "nandimg").mkdir()
    monkeypatch.setattr(flashfs, "__file__", str(tmp_path / "flashfs" / "__init__.py"))
    found = []
    for text in (one, other):
        (tmp_path / "nandimg" / name).write_text(text)
        found.append(campaign.sources("dftl"))
    assert (found[0] == found[1]) == same
