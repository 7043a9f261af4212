"""An SQLite database: commits in a row, each of them acknowledged before the next."""

from __future__ import annotations

import signal
import sqlite3
import zlib
from contextlib import closing
from typing import Any

from flashfs.crash.kill.workload import PYTHON, Lost, Workload
from flashfs.crash.kill.writers import sqlite as writer
from flashfs.crash.kill.writers.files import log_lines

Model = dict[int, tuple[int, int]]  #: key -> (the transaction that wrote its row, the size of its payload)


class Sqlite(Workload):
    """Transactions are numbered, and the database has the number of the last, which determines its whole content. Two
    contents are allowed: that after the last acknowledged commit, and that after the one under way."""

    mode = "DELETE"
    checked_every = 10  # the data under test is in the database, which is judged each time

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.database = self.root / "database"
        self.last = self.found = 0  #: the last transaction that is settled; the last that was found
        self.acknowledged = self.begun = 0
        self.model: Model = {}
        self.model_at = 0

    def prepare(self) -> None:
        """Create the database once; again if the daemon died while it was created."""
        if not self.last:
            for left in self.root.glob("database*"):
                left.unlink()
            try:
                writer.create(str(self.database), self.mode)
            except sqlite3.OperationalError as error:
                raise OSError(f"making the database: {error}") from None

    def command(self) -> list[str]:
        self.log.unlink(missing_ok=True)
        return [*PYTHON, writer.__file__, str(self.database), str(self.log), self.seed, self.mode, str(self.last)]

    def gave_up(self, code: int, said: str) -> str | None:
        """SIGBUS is expected: the WAL index is memory-mapped, and a page fault after the device is gone raises it."""
        return None if code == -signal.SIGBUS else super().gave_up(code, said)

    def read_log(self) -> None:
        self.begun = self.acknowledged = self.last
        for line in log_lines(self.log) if self.log.exists() else ():
            self.begun = line.get("begun", self.begun)
            self.acknowledged = line.get("done", self.acknowledged)

    def settled(self) -> None:
        self.last = self.found

    def judge(self) -> None:
        """SQLite recovers the database; then all of it must be as one of the two allowed transactions left it."""
        if not self.begun:
            return  # killed before there was anything in it
        if not self.database.exists():
            raise Lost(f"the database is gone, and {self.acknowledged} transactions were acknowledged")
        try:
            with closing(writer.connect(str(self.database), self.mode)) as connection:
                self.judge_open(connection)
        except sqlite3.OperationalError as error:  # such as an I/O error: the daemon may have died meanwhile
            raise OSError(f"reading the database: {error}") from None
        except sqlite3.DatabaseError as error:
            raise Lost(f"the database is damaged: {error}") from None

    def judge_open(self, connection: sqlite3.Connection) -> None:
        (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            raise Lost(f"PRAGMA integrity_check: {said}")
        (self.found,) = connection.execute("SELECT last FROM head").fetchone()
        if not self.acknowledged <= self.found <= self.begun:
            raise Lost(
                f"transaction {self.found} is the last one in the database: {self.acknowledged} was acknowledged, "
                f"{self.begun} was begun"
            )
        self.bring_model_to(self.found)
        left = dict(self.model)
        for key, number, crc, data in connection.execute("SELECT key, number, crc, payload FROM rows").fetchall():
            where = f"after transaction {self.found}, row {key}"
            if key not in left:
                raise Lost(f"{where} is back (of transaction {number}): it was deleted")
            meant, size = left.pop(key)
            if number != meant:
                raise Lost(f"{where} is of transaction {number}, not of {meant}")
            if zlib.crc32(data) != crc or data != writer.payload(self.seed, number, key, size):
                raise Lost(f"{where} has another payload than transaction {number} gave it")
        if left:
            raise Lost(f"after transaction {self.found}, rows {sorted(left)[:5]} are missing")

    def bring_model_to(self, number: int) -> None:
        """Set ``model`` to what the database must hold after transaction ``number``."""
        if number < self.model_at:
            raise Lost(f"transaction {self.model_at} was found after a recovery, and only {number} after the next")
        for each in range(self.model_at + 1, number + 1):
            for key, size in writer.changes(self.seed, each):
                if size is None:
                    self.model.pop(key, None)
                else:
                    self.model[key] = (each, size)
        self.model_at = number


class SqliteWal(Sqlite):
    """The same with a write-ahead log instead of a rollback journal."""

    mode = "WAL"
