"""What the judges of SQLite and fio in the kill tier say; on a plain folder, without any device."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from killed import killed_after

from flashfs.crash.kill import fio
from flashfs.crash.kill.daemon_lives import Lost
from flashfs.crash.kill.sqlite import Sqlite, SqliteWal
from flashfs.crash.kill.workload import Workload


def made(kind: type[Workload], folder: Path) -> Workload:
    root = folder / "files"
    root.mkdir()
    work = kind(root, folder, "1", lambda: 0)
    work.prepare()
    return work


def killed(work: Workload, changes: int = 6) -> None:
    killed_after(work, changes)
    work.read_log()


@pytest.mark.parametrize("kind", [Sqlite, SqliteWal])
def test_a_killed_writer_leaves_what_it_acknowledged(kind: type[Sqlite], tmp_path: Path) -> None:
    work = made(kind, tmp_path)
    for _ in range(2):
        killed(work)
        work.judge()
        work.settled()
    assert isinstance(work, Sqlite)
    assert work.last > 5


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ("UPDATE head SET last = last - 2", "was acknowledged"),
        ("UPDATE head SET last = last + 2", "was begun"),
        ("DELETE FROM rows WHERE key = (SELECT max(key) FROM rows)", "are missing"),
        ("INSERT INTO rows VALUES (9999, 1, 0, x'00')", "row 9999 is back"),
        ("UPDATE rows SET number = number - 1 WHERE key = (SELECT max(key) FROM rows)", "is of transaction"),
        ("UPDATE rows SET payload = zeroblob(length(payload))", "another payload"),
    ],
)
def test_a_database_that_is_not_as_acknowledged(tmp_path: Path, spoil: str, why: str) -> None:
    work = made(SqliteWal, tmp_path)
    killed(work)
    work.judge()
    connection = sqlite3.connect(tmp_path / "files" / "database")
    connection.execute(spoil)
    connection.commit()
    connection.close()
    with pytest.raises(Lost, match=why):
        work.judge()


def test_a_database_that_is_damaged_or_gone(tmp_path: Path) -> None:
    work = made(Sqlite, tmp_path)
    killed(work)
    work.judge()
    database = tmp_path / "files" / "database"
    data = bytearray(database.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    database.write_bytes(data)
    with pytest.raises(Lost, match=r"damaged|integrity_check"):
        work.judge()
    database.unlink()
    with pytest.raises(Lost, match="is gone"):
        work.judge()


@pytest.fixture
def written(tmp_path: Path) -> fio.Fio:
    """A run of fio to its end."""
    if shutil.which("fio") is None:
        pytest.skip("needs fio")
    work = made(fio.Fio, tmp_path)
    assert isinstance(work, fio.Fio)
    assert subprocess.run(work.command(), capture_output=True).returncode == 0
    return work


def block(work: fio.Fio, change: Callable[[bytes], bytes], number: int = 17) -> None:
    with work.file.open("r+b") as file:
        file.seek(number * fio.BLOCK_BYTES)
        data = file.read(fio.BLOCK_BYTES)
        file.seek(number * fio.BLOCK_BYTES)
        file.write(change(data))


def test_what_fio_wrote_is_there(written: fio.Fio) -> None:
    assert fio.issued(written.state) == fio.FILE_BYTES // fio.BLOCK_BYTES
    written.judge()


def test_a_block_that_fio_was_told_is_durable_and_is_not(written: fio.Fio) -> None:
    block(written, lambda data: fio.filler(written.seed))
    with pytest.raises(Lost, match=r"fio, of 1536 writes: .*bad magic"):
        written.judge()


@pytest.mark.parametrize("change", [lambda data: data[:2048] + bytes(2048), lambda data: data[:2048] + data[:2048]])
def test_a_torn_block_is_seen_acknowledged_or_not(written: fio.Fio, change: Callable[[bytes], bytes]) -> None:
    written.state.unlink()
    written.judge()
    block(written, change)
    with pytest.raises(Lost, match="byte 69632: neither"):
        written.judge()
