"""Plant bugs, one at a time, and measure which tier catches each, and after how many cuts.

    python tools/planted_bugs.py [--bug TEXT] [--of FTL] [--first] [--out FILE]

Every bug of tests/crash/bugs.py is tried on every FTL that has it, against each tier in turn: `sweep`, `every`,
`random`, `host`, `faults`, `wide`. A patch of a compiled module takes half a minute to build. The table goes to stdout
as Markdown, the raw figures to ``--out`` as JSON. Exit code 1 if a bug was not caught by any tier.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "crash")] + ([] if "PYTHONPATH" in os.environ else [str(ROOT)])

#: of each tier: cuts, or for `every` the programs' length
BOUNDS = {"sweep": 6_000, "every": 2, "random": 3_000, "host": 6_000, "faults": 3_000, "wide": 1_000}
SEED = 11
TRY_S = 900


def catch(ftl: str, first: bool) -> dict[str, int | None]:
    """{tier: number of the first cut that failed, or None} with the engine of this process; ``first``: only up to the
    first tier that catches it."""
    from flashfs.crash import tiers
    from flashfs.errors import FlashfsError

    found: dict[str, int | None] = {}
    for tier, bound in BOUNDS.items():
        cuts, found[tier] = 0, None
        try:
            for unit in tiers.units(tier, ftl, SEED, bound):
                tally = unit.run()
                if tally.failures:
                    found[tier] = cuts + tally.first
                    break
                cuts += tally.cuts
                if tier != "every" and cuts >= bound:
                    break
        except FlashfsError:  # it does not even start
            found[tier] = 1
        if first and found[tier]:
            break
    return found


def measure(name: str, ftl: str, path: str | None, first: bool) -> dict[str, int | None]:
    """``catch`` in a process of its own, because a patched engine may crash it or never end."""
    environment = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    command = [sys.executable, __file__, "--catch", name, "--ftl", ftl, *(["--first"] if first else [])]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TRY_S, cwd=path)
    except subprocess.TimeoutExpired:
        return {"never ends": 1}
    if done.returncode < 0:
        return {"crash": 1}
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, int | None] = json.loads(done.stdout)
    return found


def one(name: str, of: str, first: bool) -> list[dict[str, Any]]:
    """A row for each FTL that the bug is in, or for ``of`` alone."""
    import bugs

    bug = bugs.BUGS[name]
    with tempfile.TemporaryDirectory(prefix="flashfs-bug-") as folder:
        path = str(bug.how.build(Path(folder))) if isinstance(bug.how, bugs.Patch) else None
        return [
            {"bug": name, "where": bug.where, "ftl": ftl, "compiled": path is not None,
             **measure(name, ftl, path, first)}
            for ftl in bug.of if of in ("", ftl)
        ]  # fmt: skip


def caught_here(name: str, ftl: str, first: bool) -> None:
    """The child: plant the bug, unless it is compiled in, and print what caught it."""
    import bugs
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        how = bugs.BUGS[name].how
        if not isinstance(how, bugs.Patch):
            how(patch)
        print(json.dumps(catch(ftl, first)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bug", default="", help="only those whose name has this in it")
    parser.add_argument("--of", default="", help="only those of this FTL and of one other at most")
    parser.add_argument("--first", action="store_true", help="no further tier once one has caught it")
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    parser.add_argument("--catch", help=argparse.SUPPRESS)
    parser.add_argument("--ftl", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.catch:
        caught_here(given.catch, given.ftl, given.first)
        return 0
    import bugs

    rows: list[dict[str, Any]] = []
    started = time.time()
    print(f"| bug | where | FTL | {' | '.join(BOUNDS)} |\n| --- | --- | --- |{' --: |' * len(BOUNDS)}")
    for name in bugs.BUGS:
        of = bugs.BUGS[name].of
        if given.bug not in name or (given.of and (given.of not in of or len(of) > 2)):
            continue
        for row in one(name, given.of, given.first):
            rows.append(row)
            other = next((kind for kind in ("crash", "never ends") if kind in row), "-")
            figures = [str(row.get(tier) or (other if tier in row or other != "-" else "")) for tier in BOUNDS]
            print(f"| {name} | {row['where']} | {row['ftl']} | {' | '.join(figures)} |", flush=True)
    if given.out:
        note = {"seed": SEED, "bounds": BOUNDS, "seconds": round(time.time() - started), "rows": rows}
        given.out.write_text(json.dumps(note, indent=1) + "\n")
    escaped = [f"{row['bug']} ({row['ftl']})" for row in rows if not any(row.get(t) for t in (*BOUNDS, "crash"))]
    print(*[f"not caught: {name}" for name in escaped], sep="\n", file=sys.stderr)
    return bool(escaped)


if __name__ == "__main__":
    sys.exit(main())
