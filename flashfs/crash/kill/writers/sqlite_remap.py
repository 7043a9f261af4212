"""Commits transactions to an SQLite database whose checkpoints remap, on a flashfs disk whose daemon is killed inside
them. It runs as a script, in a process of its own.

    python -P sqlite_remap.py DISK LOG SEED LAST AT PACE EXAMPLES ROOT

The transactions are those of sqlite.py, the database that of EXAMPLES/sqlite_wal.py, and ROOT is where flashfs is. LOG,
which lies elsewhere, also gets a line when a checkpoint remaps its first page, one when its last page is durable, and
`now` at the AT-th page that is remapped. From there the kill may come: it waits for it (PACE ``park``), pauses after
each page (``slow``), or goes on (``run``).
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

FRAMES = 200  #: of the log, before a checkpoint: some hundred pages to remap
SLOW_S = 0.002


def connect(database: str, mode: str, vfs: str) -> Any:
    """Open the database, which recovers what a crash left. The log stays when the database is closed: only an explicit
    checkpoint shortens it."""
    import apsw

    connection = apsw.Connection(database, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    for pragma in ("locking_mode=EXCLUSIVE", "page_size=4096", f"journal_mode={mode}", "synchronous=FULL",
                   "wal_autocheckpoint=0", "cache_size=40"):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


class Aim:
    """Counts the pages that are remapped, and logs where checkpoints begin and end and where the kill may come."""

    def __init__(self, disk: Path, log: int, at: int, pace: str) -> None:
        self.disk, self.log, self.at, self.pace = disk, log, at, pace
        self.vfs: Any = None  # keeps the VFS alive
        self.remapped = 0
        self.inside = False

    def note(self, what: str) -> None:
        os.write(self.log, (json.dumps({what: self.remapped}) + "\n").encode())

    def page(self) -> None:
        """A page was remapped."""
        self.remapped += 1
        if not self.inside:
            self.note("checkpoint")
            self.inside = True
        if self.remapped == self.at:
            self.note("now")
        if self.remapped >= self.at and self.pace != "run":
            time.sleep(SLOW_S)
            while self.pace == "park":
                os.statvfs(self.disk)      # OSError once the device is gone
                time.sleep(SLOW_S)

    def synced(self) -> None:
        """The database was synced: a checkpoint under way is complete and durable."""
        if self.inside:
            self.note("checkpointed")
            self.inside = False


def aimed(sqlite_wal: Any, extents: Any, aim: Aim) -> Any:
    """The example's VFS, whose database reports remapped pages and syncs to ``aim``."""

    class Database(sqlite_wal.Database):
        def xWrite(self, data: bytes, offset: int) -> None:
            before = self.extents.remapped
            super().xWrite(data, offset)
            if self.extents.remapped > before:
                aim.page()

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            aim.synced()

    class Vfs(sqlite_wal.Vfs):
        def xOpen(self, name: Any, flags: list[int]) -> Any:
            opened = super().xOpen(name, flags)
            return Database(extents, opened.name) if isinstance(opened, sqlite_wal.Database) else opened

    return Vfs(extents)


def run(connection: Any, log: int, seed: str, number: int) -> None:
    """Commit transactions in a row, with a checkpoint when the log has FRAMES frames, until an error."""
    from flashfs.crash.kill.writers import sqlite as writer

    frames = [0]
    connection.set_wal_hook(lambda _, name, pages: frames.__setitem__(0, pages) or 0)
    while True:
        number += 1
        connection.execute("BEGIN IMMEDIATE")
        writer.change(connection, seed, number)
        os.write(log, (json.dumps({"begun": number}) + "\n").encode())
        connection.execute("COMMIT")
        os.write(log, (json.dumps({"done": number}) + "\n").encode())
        if frames[0] >= FRAMES:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            frames[0] = 0


def main(disk: str, log: str, seed: str, last: str, at: str, pace: str, *folders: str) -> None:
    """See the module's docstring."""
    sys.path[:0] = folders
    import apsw

    from flashfs.crash.kill.writers import sqlite as writer

    sqlite_wal = import_module("sqlite_wal")

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        extents = sqlite_wal.Extents(Path(disk))
        aim = Aim(Path(disk), handle, int(at), pace)
        aim.vfs = aimed(sqlite_wal, extents, aim)
        run(connect("db", "WAL", sqlite_wal.NAME), handle, seed, int(last))
    except (OSError, apsw.Error) as error:
        print(f"writer: {type(error).__name__}: {error}", file=sys.stderr)
        code = getattr(error, "result", None)
        if isinstance(error, OSError) or code in writer.GONE:
            os._exit(0)  # skips SQLite's cleanup, which would fail: the files are gone
    os._exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
