"""The examples of remaps, on a mount: of an FTL that copies, and of those that remap."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from stand import MIB, PAGE, Stand, same

from flashfs import inspect
from flashfs.ftl import SCHEMES, scheme
from flashfs.fuse import mounts
from flashfs.poll import readable

pytestmark = pytest.mark.mount
FTLS = ["pagemap", *(name for name in SCHEMES if scheme(name).remaps)]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(params=FTLS)
def one(stand: Callable[..., Stand], request: pytest.FixtureRequest) -> Stand:
    return stand(64, request.param)


def shares(one: Stand) -> bool:
    return scheme(one.ftl).remaps


def ends(one: Stand) -> None:
    one.unmount()
    assert inspect.problems(one.image, True) == []


def test_a_clone_of_a_range(one: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import clone

    data = random.Random(1).randbytes(16 * MIB)
    with one.disk.open("r+b", buffering=0) as disk:
        os.pwrite(disk.fileno(), data, 0)
    copied = clone.measured(one.disk, clone.copy, 0, 32 * MIB, 16 * MIB)["programs"]
    cloned = clone.measured(one.disk, clone.clone, 0, 32 * MIB, 16 * MIB)["programs"]
    assert copied >= 16 * MIB // PAGE
    assert cloned < 100 if shares(one) else cloned >= 16 * MIB // PAGE
    with one.disk.open("rb", buffering=0) as disk:
        same(os.pread(disk.fileno(), 16 * MIB, 32 * MIB), data)
    monkeypatch.setattr(sys, "argv", ["clone.py", str(one.home), "0", str(32 * MIB), str(MIB)])
    clone.main()
    assert capsys.readouterr().out.count("pages programmed") == 2
    ends(one)


def test_a_log_that_is_cleaned(one: Stand) -> None:
    import log_store

    found = {remaps: log_store.play(one.home, 4096, 8_000, remaps=remaps, pages=128) for remaps in (False, True)}
    assert found[True]["moved"] == found[False]["moved"] > 1_000
    saved = found[False]["programs"] - found[True]["programs"]
    assert saved > found[True]["moved"] * 0.8 if shares(one) else abs(saved) < 200
    ends(one)


@pytest.mark.parametrize("dedup", ["off", "on"])
def test_copies_of_a_tree(
    need_loop: None, stand: Callable[..., Stand], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, dedup: str,
) -> None:  # fmt: skip
    """On ext4 with dedup=on a copy of source files programs what the file system says of them, and not their content,
    and all are unchanged, also after a kill."""
    import dedup_tree

    tree = tmp_path / "replay"  # a copy: tests that run meanwhile leave bytecode there
    shutil.copytree(Path(__file__).parents[1] / "replay", tree, ignore=shutil.ignore_patterns("__pycache__"))
    one = stand(64, "remapssd", options={"dedup": dedup})
    one.attach()
    one.make("ext4", "-F")
    one.mount_files("ext4")
    first, *copies = dedup_tree.played(one.home, one.root, tree, 3)
    pages = first["bytes"] // PAGE
    assert pages > 50
    for took in copies:
        assert took["written"] > pages
        assert (took["found"] > pages * 0.9, took["programmed"] < pages * 0.6) == (dedup == "on", dedup == "on")
    one.kill()
    one.mount(options={"dedup": dedup})
    one.attach()
    one.mount_files("ext4")
    for path in tree.rglob("*"):
        for n in range(4) if path.is_file() else ():
            assert (one.root / f"replay-{n}" / path.relative_to(tree)).read_bytes() == path.read_bytes()
    monkeypatch.setattr(sys, "argv", ["dedup_tree.py", str(one.home), str(one.root), str(tree / "foreign"), "1"])
    dedup_tree.main()
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == ["the", "copy", "in"]
    ends(one)


class Sqlite:
    """The example, and a database on a mount. A file is opened anew each time, as after a death of its process."""

    def __init__(self, one: Stand, sync: str = "NORMAL", **how: Any) -> None:
        import sqlite_wal

        self.module = sqlite_wal
        self.extents = sqlite_wal.Extents(one.disk, **how)
        self.vfs = sqlite_wal.Vfs(self.extents)
        self.database = sqlite_wal.connect(checkpoint=300, sync=sync)

    def rows(self) -> dict[int, bytes]:
        assert self.database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return dict(self.database.execute("SELECT key, value FROM pairs"))

    def let_go(self, *, clean: bool = True) -> None:
        if clean:
            self.database.close()
        self.vfs.unregister()
        self.extents.close()


def test_a_database_whose_checkpoints_remap(one: Stand) -> None:
    pytest.importorskip("apsw")
    took = {}
    for remaps in (False, True):
        before = one.programs("host", "gc")
        sqlite = Sqlite(one, remaps=remaps)
        held = sqlite.module.fill(sqlite.database, 600, seed=1 + remaps)
        assert (sqlite.extents.remapped > 1_000, sqlite.extents.copied > 1_000) == (remaps, not remaps)
        assert {key: value for key, value in sqlite.rows().items() if key in held} == held
        sqlite.let_go()
        one.flush()
        took[remaps] = one.programs("host", "gc") - before
    assert took[True] < took[False] * 0.75 if shares(one) else took[True] > took[False] * 0.8
    again = Sqlite(one)
    assert again.rows().items() >= held.items()
    again.let_go()
    ends(one)


def test_every_commit_outlives_the_process(one: Stand) -> None:
    """Killed in the middle of everything, by which neither a commit nor a checkpoint is finished."""
    pytest.importorskip("apsw")
    script = (
        "import sys, random; sys.path[:0] = sys.argv[2:]\n"
        "import sqlite_wal as s; from pathlib import Path\n"
        "vfs = s.Vfs(s.Extents(Path(sys.argv[1]))); d = s.connect(checkpoint=60)\n"
        "first = d.execute('SELECT coalesce(max(key), 0) FROM pairs').fetchone()[0] + 1\n"
        "for key in range(first, first + 100_000):\n"
        "    d.execute('INSERT INTO pairs VALUES (?, ?)', (key, bytes([key % 251]) * 9000))\n"
        "    print(key, flush=True)\n"
    )
    rnd, done = random.Random(5), 0
    for _ in range(4):
        root = Path(__file__).parents[2]
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(one.disk), str(root), str(root / "examples"), *sys.path],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        for _ in range(rnd.randrange(50, 120)):
            done = int(child.stdout.readline())
        child.kill()
        left = child.stdout.read().split()
        child.wait()
        child.stdout.close()
        done = int(left[-1]) if left else done
        sqlite = Sqlite(one)
        rows = sqlite.rows()
        assert set(range(1, done + 1)) <= set(rows)
        assert all(value == bytes([key % 251]) * 9000 for key, value in rows.items())
        sqlite.let_go()
    one.kill()  # the daemon: what SQLite flushed as it closed is there
    one.mount()
    sqlite = Sqlite(one)
    assert set(range(1, done + 1)) <= set(sqlite.rows())
    sqlite.let_go()
    ends(one)


def test_flushed_commits_outlive_the_device(one: Stand) -> None:
    """The daemon is killed at any moment, often within a checkpoint: what was committed with a flush is there,
    and the image is sound."""
    pytest.importorskip("apsw")
    rnd = random.Random(7)
    done = 0
    for _ in range(3):
        sqlite = Sqlite(one, "FULL")
        found = set(sqlite.rows())
        assert set(range(1, done + 1)) <= found
        done = max(found, default=0)  # one more may have been committed without an acknowledgement
        sqlite.database.execute(f"PRAGMA wal_autocheckpoint={rnd.choice((5, 20, 60))}")
        daemon = os.pidfd_open(one.pid)
        killer = threading.Timer(rnd.uniform(0, 0.02), signal.pidfd_send_signal, (daemon, signal.SIGKILL))
        first, killed_at = done + 1, rnd.randrange(5, 40)
        with suppress(Exception):  # the device is gone: whatever SQLite makes of that
            for key in range(first, first + 100_000):
                if key - first == killed_at:
                    killer.start()
                sqlite.database.execute("INSERT INTO pairs VALUES (?, ?)", (key, bytes([key % 251]) * 9000))
                done = key
        killer.join()
        with suppress(Exception):
            sqlite.database.close()
        with suppress(OSError):  # a file of a device that is gone
            sqlite.let_go(clean=False)
        assert readable(daemon, timeout_s=60)
        os.close(daemon)
        mounts.clear_corpse(one.home)
        assert inspect.problems(one.image, True) == []
        one.mount()
    assert done >= 15
    sqlite = Sqlite(one, "FULL")
    rows = sqlite.rows()
    assert set(range(1, done + 1)) <= set(rows)
    assert all(value == bytes([key % 251]) * 9000 for key, value in rows.items())
    sqlite.let_go()
    ends(one)
