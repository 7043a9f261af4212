"""Commits transactions to an SQLite database while the device under it is killed. It runs as a script, in a process of
its own, and knows nothing of flashfs.

    python sqlite.py DATABASE LOG SEED JOURNAL_MODE LAST

It commits transactions LAST + 1, LAST + 2 and so on; each is a function of SEED and its number alone. LOG, which lies
elsewhere, gets a line before each COMMIT and one after it has returned (it is acknowledged). It ends at the first
error: 0 if the device may be gone, 3 if not; the error is on stderr.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import zlib
from contextlib import closing

KEYS = 120
SIZES = (20, 300, 1500, 5000, 20_000)  #: bytes of a payload: some rows to a page, and some pages to a row

# FULL makes a commit durable in WAL mode. In DELETE mode a commit is the removal of the rollback journal, and only
# EXTRA syncs the folder afterwards: under FULL, the journal may reappear after a power cut and roll back an
# acknowledged commit.
SYNCHRONOUS = {"DELETE": "EXTRA", "WAL": "FULL"}

SCHEMA = (
    "CREATE TABLE head (last INTEGER NOT NULL)",
    "INSERT INTO head VALUES (0)",
    "CREATE TABLE rows (key INTEGER PRIMARY KEY, number INTEGER NOT NULL, crc INTEGER NOT NULL, payload BLOB NOT NULL)",
    "CREATE INDEX by_crc ON rows (crc)",
)

# What SQLite returns when the device is gone. CORRUPT too: the kernel may drop pages that it could not write back, and
# xfs then reads zeros where data was just written. Whether the database is damaged is judged after the recovery.
GONE = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
)

#: a change of one row: (key, size of its new payload or None if it is deleted)
Change = tuple[int, int | None]


def changes(seed: str, number: int) -> list[Change]:
    """The changes of a transaction."""
    rnd = random.Random(f"sqlite {seed} {number}")
    few = rnd.randint(1, 6) if rnd.random() < 0.9 else 40  # 40 changes spill out of the page cache before the commit
    return [(rnd.randrange(KEYS), None if rnd.random() < 0.2 else rnd.choice(SIZES)) for _ in range(few)]


def payload(seed: str, number: int, key: int, size: int) -> bytes:
    """The bytes of a row: no other transaction and no other key has them."""
    return random.Random(f"row {seed} {number} {key}").randbytes(size)


def connect(database: str, mode: str) -> sqlite3.Connection:
    """Open the database; SQLite recovers what a crash left."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[mode]}")
        connection.execute("PRAGMA cache_size=40")  # pages
        connection.execute("PRAGMA wal_autocheckpoint=80")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def create(database: str, mode: str) -> None:
    """Create an empty database in that journal mode, which it keeps."""
    with closing(connect(database, mode)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        for statement in SCHEMA:
            connection.execute(statement)


def change(connection: sqlite3.Connection, seed: str, number: int) -> None:
    """Make all changes of one transaction; the caller begins and commits it."""
    for key, size in changes(seed, number):
        if size is None:
            connection.execute("DELETE FROM rows WHERE key = ?", (key,))
        else:
            data = payload(seed, number, key, size)
            connection.execute("REPLACE INTO rows VALUES (?, ?, ?, ?)", (key, number, zlib.crc32(data), data))
    connection.execute("UPDATE head SET last = ?", (number,))


def run(connection: sqlite3.Connection, log: int, seed: str, number: int) -> None:
    """Commit transactions in a row until an error. One in 16 is preceded by one that is rolled back."""
    while True:
        if number % 16 == 0:
            connection.execute("BEGIN IMMEDIATE")
            change(connection, seed, number + 1_000_000)
            connection.execute("ROLLBACK")
        number += 1
        connection.execute("BEGIN IMMEDIATE")
        change(connection, seed, number)
        os.write(log, (json.dumps({"begun": number}) + "\n").encode())
        connection.execute("COMMIT")
        os.write(log, (json.dumps({"done": number}) + "\n").encode())


def main(database: str, log: str, seed: str, mode: str, last: str) -> int:
    """See the module's docstring."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        run(connect(database, mode), handle, seed, int(last))
    except sqlite3.Error as error:
        print(f"writer: {type(error).__name__}: {error}", file=sys.stderr)
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in GONE:
            return 0
    return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
