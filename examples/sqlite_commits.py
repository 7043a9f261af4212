"""Does a commit that SQLite acknowledged survive a power cut?

    python examples/sqlite_commits.py create FOLDER
    python examples/sqlite_commits.py insert FOLDER [--commits N] [--synchronous FULL]
    python examples/sqlite_commits.py check FOLDER

`insert` commits transactions to a database in WAL mode, and sets a mark for each that SQLite reports as
committed. `check` is run after a cut: the database must be sound, and have every commit that was acknowledged.

    flashfs crash workload 'python examples/sqlite_commits.py insert {}' \\
        --setup 'python examples/sqlite_commits.py create {}' --check 'python examples/sqlite_commits.py check {}'

With --synchronous NORMAL, SQLite does not promise that, and commits are lost. docs/crash-workload.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

ROWS = 5  #: of a transaction: all of them are there, or none


def connect(folder: Path, synchronous: str = "FULL") -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "database", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("PRAGMA wal_autocheckpoint=20")  # so that checkpoints are cut too
    return connection


def mark(word: str) -> None:
    """Set a mark, if this runs under `flashfs crash workload`."""
    file = os.environ.get("FLASHFS_MARK_FILE")
    if file:
        Path(file).write_text(word)


def payload(number: int, row: int) -> str:
    return f"commit {number} row {row} " * 40


def create(folder: Path) -> None:
    with closing(connect(folder)) as database:
        database.execute("CREATE TABLE rows (number INTEGER, row INTEGER, payload TEXT)")


def insert(folder: Path, commits: int, synchronous: str) -> None:
    with closing(connect(folder, synchronous)) as database:
        for number in range(1, commits + 1):
            database.execute("BEGIN")
            rows = [(number, row, payload(number, row)) for row in range(ROWS)]
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            database.execute("COMMIT")
            mark(str(number))  # the commit is acknowledged


def check(folder: Path) -> list[str]:
    """A line for each fault: a damaged database, a lost commit, or a part of one."""
    acknowledged = int(os.environ.get("FLASHFS_MARK") or 0)
    try:
        with closing(connect(folder)) as database:
            wrong = [said for (said,) in database.execute("PRAGMA integrity_check") if said != "ok"]
            found = database.execute("SELECT number, row, payload FROM rows ORDER BY number, row").fetchall()
    except sqlite3.DatabaseError as error:
        return [f"the database cannot be read: {error}"]
    last = max([number for number, _, _ in found], default=0)
    if found != [(number, row, payload(number, row)) for number in range(1, last + 1) for row in range(ROWS)]:
        wrong.append(f"the rows of commits 1 to {last} are not what was inserted")
    if last < acknowledged:
        wrong.append(f"commit {acknowledged} was acknowledged, and {last} is the last one that is there")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Commits that survive power cuts.")
    parser.add_argument("what", choices=("create", "insert", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--synchronous", default="FULL", choices=("FULL", "NORMAL", "OFF"))
    given = parser.parse_args()
    if given.what == "create":
        create(given.folder)
    elif given.what == "insert":
        insert(given.folder, given.commits, given.synchronous)
    else:
        wrong = check(given.folder)
        for line in wrong:
            print(line)
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
