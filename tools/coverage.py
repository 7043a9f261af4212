"""Line and branch coverage of the recovery paths, the compiled ones included: docs/coverage.md has the figures.

    python tools/coverage.py [--jobs 2] [--cuts 500] [--tests tests/engine tests/crash ...] [--keep DIR]

The modules of PATHS are translated once more, in a copy of the sources, with a mark at the beginning of each statement.
The marks are Cython's own (``linetrace``), but their action is replaced: instead of calling a trace function, which
takes the GIL and is a hundred times slower than the statement, each sets one byte of a table (line before, line) that
all processes share through a file. So the tests run nearly as fast as usual, forked and killed workers count, and
pairs of lines show which way a branch went.

A line counts if it is in the body of a function and can be marked. A branch has two outcomes: an `if`, `elif` or
`while` is true and false; a loop has a body and an end that is no `break`. `while True` has one. A jump by
an exception is no outcome. Conditions count as a whole: the parts of an `and` are not measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tools" / "results" / "coverage.json"
WHERE = "FLASHFS_COVERAGE"  #: environment: the folder of the tables
LINES = 1024  #: lines of a module, at most
BYTES = LINES * LINES
EVERYTHING = "*"

#: the recovery paths: {module: its functions that belong to them}
PATHS: dict[str, tuple[str, ...]] = {
    "flashfs/engine/recovery/found.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/clean_start.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/log_reader.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/scan.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/records.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/block_states.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/found_pages.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/trim_index.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/mend.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/follow.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/recovery.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/resolve.pyx": (EVERYTHING,),
    "flashfs/engine/device/metalog.pyx": (EVERYTHING,),
    "flashfs/engine/recovery/admit.pyx": (EVERYTHING,),
    "flashfs/engine/views/cross_check.pyx": (EVERYTHING,),
    "flashfs/engine/device/buffer.pyx": ("survivors", "_sum"),
    "flashfs/engine/device/mover.pyx": ("relocate", "collect", "is_readable", "poison"),
    "flashfs/engine/blocks/pool.pyx": ("allocate", "set_bad", "rebuild_free", "load"),
    "flashfs/parts/defaults/page_table.pyx": ("load", "reset", "recovered"),
    "flashfs/parts/defaults/page_bitmap.pyx": ("load", "reset", "forget"),
    "flashfs/parts/defaults/streams.pyx": ("attach",),
    "flashfs/ftl/slimftl/mapping.pyx": (
        "next_live", "after_miss", "locate", "owner_of", "recovered", "blocks_with_pages", "recovery_conflicts",
        "recovery_erased", "recovery_exact", "recovery_reopens", "recovery_ends", "point_vbt", "reset", "load",
    ),
    "nandimg/image.py": (
        "_reserve", "_lock", "_holder", "_open_fd", "inspect", "bound", "bind", "upgrade", "open_image",
    ),
    "nandimg/header.py": (
        "unpack", "_options", "_features", "_regions", "read_header", "write_header", "mend_copies", "refuse_unknown",
    ),
    "flashfs/parts/battery/battery.pyx": (EVERYTHING,),
}  # fmt: skip

#: scaled-down campaigns: the arguments of `flashfs crash`
CAMPAIGNS = (
    ("--tier", "sweep,random,host,faults", "--seed", "1", "--cuts"),
    ("--tier", "every", "--length", "1", "--depth", "2"),
)
CUTS = 500  #: of each tier and FTL
TESTS = ("tests/engine", "tests/ftl", "tests/crash", "tests/spec", "tests/nandimg", "tests/fuzz/test_images.py")
#: the first runs more campaigns; the others compile sources or mount file systems
LEFT_OUT = ("tests/crash/test_sweep.py", "tests/crash/test_planted.py", "tests/crash/test_kill.py",
            "tests/crash/test_kill_databases.py", "tests/crash/test_kill_files.py")  # fmt: skip

#: C code placed after Cython's own definitions of the trace macros, which it replaces. `seen` is -1 in functions of
#: other files, else the line before; a normal return is line 0.
MARKS = r"""
#undef __Pyx_TraceDeclarationsFunc
#undef __Pyx_TraceDeclarationsGen
#undef __Pyx_TraceStartFunc
#undef __Pyx_TraceStartGen
#undef __Pyx_TraceResumeGen
#undef __Pyx_TraceReturnValue
#undef __Pyx_TraceReturnCValue
#undef __Pyx_TraceLine
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned char* flashfs_marks;
__attribute__((constructor)) static void flashfs_marks_open(void) {
  char path[4096];
  const char* folder = getenv("@WHERE@");
  int fd = -1;
  if (folder && snprintf(path, sizeof path, "%s/@NAME@", folder) < (int) sizeof path)
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, @BYTES@)) { fprintf(stderr, "@WHERE@: no table for @NAME@\n"); abort(); }
  flashfs_marks = (unsigned char*) mmap(0, @BYTES@, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (flashfs_marks == MAP_FAILED) abort();
  close(fd);
}
#define flashfs_mark(line) \
  do { if (seen >= 0) { flashfs_marks[seen * @LINES@ + (line)] = 1; seen = (line); } } while (0)
#define __Pyx_TraceDeclarationsFunc int seen = -1;
#define __Pyx_TraceDeclarationsGen int seen = -1;
#define __Pyx_TraceStartFunc(name, file, first, offset, nogil, skip, error) \
  if ((1)) { seen = (file) == __pyx_f[0] ? 0 : -1; } else error;
#define __Pyx_TraceStartGen __Pyx_TraceStartFunc
#define __Pyx_TraceResumeGen(name, file, first, offset, error) \
  if ((1)) { seen = (file) == __pyx_f[0] ? 0 : -1; } else error;
#define __Pyx_TraceReturnValue(result, offset, nogil, error) \
  if ((1)) { if ((void*) (result) != NULL) flashfs_mark(0); } else error;
#define __Pyx_TraceReturnCValue(result, convert, offset, nogil, error) \
  if ((1)) { if ((1)) flashfs_mark(0); else (void) convert; } else error;
#define __Pyx_TraceLine(line, offset, nogil, error) if ((1)) { flashfs_mark(line); } else error;
"""


# --- what a source says: its functions and where they branch


@dataclass(slots=True)
class Branch:
    """One condition or loop: its line, the lines of its condition (``head``), those of its body."""

    line: int
    kind: str  # "if", "while", "for"
    head: range
    body: range
    outcomes: tuple[str, ...]
    leaves: frozenset[int] = frozenset()  # lines of its own breaks


@dataclass(slots=True)
class Function:
    name: str
    lines: range
    branches: list[Branch] = field(default_factory=list)
    jumps: set[int] = field(default_factory=set)  # lines of return and raise
    handlers: set[int] = field(default_factory=set)  # lines of except clauses, and the first of their bodies


def children(node: Any) -> Iterator[Any]:
    for name in node.child_attrs or ():
        child = getattr(node, name)
        for one in child if isinstance(child, list) else [child]:
            if one is not None and hasattr(one, "child_attrs"):
                yield one


def last_line(node: Any) -> int:
    return max([node.pos[1], *(last_line(child) for child in children(node))])


def first_line(node: Any) -> int:
    """The line of a body's first statement."""
    stats = getattr(node, "stats", None)
    return first_line(stats[0]) if stats else int(node.pos[1])


class Reader:
    """Walks the tree that Cython's parser makes of a source."""

    def __init__(self, path: Path) -> None:
        from Cython.Compiler.TreeFragment import parse_from_strings

        self.functions: list[Function] = []
        self.visit(parse_from_strings(path.stem, path.read_text()), "", None, set())

    def visit(self, node: Any, prefix: str, function: Function | None, leaves: set[int]) -> None:
        kind = type(node).__name__
        if kind in ("CFuncDefNode", "DefNode"):
            name = node.name if kind == "DefNode" else declared(node.declarator)
            inner = function  # a function in a function counts with the outer one
            if function is None:
                inner = Function(f"{prefix}{name}", range(node.pos[1] + 1, last_line(node) + 1))
                self.functions.append(inner)
            self.descend(node, prefix, inner, leaves)
            return
        if kind in ("CClassDefNode", "PyClassDefNode"):
            prefix = f"{getattr(node, 'class_name', None) or node.name}."
        if function is not None:
            leaves = self.note(node, kind, function, leaves)
        self.descend(node, prefix, function, leaves)

    def descend(self, node: Any, prefix: str, function: Function | None, leaves: set[int]) -> None:
        for child in children(node):
            self.visit(child, prefix, function, leaves)

    def note(self, node: Any, kind: str, function: Function, leaves: set[int]) -> set[int]:
        """Note a statement's jumps, handlers and branches in its function; returns the set for breaks inside it."""
        line = int(node.pos[1])
        if kind in ("ReturnStatNode", "RaiseStatNode", "ReraiseStatNode"):
            function.jumps |= set(range(line, last_line(node) + 1))
        elif kind == "BreakStatNode":
            leaves.add(line)
        elif kind == "ExceptClauseNode":
            function.handlers |= {line, first_line(node.body)}
        elif kind == "IfClauseNode" and first_line(node.body) > line:  # else the `if` of a comprehension
            self.branch(function, "if", node, ("true", "false"))
        elif kind in ("WhileStatNode", "ForInStatNode", "ForFromStatNode") and first_line(node.body) > line:
            leaves = set()  # a loop on one line is a comprehension
            endless = kind == "WhileStatNode" and type(node.condition).__name__ == "BoolNode"
            for child in children(node.body):
                self.find_breaks(child, leaves)
            words = ("true", "false") if kind == "WhileStatNode" else ("body", "end")
            self.branch(function, kind[:3].lower(), node, words[:1] if endless else words, frozenset(leaves))
        return leaves

    def find_breaks(self, node: Any, leaves: set[int]) -> None:
        kind = type(node).__name__
        if kind == "BreakStatNode":
            leaves.add(int(node.pos[1]))
        if kind not in ("WhileStatNode", "ForInStatNode", "ForFromStatNode"):
            for child in children(node):
                self.find_breaks(child, leaves)

    def branch(
        self, function: Function, kind: str, node: Any, outcomes: tuple[str, ...], leaves: frozenset[int] = frozenset()
    ) -> None:
        line, body = int(node.pos[1]), first_line(node.body)
        if kind == "whi":
            kind = "while"
        function.branches.append(
            Branch(line, kind, range(line, body), range(body, last_line(node.body) + 1), outcomes, leaves)
        )


def declared(declarator: Any) -> str:
    while not hasattr(declarator, "name"):
        declarator = declarator.base
    return str(declarator.name)


# --- what happened


class Marks:
    """The table of one module: the pairs (line before, line) that ran."""

    def __init__(self, raw: bytes) -> None:
        self.pairs = {divmod(at, LINES) for at in (match.start() for match in re.finditer(b"\x01", raw))}
        self.hit = {line for _, line in self.pairs if line}

    def happened(self, function: Function, branch: Branch, outcome: str, executable: set[int]) -> bool:
        if outcome in ("true", "body"):
            return any(line in self.hit for line in sorted(executable & set(branch.body))[:1])
        if branch.kind == "if":
            return any(
                q not in branch.body and q not in function.handlers and (q not in branch.head or q == branch.line)
                for p, q in self.pairs if p in branch.head and p != 0 and not (p < q and q in branch.head)
            )  # fmt: skip
        inside = range(branch.line, branch.body.stop)
        no_end = (branch.leaves | function.jumps) - set(branch.head)
        return any(
            q not in inside and q not in function.handlers for p, q in self.pairs if p in inside and p not in no_end
        )


def executable_lines(path: Path, translated: str | None) -> set[int]:
    """The lines that can be marked, from Cython's output or Python's compiler."""
    if translated is not None:
        found = re.findall(r"__Pyx_TraceLine\((\d+),-?\d+,\d,__PYX_ERR\(0,", translated)
        return {int(line) for line in found}
    return {line for code in codes(compile(path.read_text(), str(path), "exec")) for line in lines_of(code)}


def codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def lines_of(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno}


def measure(name: str, marks: Marks, executable: set[int]) -> dict[str, Any]:
    """The figures of one module and of each function, and the missed lines and branches with their text."""
    path = ROOT / name
    text = path.read_text().splitlines()
    rows = []
    for function in Reader(path).functions:
        last = function.name.rpartition(".")[2]
        if PATHS[name] != (EVERYTHING,) and last not in PATHS[name]:
            continue
        lines = sorted(executable & set(function.lines))
        outcomes = [
            (branch.line, outcome, marks.happened(function, branch, outcome, executable))
            for branch in function.branches if executable & set(branch.body) for outcome in branch.outcomes
        ]  # fmt: skip
        rows.append({
            "function": function.name,
            "lines": len(lines),
            "lines_hit": sum(line in marks.hit for line in lines),
            "branches": len(outcomes),
            "branches_hit": sum(hit for _, _, hit in outcomes),
            "missed_lines": {str(line): text[line - 1].strip() for line in lines if line not in marks.hit},
            "missed_branches": [
                {"line": line, "outcome": outcome, "source": text[line - 1].strip()}
                for line, outcome, hit in outcomes if not hit
            ],
        })  # fmt: skip
    whole = {key: sum(row[key] for row in rows) for key in ("lines", "lines_hit", "branches", "branches_hit")}
    return {**whole, "functions": rows}


# --- the marked build, and the tests on it


def flags(name: str) -> list[str]:
    text = (ROOT / name).read_text()
    return ["--cplus"] if "distutils: language = c++" in text else []


def build(into: Path) -> dict[str, str]:
    """Copy the project and mark the compiled modules of PATHS; returns {module: Cython's output}."""
    for part in ("flashfs", "nandimg", "tests", "bench", "tools", "pyproject.toml", "README.md", "SPEC.md", "docs"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, into / part, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.cpp"))
        else:
            shutil.copy(ROOT / part, into / part)
    translated = {}
    for name in PATHS:
        if name.endswith(".pyx"):
            translated[name] = translate(into, name)
            compile_marked(into, name)
    return translated


def translate(into: Path, name: str) -> str:
    directives = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True,
                  "initializedcheck": False, "embedsignature": True, "linetrace": True}  # fmt: skip
    options = [part for key, value in directives.items() for part in ("-X", f"{key}={value}")]
    out = output(into, name)
    run([sys.executable, "-m", "cython", *flags(name), *options, name, "-o", str(out)], into)
    text = out.read_text()
    words = {"WHERE": WHERE, "NAME": table_name(name), "LINES": str(LINES), "BYTES": str(BYTES)}
    marks = re.sub(r"@(\w+)@", lambda match: words[match[1]], MARKS)
    # after the definitions, before the first mark: __pyx_f is declared between them
    anchor = re.search(r"^static const char\s*\*\s*const __pyx_f\[\] = \{.*?\};\n", text, re.DOTALL | re.MULTILINE)
    first = re.search(r"^ +__Pyx_TraceDeclarations(Func|Gen)$", text, re.MULTILINE)
    last = text.rfind("#define __Pyx_TraceLine(")
    if anchor is None or first is None or len((ROOT / name).read_text().splitlines()) >= LINES:
        raise SystemExit(f"{name}: not to be marked as it is; tools/coverage.py knows Cython 3.3")
    at = text.index("#endif", last)
    at = text.index("\n", text.index("#endif", at)) + 1
    at = max(at, anchor.end())
    out.write_text(text[:at] + marks + text[at:])
    return text


def output(into: Path, name: str) -> Path:
    return into / Path(name).with_suffix(".cpp" if flags(name) else ".c")


def compile_marked(into: Path, name: str) -> None:
    source = output(into, name)
    target = into / Path(name).with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
    target.unlink(missing_ok=True)
    compiler = "g++" if source.suffix == ".cpp" else "gcc"
    include = [f"-I{sysconfig.get_paths()['include']}", "-Inandimg", f"-I{Path(name).parent}"]
    options = ["-O1", "-w", "-DCYTHON_PROFILE=0", "-DCYTHON_TRACE=0", "-shared", "-fPIC", "-fno-strict-aliasing"]
    run([compiler, *options, *include, str(source), "-o", str(target)], into)


def table_name(name: str) -> str:
    return name.replace("/", ".")


def run(command: list[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} ...: {done.stderr.strip()[-2000:]}")


def run_campaigns(into: Path, tables: Path, cuts: int, jobs: int) -> dict[str, int]:
    """Run the tiers on the marked build; returns {tier and FTL: distinct cuts}."""
    environment = {**os.environ, WHERE: str(tables), "PYTHONPATH": str(into)}
    counted = {}
    for words in CAMPAIGNS:
        command = [sys.executable, "-m", "flashfs.cli", "crash", "--json", "--jobs", str(jobs), *words]
        command += [str(cuts)] * (words[-1] == "--cuts")
        done = subprocess.run(command, cwd=into, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command[2:])}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        counted |= {f"{row['tier']} {row['ftl']}": row["cuts"] for row in json.loads(done.stdout)}
    return counted


def run_tests(into: Path, tables: Path, tests: list[str], jobs: int) -> str:
    """Run the tests on the marked build; returns pytest's last line. SystemExit if one fails."""
    shutil.copy(Path(__file__), into / "recovery_coverage.py")
    environment = {**os.environ, WHERE: str(tables), "PYTHONPATH": str(into)}
    left_out = [f"--ignore={name}" for name in LEFT_OUT]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "recovery_coverage", "-n", str(jobs), "-m", "not slow",
         *left_out, *tests],
        cwd=into, env=environment, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\ntests fail on the marked build: no figures")
    return last


# --- as a plugin of pytest, in the copy: marks the modules in plain Python


def pytest_configure() -> None:
    import threading

    import flashfs

    if not str(flashfs.__file__).startswith(str(Path(__file__).parent)):
        raise RuntimeError(f"{flashfs.__file__}: not the marked copy")
    trace = tracer([name for name in PATHS if name.endswith(".py")])
    threading.settrace(trace)
    sys.settrace(trace)


def tracer(names: list[str]) -> Any:
    """A trace function that fills the tables of these modules."""
    here, folder = Path(__file__).parent, Path(os.environ[WHERE])
    tables = {str(here / name): open_table(folder / table_name(name)) for name in names}

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        table = tables.get(frame.f_code.co_filename)
        return None if table is None else follow(table)

    return call


def follow(table: mmap.mmap) -> Any:
    """The local trace function of one call."""
    seen, raised = 0, False

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen, raised
        if event == "exception":
            raised = True
        elif event == "line" or (event == "return" and not raised):
            line = frame.f_lineno if event == "line" else 0
            table[seen * LINES + line] = 1
            seen, raised = line, False
        return local

    return local


def open_table(path: Path) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, BYTES)
        return mmap.mmap(fd, BYTES)
    finally:
        os.close(fd)


# --- the command


def percent(hit: int, of: int) -> str:
    return f"{100 * hit / of:.1f}" if of else "-"


def table(modules: dict[str, dict[str, Any]]) -> list[str]:
    """The rows of docs/coverage.md."""
    out = ["| module | lines | % | branches | % |", "| --- | ---: | ---: | ---: | ---: |"]
    keys = ("lines_hit", "lines", "branches_hit", "branches")
    rows = [(f"`{name}`", *(row[key] for key in keys)) for name, row in modules.items()]
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 5))))
    for name, a, b, c, d in rows:
        out.append(f"| {name} | {a} of {b} | {percent(a, b)} | {c} of {d} | {percent(c, d)} |")
    return out


def missed(modules: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, row in modules.items():
        for function in row["functions"]:
            for line, source in function["missed_lines"].items():
                yield f"{name}:{line} {function['function']}: never reached: {source}"
            for one in function["missed_branches"]:
                if str(one["line"]) not in function["missed_lines"]:
                    yield f"{name}:{one['line']} {function['function']}: never {one['outcome']}: {one['source']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cuts", type=int, default=CUTS, help="of each tier and FTL; 0: no campaign")
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument("--keep", type=Path, help="a folder for the marked copy; tables there are added to")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flashfs-coverage-") as scratch:
        into = given.keep or Path(scratch)
        tables = into / "tables"
        if not tables.exists():
            tables.mkdir(parents=True)
            build(into)
        cuts = run_campaigns(into, tables, given.cuts, given.jobs) if given.cuts else {}
        last = run_tests(into, tables, given.tests, given.jobs)
        modules = {}
        for name in PATHS:
            translated = output(into, name).read_text() if name.endswith(".pyx") else None
            path = tables / table_name(name)
            marks = Marks(path.read_bytes() if path.exists() else b"")
            modules[name] = measure(name, marks, executable_lines(ROOT / name, translated))
    result = {"date": datetime.date.today().isoformat(), "cuts": cuts, "tests": given.tests, "pytest": last,
              "modules": modules}  # fmt: skip
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join([*table(modules), "", *missed(modules)]))


if __name__ == "__main__":
    main()
