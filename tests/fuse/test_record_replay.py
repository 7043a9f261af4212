"""A database on ext4 on a mount that records; its trace, replayed on every FTL, asks for the same pages."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from schemes import rotated
from stand import Stand, lacks, run

from flashfs.ftl import SCHEMES
from flashfs.replay.play import Setup
from flashfs.replay.play import run as replay
from nandimg import inspect

pytestmark = pytest.mark.mount
Stands = Callable[..., Stand]


def use_a_database(path: Path) -> None:
    """Inserts, updates and deletes in WAL mode, with checkpoints, and a vacuum at the end."""
    rng = random.Random(7)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, what BLOB)")
    for step in range(60):
        base.execute("BEGIN")
        for _ in range(20):
            base.execute("INSERT INTO things(what) VALUES (?)", (rng.randbytes(rng.randrange(50, 3000)),))
        base.execute("UPDATE things SET what = ? WHERE id % 17 = ?", (rng.randbytes(900), step % 17))
        base.execute("DELETE FROM things WHERE id % 23 = ?", (step % 23,))
        base.execute("COMMIT")
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.execute("VACUUM")
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    base.close()


@pytest.mark.parametrize("ftl", rotated(2, 4))
def test_a_database_recorded_and_replayed(stand: Stands, need_loop: None, tmp_path: Path, ftl: str) -> None:
    if (missing := lacks("ext4")) is not None:
        pytest.skip(missing)
    trace = tmp_path / "sqlite.trace"
    one = stand(96, ftl, record=trace)
    one.attach()
    one.make("ext4")
    one.mount_files("ext4", "noatime,discard")
    use_a_database(one.root / "things.db")
    (one.root / "things.db").unlink()  # its blocks are discarded
    run("sync", "-f", one.root)
    one.umount_files()
    one.detach()
    seen = one.stats()["host"]
    one.unmount()
    assert min(seen[name] for name in ("read", "write", "trim")) > 0
    geometry = inspect(one.image).geometry
    for name in SCHEMES:
        made = replay(Setup(str(trace), name, geometry=geometry))
        assert {kind: made["host"][kind] for kind in seen} == seen
        assert made["input"]["rejected"] == made["input"]["adjusted"] == []
        assert made["requests"]["flush"] > 60  # a commit each
