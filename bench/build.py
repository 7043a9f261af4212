"""What compiling everything costs: seconds of processor time, of Cython and the compiler, for all modules and for each.

Each commit is checked out into a folder of its own and built there from nothing by `setup.py build_ext`, first one
module at a time, then with --parallel; with the Python, the Cython and the compiler that run this. Compare the
seconds a module: a later commit has more modules.

    build.py [--commits COMMIT,COMMIT] [--parallel N] [--no-save]
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import common

PROJECT = common.HERE.parent
BEFORE = "1c5f16d^"  # the last commit in which each module had its own copy of Cython's memoryviews
Row = dict[str, Any]


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", PROJECT, "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", PROJECT, "worktree", "remove", "--force", tree], check=True)


def build(tree: Path, parallel: int) -> tuple[float, float]:
    """(elapsed seconds, processor seconds)."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--force", "--parallel", str(parallel)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, used


def measured(commit: str, parallel: int) -> Row:
    name = subprocess.run(
        ["git", "-C", PROJECT, "rev-parse", "--short", commit], check=True, capture_output=True, text=True
    ).stdout.strip()  # fmt: skip
    with checkout(name) as tree:
        modules = sum(1 for folder in ("nandimg", "flashfs") for _ in (tree / folder).rglob("*.pyx"))
        passed_s, processor_s = build(tree, 1)
        parallel_s, _ = build(tree, parallel)
    return {
        "commit": name, "modules": modules, "processor_s": processor_s, "processor_s_a_module": processor_s / modules,
        "passed_s": passed_s, "parallel": parallel, "parallel_s": parallel_s,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", default=f"{BEFORE},HEAD")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    rows = [measured(commit, given.parallel) for commit in given.commits.split(",")]
    print(f"| commit | modules | processor, s | a module, s | one at a time, s | {given.parallel} at a time, s |")
    print("| --- | --: | --: | --: | --: | --: |")
    for row in rows:
        print(f"| {row['commit']} | {row['modules']} | {row['processor_s']:.0f} | {row['processor_s_a_module']:.2f} "
              f"| {row['passed_s']:.0f} | {row['parallel_s']:.0f} |")  # fmt: skip
    if not given.no_save:
        print(common.save("build", {"rows": rows}).relative_to(PROJECT))
    return 0
