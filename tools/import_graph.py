"""Which folder needs which: a mermaid graph from imports and cimports.

    python tools/import_graph.py             # of the tree as it is, engine and parts as one folder each
    python tools/import_graph.py --rooms     # of the folders in engine and parts
    python tools/import_graph.py --at v0.1   # of a commit
    python tools/import_graph.py --circles   # files that need each other, one circle a line; exit code 1 if any

An arrow goes from the importing folder to the imported one; it is dotted if all the imports are inside functions.
Arrows implied by others are left out. Subfolders count as their folder; all schemes are one, ftl/NAME. Modules of
flashfs itself (device.py ...) are the folder `flashfs`; modules that any folder may need (errors.py ...) are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("nandimg", "flashfs")
SUFFIXES = (".py", ".pyx", ".pxd")
#: modules that any folder may need
SMALL = {"flashfs.errors", "flashfs.text", "flashfs.sizing.defaults", "flashfs.poll", "flashfs.ftl_search"}
#: one `from x import a, b` or `import x` of Cython, which Python's parser does not take
STATEMENT = re.compile(
    r"^( *)(?:from +([\w.]+) +c?import +(\([^)]*\)|[^\n]+)|c?import +([\w.]+))", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Need:
    """``module`` is imported by a file; ``late``: inside a function."""

    module: str
    late: bool


def name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def needs_of(text: str, suffix: str, known: set[str]) -> Iterator[Need]:
    """The project's modules that a file imports. ``from a import b`` is of module a.b if there is one, else of a."""
    if suffix == ".py":
        tree = ast.parse(text)
        for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "CHECKING" in ast.dump(node.test)]
        typed = {id(one) for node in for_types for one in ast.walk(node)}
        for node in ast.walk(tree):
            if id(node) in typed or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            base = node.module if isinstance(node, ast.ImportFrom) else None
            yield from found(base, names, node.col_offset > 0, known)
        return
    for indent, base, listed, whole in STATEMENT.findall(text):
        names = [word.split(" as ")[0].strip() for word in (listed.strip("()") if base else whole).split(",")]
        yield from found(base or None, names, bool(indent), known)


def found(base: str | None, names: list[str], late: bool, known: set[str]) -> Iterator[Need]:
    for name in names:
        full = f"{base}.{name}" if base else name
        module = full if full in known else base or name
        if module.split(".")[0] in OURS and module in known:
            yield Need(module, late)


def folder_of(module: str, packages: set[str]) -> str:
    """The folder that a module lies in: nandimg, flashfs, flashfs/engine/device, flashfs/ftl/leaftl ..."""
    parts = module.split(".") if module in packages else module.split(".")[:-1]
    return "/".join(parts[: 3 if parts[1:2] and parts[1] in ("ftl", "engine", "parts") else 2])


def read(root: Path) -> tuple[dict[str, set[Need]], set[str]]:
    """({module: what it needs}, the packages among them). The files of one module (.pyx, .pxd) count together."""
    paths = [path for package in OURS for path in sorted((root / package).rglob("*")) if path.suffix in SUFFIXES]
    known = {name_of(path.relative_to(root)) for path in paths}
    out: dict[str, set[Need]] = defaultdict(set)
    for path in paths:
        name = name_of(path.relative_to(root))
        out[name] |= {need for need in needs_of(path.read_text(), path.suffix, known) if need.module != name}
    return dict(out), {name_of(path.relative_to(root)) for path in paths if path.stem == "__init__"}


def arrows(modules: dict[str, set[Need]], packages: set[str]) -> dict[tuple[str, str], bool]:
    """{(from folder, to folder): whether all imports are inside functions}."""
    users: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for name, needs in modules.items():
        for need in needs:
            one, two = folder_of(name, packages), folder_of(need.module, packages)
            if one != two and need.module not in SMALL:
                users[one, two][name] = users[one, two].get(name, True) and need.late
    return {pair: all(files.values()) for pair, files in users.items()}


def mermaid(modules: dict[str, set[Need]], packages: set[str], rooms: bool) -> str:
    """The graph: of the folders in engine and parts (``rooms``), or of all folders with engine and parts as one each.
    Without arrows that others imply."""
    found: dict[tuple[str, str], bool] = {}
    for pair, late in arrows(modules, packages).items():
        one, two = (drawn(name, rooms) for name in pair)
        if one and two and one != two:
            found[one, two] = found.get((one, two), True) and late
    kept = {pair: late for pair, late in found.items() if not follows(pair, found)}
    names = sorted({name for pair in kept for name in pair})
    ids = {name: f"n{i}" for i, name in enumerate(names)}
    lines = ["```mermaid", "graph TD"]
    lines += [f'    {ids[name]}["{name}"]' for name in names]
    for (one, two), late in sorted(kept.items()):
        lines.append(f"    {ids[one]} {'-.->' if late else '-->'} {ids[two]}")
    return "\n".join([*lines, "```"])


def drawn(folder: str, rooms: bool) -> str:
    """A folder's name in the graph; "" if it is left out."""
    name = "ftl/NAME" if folder.startswith("flashfs/ftl/") else folder.removeprefix("flashfs/")
    top = name.split("/")[0]
    if top in ("engine", "parts"):
        return name if rooms else top
    return name if not rooms or top in ("ftl", "nandimg") else ""


def follows(pair: tuple[str, str], found: dict[tuple[str, str], bool]) -> bool:
    """Whether other arrows, none of them of function-level imports only, lead from the one to the other."""
    begin, end = pair
    seen, to_do = {begin}, [two for one, two in found if one == begin and two != end and not found[one, two]]
    while to_do:
        name = to_do.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            to_do += [two for one, two in found if one == name and not found[one, two]]
    return False


def circles(modules: dict[str, set[Need]], packages: set[str]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others: Tarjan's components of more than one.
    Imports of a package's __init__ do not count."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for need in sorted({need.module for need in modules[name]} - packages):
            if need not in index:
                visit(need)
                low[name] = min(low[name], low[need])
            elif need in stack:
                low[name] = min(low[name], index[need])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                out.append(sorted(group))

    for name in sorted(set(modules) - packages):
        if name not in index:
            visit(name)
    return sorted(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", help="a commit instead of the tree")
    parser.add_argument("--rooms", action="store_true", help="the rooms of engine and parts")
    parser.add_argument("--circles", action="store_true", help="list circles of files instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flashfs-graph-") as folder:
        root = ROOT
        if given.at:
            packed = subprocess.run(["git", "archive", given.at, *OURS], cwd=ROOT, check=True, stdout=subprocess.PIPE)
            with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
                archive.extractall(folder, filter="data")
            root = Path(folder)
        modules, packages = read(root)
    if not given.circles:
        print(mermaid(modules, packages, given.rooms))
        return 0
    found = circles(modules, packages)
    for group in found:
        print(*group)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
