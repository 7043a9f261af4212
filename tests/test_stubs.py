"""Each stub beside a compiled module names only what the built module has, and misses no compiled module."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
STUBS = sorted(path for package in ("nandimg", "flashfs") for path in (ROOT / package).rglob("*.pyi"))

#: left out of a build without their library
OPTIONAL = ("flashfs.nbd._plugin",)


def names(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """What a stub's module or class body declares."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def parameters(node: ast.FunctionDef) -> list[str]:
    spec = node.args
    return [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def missing(body: list[ast.stmt], thing: Any, where: str) -> Iterator[str]:
    """A line for each declared name that ``thing`` lacks, or whose parameters are called otherwise."""
    for name, node in names(body):
        full = f"{where}.{name}"
        if not hasattr(thing, name):
            if not (isinstance(node, ast.AnnAssign) and may_come_later(thing)):
                yield full
            continue
        found = getattr(thing, name)
        if isinstance(node, ast.ClassDef):
            yield from missing(node.body, found, full)
        elif isinstance(node, ast.FunctionDef) and name != "__init__" and not node.decorator_list:
            real = list(inspect.signature(found).parameters)
            if real != parameters(node):
                yield f"{full}: parameters {parameters(node)}, the module has {real}"


def may_come_later(thing: Any) -> bool:
    """Whether ``thing`` is a class whose instances have a dictionary: what __init__ sets is not seen on the class."""
    return isinstance(thing, type) and thing.__dictoffset__ != 0


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_stub_names_what_exists(stub: Path) -> None:
    name = ".".join(stub.relative_to(ROOT).with_suffix("").parts)
    if name in OPTIONAL and find_spec(name) is None:
        pytest.skip(f"{name} was left out of this build: its library is missing")
    tree = ast.parse(stub.read_text(), str(stub))
    assert list(missing(tree.body, import_module(name), name)) == []


def test_every_compiled_module_has_one() -> None:
    compiled = [path for package in ("nandimg", "flashfs") for path in (ROOT / package).rglob("*.pyx")]
    assert [path.name for path in compiled if not path.with_suffix(".pyi").exists()] == []
