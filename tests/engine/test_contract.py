"""The contract is what schemes make use of: no method that only one of them changes, unless it belongs to an extension;
and the page of the docs that lists it is made from it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "flashfs/engine/contract"
TOOL = ROOT / "tools/contract_page.py"
CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:", re.M)
CORE = {"mapping": 17, "validity": 0, "placement": 0, "cleaning": 0}
#: what follows from a mapping's core, and is changed where an FTL knows it sooner or better
DERIVED = {"maps_to", "owner_of", "explain", "idle_bytes"}
#: of the other parts: methods for callers, derived from the others, that no FTL must write
ANSWERS = {"Validity": {"count", "live_in", "pages"}}
#: one store in flash says more of itself to a recovery from pages than the others
FROM_PAGES = {"stamp_in_force", "unfinished"}


def tool() -> object:
    spec = importlib.util.spec_from_file_location("contract_page", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["contract_page"] = module
    spec.loader.exec_module(module)
    return module


page = tool()


class Found(NamedTuple):
    """A class of what is compiled: its base, its methods, and whether it is on the shelf, for several schemes."""

    base: str | None
    methods: set[str]
    shared: bool


def classes() -> dict[str, list[Found]]:
    """By name; a name may be there twice."""
    out: dict[str, list[Found]] = {}
    for folder in ("engine", "parts", "ftl"):
        for path in (ROOT / "flashfs" / folder).rglob("*.pyx"):
            text = path.read_text()
            found = [*CLASS.finditer(text)]
            ends = [*(one.start() for one in found[1:]), len(text)] if found else []
            for one, end in zip(found, ends, strict=True):
                names = {method.name for method in page.methods_of(text[one.end() : end])}  # type: ignore[attr-defined]
                out.setdefault(one[1], []).append(Found(one[2], names, folder != "ftl"))
    return out


ALL = classes()


def comes_of(name: str | None, base: str) -> bool:
    return name == base or any(comes_of(one.base, base) for one in ALL.get(name or "", []))


def written_by(base: str, method: str) -> list[Found]:
    """The classes below ``base`` that have a method of their own."""
    return [one for name, found in ALL.items() for one in found
            if method in one.methods and name != base and comes_of(one.base, base)]  # fmt: skip


def methods(module: str, name: str) -> list[str]:
    return [one.name for one in page.methods_of(page.body_of(module, name))]  # type: ignore[attr-defined]


def test_a_mapping_is_17_methods() -> None:
    assert len(set(methods("mapping", "Mapping")) - DERIVED) == CORE["mapping"]


@pytest.mark.parametrize(
    ("module", "name"),
    [("mapping", "Mapping"), ("validity", "Validity"), ("placement", "Placement"), ("cleaning", "Cleaning")],
)
def test_no_method_is_for_one_scheme_alone(module: str, name: str) -> None:
    who = {method: written_by(name, method) for method in methods(module, name)}
    lonely = {method for method, found in who.items() if len(found) < 2 and not any(one.shared for one in found)}
    assert lonely - ANSWERS.get(name, set()) - FROM_PAGES == set()


@pytest.mark.parametrize("name", ["Sharing", "Remapping", "Deduplication", "Runs"])
def test_an_extension_is_brought_by_somebody(name: str) -> None:
    for method in methods("extensions", name):
        assert written_by(name, method), f"{name}.{method}"


def test_the_page_is_made_from_the_sources() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], check=False)
    assert done.returncode == 0, "run tools/contract_page.py"
