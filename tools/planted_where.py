"""Which tests try each planted bug: ``make test`` or the slow tier, and on which FTLs.

    planted_where.py [ROOT] [--json]
    planted_where.py --caught FILE

ROOT is a checkout that is built (default: this one). Nothing is run: the tests are collected. A bug that only the
slow tier tries is in a compiled module, which must be rebuilt.

FILE is written by a run of those tests with FLASHFS_CATCHES=FILE. The tier and unit that caught a bug in an FTL go into
tests/crash/caught.json, and the next run starts with those; a bug that no tier caught in an FTL goes into
tests/crash/missed.json, and the next run does not try it there.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TESTS = ("test_is_caught", "test_a_patch_is_caught")
CAUGHT = HERE / "tests" / "crash" / "caught.json"
MISSED = CAUGHT.with_name("missed.json")
FAST = "not slow and not package"


def collected(root: Path, marks: str) -> list[str]:
    """The ids of the tests that try planted bugs."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks, "tests/crash/test_planted.py"]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [line.partition("::")[2] for line in said.splitlines() if "::" in line]


def tried(ids: list[str]) -> dict[str, list[str]]:
    """{bug: FTLs}; ``all``: every FTL that has the bug."""
    found: dict[str, list[str]] = {}
    for one in ids:
        match = re.fullmatch(r"(\w+)\[(.*)\]", one)
        if match is None or match[1] not in TESTS:
            continue
        bug, _, ftl = match[2].rpartition("-") if match[1] == TESTS[0] or match[2].rpartition("-")[2] in (
            "all", "pagemap") else (match[2], "", "all")  # fmt: skip
        found.setdefault(bug, []).append(ftl)
    return found


def note_catches(lines: Path) -> int:
    """Put the lines into caught.json and missed.json; entries of other FTLs stay."""
    known, missed = json.loads(CAUGHT.read_text()), json.loads(MISSED.read_text())
    for line in lines.read_text().splitlines():
        bug, ftl, tier = json.loads(line)
        left = set(missed.pop(bug, ())) - {ftl} | ({ftl} if tier is None else set())
        if left:
            missed[bug] = sorted(left)
        if tier is not None:
            known.setdefault(bug, {})[ftl] = tier
        elif ftl in known.get(bug, {}):
            del known[bug][ftl]
    for path, found in ((CAUGHT, {bug: dict(sorted(of.items())) for bug, of in known.items()}), (MISSED, missed)):
        rows = ",\n".join(f"{json.dumps(bug)}: {json.dumps(found[bug])}" for bug in sorted(found))
        path.write_text(f"{{\n{rows}\n}}\n")
        print(f"{path}: {sum(map(len, found.values()))} of {len(found)} bugs")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=HERE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--caught", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.caught:
        return note_catches(given.caught)
    fast, slow = tried(collected(given.root, FAST)), tried(collected(given.root, "slow"))
    rows = {bug: {"test": sorted(fast.get(bug, [])), "slow": sorted(slow.get(bug, []))} for bug in sorted(fast | slow)}
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        for bug, row in rows.items():
            print(f"{bug}: make test: {', '.join(row['test']) or '-'}; slow: {', '.join(row['slow']) or '-'}")
        print(f"{len(rows)} bugs, {len(fast)} of them in make test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
