"""An SQLite database on `disk` itself, whose checkpoints remap pages; the daemon is killed inside checkpoints."""

from __future__ import annotations

import os
import random
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import flashfs
from flashfs.crash.kill.sqlite import Sqlite
from flashfs.crash.kill.workload import Lost
from flashfs.crash.kill.writers import sqlite as writer
from flashfs.crash.kill.writers import sqlite_remap
from flashfs.crash.kill.writers.files import log_lines
from flashfs.errors import FlashfsError

EXAMPLE = "sqlite_wal"
REMAPS_MOST = 500  #: the kill comes at one of the first so many remapped pages: in one of the first checkpoints
PACES = ("park", "slow", "run")


def needs() -> None:
    """FlashfsError unless apsw and the example VFS are installed."""
    if find_spec("apsw") is None:
        raise FlashfsError("crash kill --writer sqlite-remap needs apsw: pip install apsw")
    folder()


def folder() -> Path:
    """The folder of the example, in a checkout or an installation; FlashfsError if it is in neither."""
    places = (Path(flashfs.__file__).parents[1] / "examples", Path(sys.prefix) / "share/doc/flashfs/examples")
    for place in places:
        if (place / f"{EXAMPLE}.py").exists():
            return place
    raise FlashfsError(f"crash kill --writer sqlite-remap needs {EXAMPLE}.py in {places[0]} or {places[1]}")


def example() -> Any:
    """The example's module."""
    place = str(folder())
    if place not in sys.path:
        sys.path.append(place)
    return import_module(EXAMPLE)


class SqliteRemap(Sqlite):
    """The transactions of the other SQLite writers, on the database of examples/sqlite_wal.py: a checkpoint remaps each
    page from the log to its place. In each life the daemon is killed after a randomly chosen page was remapped."""

    mode = "WAL"
    bare = True
    planned = False
    life_s = (0.0, 0.01)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.database = self.root / "disk"
        self.rnd = random.Random(f"sqlite-remap {self.seed}")

    def opened(self) -> tuple[Any, Any, Any]:
        """(connection, VFS, extents) of the database as it is."""
        module = example()
        extents = module.Extents(self.database)
        vfs = None
        try:
            vfs = module.Vfs(extents)
            return sqlite_remap.connect("db", self.mode, module.NAME), vfs, extents
        except BaseException:
            let_go(None, vfs, extents)
            raise

    def prepare(self) -> None:
        if self.last:
            return
        module = example()
        extents = module.Extents(self.database)
        for page in (0, extents.database):
            os.pwrite(extents.fd, bytes(module.PAGE), page * module.PAGE)
        extents.close()
        with Open(self) as connection:
            for statement in writer.SCHEMA:
                connection.execute(statement)

    def command(self) -> list[str]:
        self.log.unlink(missing_ok=True)
        at, pace = self.rnd.randint(1, REMAPS_MOST), self.rnd.choice(PACES)
        places = (str(folder()), str(Path(flashfs.__file__).parents[1]))
        what = (str(self.database), str(self.log), self.seed, str(self.last), str(at), pace)
        return [sys.executable, "-P", sqlite_remap.__file__, *what, *places]

    def began(self) -> bool:
        return self.log.exists() and b'"now"' in self.log.read_bytes()

    def read_log(self) -> None:
        super().read_log()
        lines = [next(iter(line)) for line in log_lines(self.log) if line] if self.log.exists() else []
        places = [name for name in lines if name in ("checkpoint", "checkpointed")]
        self.aimed += places[-1:] == ["checkpoint"]

    def judge(self) -> None:
        if not self.begun:
            return
        import apsw

        try:
            with Open(self) as connection:
                self.judge_open(connection)
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
            raise Lost(f"the database is damaged: {error}") from None
        except apsw.Error as error:
            raise OSError(f"reading the database: {error}") from None


class Open:
    """A context manager for the connection; closes everything at the end, without a checkpoint."""

    def __init__(self, work: SqliteRemap) -> None:
        self.parts = work.opened()

    def __enter__(self) -> Any:
        return self.parts[0]

    def __exit__(self, *raised: object) -> None:
        let_go(*self.parts)


def let_go(connection: Any, vfs: Any, extents: Any) -> None:
    if connection is not None:
        connection.close()
    if vfs is not None:
        vfs.unregister()
    extents.close()
