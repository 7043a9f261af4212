"""New schemes from templates: a folder of compiled parts in a checkout, or one file of Python anywhere.

What comes out is a page table that builds and passes ``flashfs check``. The templates are beside this file.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES, installed

__all__ = ["compiled", "plugin"]

#: templates of a compiled scheme, and where each comes to lie
COMPILED = {
    "room.py.in": "flashfs/ftl/{name}/__init__.py",
    "mapping.pyx.in": "flashfs/ftl/{name}/mapping.pyx",
    "mapping.pyi.in": "flashfs/ftl/{name}/mapping.pyi",
    "manual.md.in": "docs/ftl/{name}.md",
    "test.py.in": "tests/ftl/{name}/test_{name}.py",
    "bugs.toml.in": "tests/ftl/{name}/bugs.toml",
}
NAME_MOST = 32  #: letters of a name
OF_A_CHECKOUT = ("setup.py", "flashfs/ftl/__init__.py", "flashfs/engine/contract/engine.pxd")


def compiled(name: str, root: Path) -> list[Path]:
    """Make the files of a compiled scheme in the checkout ``root``, and say which they are. UsageError if the
    name is none or is taken, or ``root`` is no checkout; then nothing was made."""
    require_name(name)
    lacking = [path for path in OF_A_CHECKOUT if not (root / path).exists()]
    if lacking:
        raise UsageError(
            f"{root}: no checkout of flashfs, {lacking[0]} is missing: name one with --folder, or use --python"
        )
    if (root / "flashfs" / "ftl" / f"{name}.py").exists():
        raise UsageError(f"FTL {name}: flashfs/ftl/{name}.py is something else; use another name")
    return written(name, "Mapping", {root / path.format(name=name): template for template, path in COMPILED.items()})


def plugin(name: str, folder: Path) -> tuple[Path, str]:
    """Make one file with an FTL in Python, and say which, and what ``--ftl`` calls it. UsageError as above."""
    require_name(name)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    made = written(name, "", {folder / f"{name}.py": "plugin.py.in"})
    return made[0], f"{name}:{class_of(name)}"


def require_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > NAME_MOST:
        raise UsageError(f"FTL {name!r:.40}: {why_no_name(name)}")
    if name in SCHEMES or name in installed():
        raise UsageError(f"FTL {name}: there is one of that name; use another name")


def why_no_name(name: str) -> str:
    """What is wrong with a name that is none."""
    if name[:1].isdecimal():
        return "it must begin with a letter"
    if keyword.iskeyword(name):
        return "Python has that word; use another name"
    if len(name) > NAME_MOST:
        return f"use {NAME_MOST} letters at most"
    return "use small letters, digits and single underscores between them"


def class_of(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def written(name: str, ending: str, made: dict[Path, str]) -> list[Path]:
    """Write each file, if none of them is there."""
    there = next((path for path in made if path.exists()), None)
    if there is not None:
        raise UsageError(f"FTL {name}: {there} exists already; use another name")
    words = {"name": name, "title": class_of(name), "class_name": class_of(name) + ending}
    for path, template in made.items():
        text = (files(__name__) / template).read_text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(words))
    return list(made)
