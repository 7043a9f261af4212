"""Plain English where a user reads it: help, messages, README, docs. Words that stopped a reader do not come back."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flashfs
from flashfs.cli.commands import program

ROOT = Path(__file__).parents[1]
UNITS = r"(?:bytes|bits|ns|us|ms|MB|[KMGT]iB)"
EACH = (
    r"(?:second|minute|block|page|entry|LPA|die|channel|request|write|read|core|group|overwrite|program|erase|cell|line|"
    r"superblock|round|victim|chunk|slot|segment|node|mount|FTL)"
)
#: what is not written, and what is
PHRASES = {
    r"\bwould do\b(?! what)": "use X",
    r"\bwill do\b": "is enough",
    r"(?<!left )\bbehind\b": "after, beyond, below",
    r"\b(?:whoever|nobody|somebody|anybody|everybody)\b": "the caller, a program, nothing, no LPA",
    r"\btold\b": "reported, or say who learns what by which call",
    r"\bof late\b": "recent",
    r"\bvalid in each\b": "pages per victim",
    r"\bnothing is up\b": "nothing is mounted",
    r"\bunless told\b": "by default",
    r"\b(?:is|was|be|are|were) broken off\b|\bbroken off,": "interrupted",
    r"\b(?:goes|gone|go) on (?:where|with where)\b": "continues",
    r"\bshall\b": "the present tense",
    r"\bexplains itself\b|\bpull(?:s|ing)? (?:the|its) plug\b|\bput it in again\b": "cut the power, and mount again",
    r"\bhold (?:an FTL|it) to\b|\beverything that it has to keep\b": "test it",
    r"\bstands? on (?:equal|other|the same) ground\b": "get the same write buffer, stripe, ...",
    r"\bkeep each reply back\b|\ba budget that holds\b|\bsoftware feels\b": "delay; a hard limit",
    r"\b(?:must not choose what is imported|is the engine's\.|that is not a power cut)": "what happens, and to whom",
    r"\blet the \w+ (?:bytes at|read)\b|\bversions alone refuse\b": "make; cannot open",
    rf"\b{UNITS} an? {EACH}\b": "per",
    rf"\b\d(?:[\d.,]*\d)? an? {EACH}\b": "per",
    r"\b(?:pages|entries|LPAs|one) an? (?:block|die|superblock|core)\b|\brequests a second\b": "per",
    r"\b(?:spare|translation) (?:reads|programs) a page\b|\bprograms a (?:page written|flush)\b": "per",
    r"\b(?:B|OOB) a page\b": "per",
}
LITERAL = r'(?:"(?:[^"\\\n]|\\.)*")'


def found_in(text: str) -> list[str]:
    """Each phrase that stands in the text, and what is written in its place."""
    flat = " ".join(text.split())
    hits = ((match[0], use) for words, use in PHRASES.items() for match in re.finditer(words, flat, re.I))
    return [f"{words!r}: {use}" for words, use in hits]


def pages() -> list[Path]:
    top = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SPEC")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def public_docstrings() -> Iterator[tuple[str, str]]:
    """(name, docstring) of the package and of what a program takes from it, as `help()` shows them."""
    yield "flashfs", flashfs.__doc__ or ""
    for name in flashfs.__all__:
        one = getattr(flashfs, name)
        yield name, inspect.getdoc(one) or ""
        for attribute, of in vars(one).items() if inspect.isclass(one) else ():
            if not attribute.startswith("_") and (callable(of) or isinstance(of, property)):
                yield f"{name}.{attribute}", inspect.getdoc(of) or ""


def test_docstrings_that_help_shows() -> None:
    found = list(public_docstrings())
    assert len(found) > 40
    assert [f"{name}: {hit}" for name, text in found for hit in found_in(text)] == []


def test_pages() -> None:
    assert [f"{path.relative_to(ROOT)}: {hit}" for path in pages() for hit in found_in(path.read_text())] == []


def commands(command: Any, words: str = "flashfs") -> Iterator[tuple[str, str]]:
    """(what it is of, text) of everything that --help prints."""
    yield words, f"{command.help}\n{command.ending()}"
    yield from ((f"{words} {one.name}", getattr(one, "help", "") or "") for one in command.params)
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{words} {name}")


def test_help() -> None:
    assert [(of, hits) for of, text in commands(program()) if (hits := found_in(text))] == []


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each text in a module that is no docstring."""
    if path.suffix == ".pyx":
        bare = re.sub(r'"""(.*?)"""', lambda whole: "\n" * whole[0].count("\n"), path.read_text(), flags=re.S)
        bare = re.sub(r"(?m)^\s*#.*$|  # .*$", "", bare)
        for found in re.finditer(rf"{LITERAL}(?:\s*\n\s*f?{LITERAL})*", bare):
            text = "".join(one[1:-1] for one in re.findall(LITERAL, found[0]))
            yield bare.count("\n", 0, found.start()) + 1, re.sub(r"\{[^}]*\}", "{}", text)
        return
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def modules() -> list[Path]:
    places = ("flashfs/**/*.py", "flashfs/**/*.pyx", "nandimg/*.py", "nandimg/*.pyx", "examples/*.py")
    return sorted(path for place in places for path in ROOT.glob(place))


def test_messages() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {hit}"
        for path in modules() for line, text in strings(path) for hit in found_in(text) if " " in text
    ]  # fmt: skip
    assert hits == []


def test_they_are_found(tmp_path: Path) -> None:
    for text in ("--sync x: flush or none would do", "is told", "8 bytes an entry", "0.5 a page", "a step behind it"):
        assert len(found_in(text)) == 1, text
    assert found_in("per page, after it; left behind; a page of a block; 3 pages per block") == []
    (tmp_path / "a.pyx").write_text('def f():\n    """nobody"""\n    raise Oh("it would "\n    f"do {x}")  # nobody\n')
    assert list(strings(tmp_path / "a.pyx")) == [(3, "it would do {}")]
    (tmp_path / "a.py").write_text('"""nobody"""\nraise ValueError(f"{1} is told")\n')
    assert "{} is told" in [text for _, text in strings(tmp_path / "a.py")]
