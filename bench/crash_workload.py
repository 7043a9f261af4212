"""Power cuts under the example programs of docs/crash-workload.md: a spool that forgets an fsync, one that does not,
and SQLite. Each is cut 20 times at random flash operations; the result is how many of the states the checker
refused.

    crash_workload.py [--cuts N] [--seed S] [--out FILE]

Needs root and /dev/fuse.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "crash_workload.json"
SPOOL, SQLITE = "python examples/spool.py", "python examples/sqlite_commits.py"
RUNS = {
    "spool, an fsync forgotten": [f"{SPOOL} deliver {{}} --forget", "--check", f"{SPOOL} check {{}}"],
    "spool": [f"{SPOOL} deliver {{}}", "--check", f"{SPOOL} check {{}}"],
    "SQLite, WAL": [
        "--setup", f"{SQLITE} create {{}}", f"{SQLITE} insert {{}}", "--check", f"{SQLITE} check {{}}",
    ],
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = []
    for name, words in RUNS.items():
        with tempfile.TemporaryDirectory() as where:  # also removes a recording kept because of failures
            done = subprocess.run(
                [Path(sys.executable).parent / "flashfs", "crash", "workload", *words,
                 "--cuts", str(given.cuts), "--seed", str(given.seed), "--recording", str(Path(where) / "rec"),
                 "--json"],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
        if done.returncode not in (0, 1):
            print(done.stderr, file=sys.stderr)
            return done.returncode
        for found in json.loads(done.stdout):
            refused = len(found["failures"])
            print(f"{name}: {refused} of {found['cuts']} states refused")
            rows.append({
                "run": name, "command": " ".join(words), "ftl": found["ftl"], "cuts": found["cuts"],
                "seed": found["seed"], "refused": refused,
                "first": [{"cut": one["cut"], "says": one["output"]} for one in found["failures"][:1]],
            })  # fmt: skip
    given.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0
