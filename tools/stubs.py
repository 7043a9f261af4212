"""Stubs (.pyi) of the compiled modules, made from the built modules; mypy reads them.

    python tools/stubs.py              # bring every stub up to date, and make those that are missing
    python tools/stubs.py --check      # say which are not up to date; exit code 1 if there is one
    python tools/stubs.py flashfs.engine.blocks.pool ...

Names come from the built modules: public functions, classes, their methods and attributes, constants. Types that a stub
has already stay as long as the name and its parameters do, so a type that the source does not have (``list[int]``) is
written once, by hand. The others come from the C types of signatures and declarations; an unknown type is Any.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SUFFIX = ".pyi"
INTEGER = re.compile(r"^(u?int(8|16|32|64)_t|(unsigned |signed )?(char|short|int|long|long long)|size_t|Py_ssize_t)$")
PLAIN = {"bint": "bool", "double": "float", "float": "float", "object": "Any", "str": "str", "bytes": "bytes", "dict":
         "dict[Any, Any]", "list": "list[Any]", "tuple": "tuple[Any, ...]", "": "Any"}  # fmt: skip
LITERAL = re.compile(r"^(-?[\d.]+|None|True|False)$")
CLASS = re.compile(r"^cdef class (\w+)", re.M)
ATTRIBUTE = re.compile(r"^    cdef (?:readonly|public) (.+)$", re.M)
MAKER = re.compile(r"^    def __c?init__\((.*?)\)(?: -> None)?:", re.M | re.S)
#: attributes of every object, or made by Cython
DROPPED = {"__init__", "__new__", "__doc__", "__module__", "__dict__", "__weakref__", "__reduce_cython__",
           "__setstate_cython__", "__pyx_vtable__", "__reduce__", "__setstate__", "__test__"}  # fmt: skip


def modules() -> list[str]:
    paths = [path for package in ("nandimg", "flashfs") for path in sorted((ROOT / package).rglob("*.pyx"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def source_of(name: str) -> str:
    """The text of the .pyx, followed by that of the .pxd."""
    base = ROOT.joinpath(*name.split("."))
    return "\n".join(path.read_text() for path in (base.with_suffix(".pyx"), base.with_suffix(".pxd")) if path.exists())


def python_type(text: str, classes: set[str]) -> str:
    """The Python type of a C type."""
    text = text.strip()
    bare = text.removeprefix("const ").strip()
    if "[" in text:
        return "Any" if "," in text else "ReadableBuffer" if text.startswith("const ") else "WriteableBuffer"
    if INTEGER.match(bare):
        return "int"
    return PLAIN.get(bare) or (bare if bare in classes else "Any")


def split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parameters(text: str, classes: set[str]) -> str:
    """Cython's parameters as those of a stub."""
    out = []
    for part in split(" ".join(text.split())):
        declared, _, default = part.replace(" not None", "").partition("=")
        head, _, annotation = (declared, "", "") if "[" in declared else declared.partition(":")
        kind, _, name = head.strip().rpartition(" ")
        if name in ("*", "/", "self") or name.startswith("*"):
            out.append(name)
            continue
        said = annotation.strip() or python_type(kind, classes)
        value = default.strip()
        if value == "None" and said not in ("Any",):
            said += " | None"
        shown = value if LITERAL.match(value) else "..."
        out.append(f"{name}: {said}" + (f" = {shown}" if default else ""))
    return ", ".join(out)


def attributes(body: str, classes: set[str]) -> dict[str, str]:
    """{name: type} of the attributes that Python may read."""
    found = {}
    for line in ATTRIBUTE.findall(body):
        line = line.split("#")[0].strip()
        match = re.match(r"(.*?)\s*(\w+(?:\s*,\s*\w+)*)$", line)
        if match and "(" not in line:
            for name in match[2].split(","):
                found[name.strip()] = python_type(match[1], classes)
    return found


def bodies(source: str) -> dict[str, str]:
    """{class: its text}, of .pyx and .pxd together."""
    found: dict[str, str] = {}
    starts = [*CLASS.finditer(source)]
    for match in starts:
        rest = source[match.start() :]
        end = re.search(r"\n(?=[^\s#])", rest)
        found[match[1]] = found.get(match[1], "") + "\n" + rest[: end.start() if end else None]
    return found


def function(name: str, thing: Any, classes: set[str], decorator: str = "") -> str:
    line = (thing.__doc__ or "").split("\n")[0]
    match = re.match(r"(?:\w+\.)?\w+\((.*)\)", line)
    if match:
        said = parameters(match[1], classes)
    else:
        said = ", ".join(inspect.signature(thing).parameters)
    return f"{decorator}def {name}({said}) -> Any: ..."


def class_stub(name: str, thing: type, body: str, classes: set[str]) -> str:
    bases = [base.__name__ for base in thing.__bases__ if base is not object]
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    maker = MAKER.search(body)
    if maker:
        lines.append(f"    def __init__({parameters(maker[1], classes)}) -> None: ...")
    kinds = attributes(body, classes)
    for key, value in vars(thing).items():
        inherited = any(hasattr(base, key) for base in thing.__bases__)  # its types are the base's
        if key in DROPPED or inherited or (key.startswith("_") and not key.startswith("__")):
            continue
        if inspect.isgetsetdescriptor(value) and re.search(rf"^    cdef public [^#(]*\b{key}\b", body, re.M):
            lines.append(f"    {key}: {kinds.get(key, 'Any')}")  # Python may set it
        elif inspect.isgetsetdescriptor(value) or isinstance(value, property):
            lines += ["    @property", f"    def {key}(self) -> {kinds.get(key, 'Any')}: ..."]
        elif isinstance(value, staticmethod):
            lines += ["    @staticmethod", "    " + function(key, value.__func__, classes)]
        elif inspect.isroutine(value) and not key.startswith("__"):
            lines.append("    " + function(key, value, classes))
    return "\n".join(lines if len(lines) > 1 else [f"{lines[0]} ..."])


def types_of(module: ModuleType) -> dict[str, type]:
    """{name: class} of the classes in the module's namespace, and of their bases, which may only be cimported."""
    known = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    return {base.__name__: base for one in known.values() for base in one.__mro__} | known


def draft(name: str, module: ModuleType, source: str) -> str:
    """A stub from the module alone."""
    classes = set(types_of(module))
    texts, out = bodies(source), []
    for key, value in vars(module).items():
        ours = getattr(value, "__module__", None) == name
        if key.startswith("_"):
            continue
        if isinstance(value, type) and ours:
            out.append(class_stub(key, value, texts.get(key, ""), classes))
        elif callable(value) and ours:
            out.append(function(key, value, classes))
        elif isinstance(value, int | str | bytes | tuple | float) and re.search(rf"^{key} =", source, re.M):
            out.append(f"{key}: {PLAIN.get(type(value).__name__, type(value).__name__)}")
    return "\n".join(out)


def key_of(node: ast.stmt) -> str | None:
    """The name that a statement of a stub declares."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def names_of(node: ast.FunctionDef) -> list[str]:
    spec = node.args
    return [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg) if arg]


def merged(new: list[ast.stmt], old: list[ast.stmt], thing: Any) -> list[ast.stmt]:
    """The statements for what ``thing`` has, with the old types and in the old order; new names come last."""
    fresh = {key_of(node): node for node in new}
    out: list[ast.stmt] = []
    for was in old:
        now = fresh.pop(key_of(was), None) if key_of(was) else None
        if key_of(was) is None and not isinstance(was, ast.Pass | ast.Expr):
            out.append(was)  # an import
        elif isinstance(was, ast.ClassDef) and isinstance(now, ast.ClassDef):
            one = getattr(thing, was.name)
            was.body = merged(now.body, was.body, one) or [ast.Expr(ast.Constant(...))]
            out.append(was)
        elif was_renamed(was, now):
            assert isinstance(was, ast.FunctionDef)
            assert isinstance(now, ast.FunctionDef)
            now.returns, now.decorator_list = was.returns, was.decorator_list
            said = {arg.arg: arg.annotation for arg in (*was.args.args, *was.args.kwonlyargs)}
            for arg in (*now.args.args, *now.args.kwonlyargs):
                arg.annotation = said.get(arg.arg) or arg.annotation
            out.append(now)
        elif hasattr(thing, key_of(was) or "") or has_dict(thing):
            out.append(was)
    more = [] if has_dict(thing) and old else fresh.values()
    return [*out, *(node for node in more if not isinstance(node, ast.Expr | ast.Pass))]


def has_dict(thing: Any) -> bool:
    """Whether it is a Python class: its instances have attributes that the class does not show, so its stub is kept."""
    return isinstance(thing, type) and (thing.__dictoffset__ != 0 or issubclass(thing, tuple))


def was_renamed(was: ast.stmt, now: ast.stmt | None) -> bool:
    """Whether both are functions and their parameters differ; those of constructors cannot be inspected."""
    functions = isinstance(was, ast.FunctionDef) and isinstance(now, ast.FunctionDef)
    return functions and was.name != "__init__" and names_of(was) != names_of(now)  # type: ignore[union-attr, arg-type]


def imports(body: list[ast.stmt], module: ModuleType) -> list[ast.stmt]:
    """The import statements that a stub needs besides those that it has."""
    declared = {key_of(node) for node in body}
    had = {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom | ast.Import)
           for alias in node.names}  # fmt: skip
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    lines, known = [], types_of(module)
    for name in sorted(used - had - declared):
        if name == "Any":
            lines.append("from typing import Any")
        elif name in ("ReadableBuffer", "WriteableBuffer"):
            lines.append(f"from _typeshed import {name}")
        elif name in known and known[name].__module__ != "builtins":
            lines.append(f"from {known[name].__module__} import {name}")
    return ast.parse("\n".join(lines)).body


def stub(name: str) -> str:
    module = import_module(name)
    path = ROOT.joinpath(*name.split(".")).with_suffix(SUFFIX)
    old = path.read_text() if path.exists() else ""
    new, was = ast.parse(draft(name, module, source_of(name))).body, ast.parse(old).body
    body = merged(new, was, module)
    body = [*imports(body, module), *body]
    if ast.dump(ast.Module(body, [])) == ast.dump(ast.parse(old)):
        return old  # as it was written
    return tidy(ast.unparse(ast.Module(body, [])), path)


def tidy(text: str, path: Path) -> str:
    """Format with ruff, imports sorted."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (["check", "--quiet", "--fix-only", "--select", "I,F401", "-"], ["format", "--quiet", "-"]):
        whole = [ruff, *command, "--stdin-filename", str(path)]
        text = subprocess.run(whole, cwd=ROOT, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="modules; all of them without any")
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args()
    stale = 0
    for name in given.names or modules():
        path = ROOT.joinpath(*name.split(".")).with_suffix(SUFFIX)
        text = stub(name)
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        print(f"{path.relative_to(ROOT)}: {'not up to date: tools/stubs.py' if given.check else 'written'}")
        if not given.check:
            path.write_text(text)
    return int(given.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
