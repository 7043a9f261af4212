"""A line that meets a planted bug: a case that fails with the bug's modules, and is survived without it.

    planted_line.py BUG [--ftl FTL] [--tier TIER ...] [--seconds 300] [--seed SEED]

Kept lines (tests/crash/lost.toml) are cases of today's engine: once it programs other pages, or the same ones earlier,
a line may miss the moment that it was kept for. A planted bug whose test is such a line is then noticed by nobody, and
`make test-all` says so. In a copy with the bug this tries the other kept lines; then, for half of the time, lines that
differ a little from the one that was kept; then it draws cases. The first that fails, and that these sources survive,
is made smaller and printed as a row for lost.toml.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "tests" / "crash"))

import bugs  # noqa: E402

from flashfs.crash import Case, run_case, tiers  # noqa: E402

LOST = HERE / "tests" / "crash" / "lost.toml"
TIERS = ("random", "host", "faults", "wide", "sweep")
CUTS = 1_000  #: of a unit, at most: tiers of cuts at each operation know no other end
#: in the copy: FTL, tier, seed, folder; writes the line of each case that fails
DRAWS = f"""
import itertools, json, sys, flashfs
from flashfs.crash import tiers
assert flashfs.__file__.startswith(sys.argv[4]), flashfs.__file__
for unit in tiers.units(sys.argv[2], sys.argv[1], int(sys.argv[3]), {CUTS}):
    for failure in unit.run().failures:
        print(json.dumps([failure.case.line(), failure.why]), flush=True)
"""

#: in the copy: the folder; writes the name of each kept line that fails
KEPT = f"""
import sys, tomllib, flashfs
from flashfs.crash import Case, run_case
assert flashfs.__file__.startswith(sys.argv[1]), flashfs.__file__
for case in tomllib.load(open({str(LOST)!r}, "rb"))["case"]:
    if run_case(Case.parse(case["line"])).failure is not None:
        print(case["name"], flush=True)
"""

#: in the copy: a line, a seed, the folder; writes each that differs from it a little and fails
NEAR = """
import json, random, re, sys, flashfs
from flashfs.crash import Case, run_case
assert flashfs.__file__.startswith(sys.argv[3]), flashfs.__file__
line, rnd = sys.argv[1], random.Random(int(sys.argv[2]))
head, words = line.split("program=")
words = words.strip("'\\"").split()
numbers = re.compile(r"(?<=fault=eio=)\\d+|(?<=fault=flip=)\\d+|(?<=misdirect=)\\d+|(?<=silent=)\\d+|(?<=cut=)\\d+")
while True:
    near = numbers.sub(lambda found: str(max(1, int(found[0]) + rnd.randrange(-40, 41))), head)
    some = list(words)
    for _ in range(rnd.randrange(5)):
        at = rnd.randrange(len(some))
        some[at : at + 1] = rnd.choice(([], [some[at]] * 2, [rnd.choice(words)], [some[at], rnd.choice(words)]))
        some = some or list(words)
    near += "program='" + " ".join(some) + "'"
    try:
        failure = run_case(Case.parse(near)).failure
    except Exception:
        continue  # a word that fits nothing there
    if failure is not None:
        print(json.dumps([near, failure.why]), flush=True)
"""


def kept(path: Path) -> list[str]:
    """The names of kept lines that fail with the modules in ``path``; of those before one that ends the process."""
    command = [sys.executable, "-c", KEPT, str(path)]
    said = subprocess.run(command, cwd=path, env=bugs.environment(path), capture_output=True, text=True, check=False)
    if said.returncode:
        print(said.stderr[-500:], file=sys.stderr)
    return said.stdout.splitlines()


def failing(path: Path, end: float, *words: str) -> Iterator[tuple[str, str]]:
    """(line, why) of cases that fail with the modules in ``path``, until the time ``end``: what ``words`` write."""
    command = ["timeout", str(max(1, int(end - time.monotonic()))), sys.executable, "-c", *words, str(path)]
    with subprocess.Popen(command, cwd=path, env=bugs.environment(path), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for row in child.stdout:
                line, why = json.loads(row)
                yield line, why
        finally:
            child.terminate()


def shrunk(path: Path, line: str) -> str:
    """The smallest case that fails with those modules; ``line`` if none was found that is survived without them."""
    command = [sys.executable, "-m", "flashfs.cli", "crash", "shrink", line, "--json"]
    said = subprocess.run(command, cwd=path, env=bugs.environment(path), capture_output=True, text=True, check=False)
    try:
        small = str(json.loads(said.stdout)["line"])
    except (ValueError, KeyError, TypeError):
        return line
    return small if run_case(Case.parse(small)).failure is None else line


def row(name: str, line: str) -> str:
    return f'[[case]]\nkind = ""\nname = "{name}"\nline = """\\\n  {line}"""\n'


def old_line(bug: bugs.Bug) -> str | None:
    """The kept line that the bug's test is about."""
    name = bug.test.partition("[")[2].removesuffix("]")
    return next((one["line"] for one in tomllib.loads(LOST.read_text())["case"] if one["name"] == name), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bug", help="its name; tests/crash/planted and bugs.toml of each scheme have them")
    parser.add_argument("--ftl", help="draw cases of this one; without it: only lines that differ from the old one")
    parser.add_argument("--tier", nargs="+", default=TIERS, choices=TIERS)
    parser.add_argument("--seconds", type=int, default=300, help="for all (default: 300)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    asked = parser.parse_args()
    bug = bugs.BUGS.get(asked.bug)
    if bug is None or not isinstance(bug.how, bugs.Patch):
        print(f"planted_line: {asked.bug!r} is no bug of a compiled module", file=sys.stderr)
        return 2
    line, now = old_line(bug), time.monotonic()
    tries: list[tuple[str, float, tuple[str, ...]]] = []
    if line is not None:
        now += asked.seconds / (2 if asked.ftl else 1)
        tries.append(("near the old line", now, (NEAR, line, str(asked.seed))))
    left = asked.seconds if line is None else asked.seconds / 2
    for i, tier in enumerate(asked.tier if asked.ftl else ()):
        tiers.presets_for(asked.ftl)
        words = (DRAWS, asked.ftl, tier, str(asked.seed + i))
        tries.append((f"{tier}, seed {asked.seed + i}", now + left * (i + 1) / len(asked.tier), words))
    with tempfile.TemporaryDirectory() as folder:
        path = bug.how.build(Path(folder) / "source")
        if names := kept(path):
            print("\n".join(names))
            return 0
        for what, end, run in tries:
            print(what, file=sys.stderr, flush=True)
            for found, why in failing(path, end, *run):
                if run_case(Case.parse(found)).failure is not None:
                    print(f"fails without the bug too: {found}", file=sys.stderr)
                    continue
                print(f"{why}: made smaller", file=sys.stderr, flush=True)
                print(row(asked.bug, shrunk(path, found)))
                return 0
    print(f"planted_line: no case met it in {asked.seconds} s; give more --seconds", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
