"""docs/design/interfaces.md, from the docstrings of flashfs/engine/contract: each part of an FTL on a screen.

    contract_page.py [--check]

With --check nothing is written, and the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ROOT / "flashfs/engine/contract"
PAGE = ROOT / "docs/design/interfaces.md"
WIDTH = 120
#: the classes in the order of the page: (module, class, heading)
SHOWN = (
    ("mapping", "Mapping", "Mapping"),
    ("validity", "Validity", "Validity"),
    ("placement", "Placement", "Placement"),
    ("cleaning", "Cleaning", "Cleaning"),
    ("hooks", "Hooks", "What a mapping may hear of besides"),
    ("recovery_wishes", "RecoveryWishes", "What a mapping may wish of a recovery and of checkpoints"),
    ("shown", "Shown", "What tools ask of a mapping"),
    ("extensions", "Sharing", "Extension: pages that several LPAs share"),
    ("extensions", "Remapping", "Extension: remapping"),
    ("extensions", "Deduplication", "Extension: deduplication"),
    ("extensions", "Runs", "Extension: runs"),
    ("checkpointer", "Checkpointer", "Extension: checkpoints of another kind"),
    ("owner", "Owner", "Owners of pages"),
    ("engine", "Engine", "What the engine offers"),
)
CLASS = re.compile(r"^cdef class (\w+)[^\n]*:\n", re.M)
MAY = re.compile(r"May ([a-z, ]+)\.\s*\"\"\"")
METHOD = re.compile(
    r'^    (?:cdef [\w ]+?[ *]|def )(?P<name>\w+)\(.*?:\n(?P<doc>        """.*?"""\n)?', re.M | re.S
)
INTRO = """# The interfaces

Made from `flashfs/engine/contract` by `tools/contract_page.py`: what each method is, in its first sentence. The
docstring there has the rest: shapes, units, what may fail. [contract.md](contract.md) says why it is cut like this.

*May* is what a method may do with flash: nothing, if the field is empty. A method with a *default* need not be written:
what the default does suits a plain map. A page map writes the others of the first four tables, or takes the parts that
are in `flashfs/parts/defaults`. (`base_from_pages`, `counts_from_pages` and `take_named` of a validity store are for
recoveries from pages alone: those of a page map do without.)
"""


class Method(NamedTuple):
    """One method: its name, its docstring's first sentence, whether an FTL must write it, what it may do with flash."""

    name: str
    doc: str
    must: bool
    may: str


def body_of(module: str, name: str) -> str:
    """The source of one class."""
    text = (CONTRACT / f"{module}.pyx").read_text()
    begins = {found[1]: found for found in CLASS.finditer(text)}
    after = [found.start() for found in begins.values() if found.start() > begins[name].start()]
    return text[begins[name].end() : min(after, default=len(text))]


def about(body: str) -> str:
    """The first paragraph of a class's docstring."""
    found = re.match(r'(?:    cdef [^\n]*\n)*    """(.*?)"""', body, re.S)
    text = " ".join(found[1].partition("\n\n")[0].split()) if found else ""
    return text[: text.rfind(".") + 1]  # a list may follow: what leads to it is no sentence


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, with single blanks."""
    text = " ".join(doc.strip().strip('"').split())
    found = re.match(r"(.+?[.;:])(?: (?=[A-Z`{]))", text)
    return (found[1] if found else text).rstrip(".;:").replace("|", r"\|")


def methods_of(body: str) -> list[Method]:
    """The methods of one class, in its order."""
    found = [one for one in METHOD.finditer(body) if not one["name"].startswith("__")]
    ends = [one.start() for one in found[1:]] + [len(body)]
    out = []
    for one, end in zip(found, ends, strict=True):
        code = body[one.end() : end]
        may = MAY.search(one["doc"] or "")
        out.append(Method(one["name"], first_sentence(one["doc"] or ""), "raise NotImplementedError" in code,
                          may[1] if may else ""))  # fmt: skip
    return out


def table(methods: list[Method], *, offered: bool) -> list[str]:
    """The rows of a table. ``offered``: methods of the engine, which an FTL calls and does not write."""
    if offered:
        return ["| method | what it does |", "| --- | --- |", *(f"| `{one.name}` | {one.doc} |" for one in methods)]
    lines = ["| method | what it is asked | may | default |", "| --- | --- | --- | --- |"]
    return lines + [f"| `{one.name}` | {one.doc} | {one.may} | {'' if one.must else 'yes'} |" for one in methods]


def made() -> str:
    """The page."""
    parts = [INTRO]
    for module, name, heading in SHOWN:
        body = body_of(module, name)
        parts += [f"## {heading}", "", f"`flashfs/engine/contract/{module}.pyx`, `{name}`. {about(body)}", ""]
        parts += [*table(methods_of(body), offered=name == "Engine"), ""]
    return "\n".join(parts).replace("``", "`")


def main() -> int:
    page = made()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
