"""Sweeps on a Dask cluster: a real scheduler and two worker processes, on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_sweeps import GRID, alive, lines, wait_until

import flashfs
from flashfs import cli
from flashfs.errors import FlashfsError
from flashfs.replay import grid, results, sweep
from flashfs.replay.workers import Cluster, Processes

ROOT = Path(flashfs.__file__).parents[1]
HERE = Path(__file__).parent


@contextmanager
def running(folder: Path, name: str, *arguments: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """One process of a cluster; gone afterwards, with its children."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), **environment}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)], env=env, cwd=folder, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own group, without other processes
        process.wait()


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(the address, the process) of one, on a port that was free."""
    wanted = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard")
    with running(folder, "scheduler", *wanted) as process:
        log = folder / "scheduler.log"
        wait_until("the scheduler is there", lambda: re.search(r"tcp://127.0.0.1:\d+", log.read_text()))
        found = re.search(r"tcp://127.0.0.1:\d+", log.read_text())
        assert found is not None
        yield found[0], process


@contextmanager
def worker(folder: Path, name: str, address: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    wanted = ("distributed.cli.dask_worker", address, "--nworkers", 1, "--nthreads", 1, "--no-nanny", "--no-dashboard",
              "--local-directory", folder, "--name", name)  # fmt: skip
    with running(folder, name, *wanted, **environment) as process:
        yield process


def registered(folder: Path) -> int:
    return (folder / "scheduler.log").read_text().count("Register worker")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, calls: Path) -> Iterator[str]:
    """A scheduler with two workers; each point that they play is in ``calls``."""
    folder = tmp_path_factory.mktemp("cluster")
    with scheduler(folder) as (address, _), worker(folder, "a", address), worker(folder, "b", address):
        wait_until("both workers are there", lambda: registered(folder) == 2)
        yield address


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("MADE_UP_CALLS", str(path))
    return path


@pytest.mark.slow
def test_the_same_results_as_here(tmp_path: Path, cluster: str) -> None:
    """Of the real engine, but for the time that it took."""
    setups = grid.expand({**GRID, "dram": ["4M"]})
    there = sweep.run(setups, tmp_path / "there", Cluster(cluster))
    here = sweep.run(setups, tmp_path / "here", Processes(2))
    assert there.failed == []
    measured = ("wall_s", "pages_per_s")
    strip = [[{k: v for k, v in row.items() if k not in measured} for row in some.rows] for some in (there, here)]
    assert strip[0] == strip[1]


@pytest.mark.slow
def test_each_point_once_on_both_workers(tmp_path: Path, cluster: str, calls: Path) -> None:
    setups = grid.expand(GRID)
    report = sweep.run(setups, tmp_path / "out", Cluster(cluster, "made_up:play_slowly"))
    assert sorted(lines(calls)) == sorted(f"{s.ftl} {s.source} {s.dram}" for s in setups)
    assert [row["config.dram"] for row in report.rows] == [s.dram for s in setups]
    again = sweep.run(setups, tmp_path / "out", Cluster(cluster, "made_up:play_slowly"))
    assert (again.before, len(lines(calls))) == (12, 12)


@pytest.mark.slow
def test_a_point_that_fails_stops_no_other(tmp_path: Path, cluster: str) -> None:
    setups = grid.expand({**GRID, "dram": ["1k", "3k", "4M"]})
    report = sweep.run(setups, tmp_path / "out", Cluster(cluster, "made_up:play"))
    assert len(report.failed) == 8
    assert {error.partition(":")[0] for _, error in report.failed} == {"--dram 1024", "internal error"}
    assert sum("waf" in row for row in report.rows) == 4


@pytest.mark.slow
def test_the_command(tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text('source = "uniform:ops=100"\npreset = "small-64m"\ndram = ["4M", "8M"]\n')
    code = cli.run(["sweep", str(tmp_path / "s.toml"), "--scheduler", cluster, "--json"])
    out, err = capsys.readouterr()
    assert (code, err, json.loads(out)["replayed"]) == (0, "", 2)
    assert len(results.read([tmp_path / "s"])) == 2


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(tmp_path: Path, calls: Path) -> None:
    setups = grid.expand(GRID)
    with scheduler(tmp_path) as (address, _), worker(tmp_path, "a", address) as one, worker(tmp_path, "b", address):
        wait_until("both workers are there", lambda: registered(tmp_path) == 2)

        class Killer(sweep.Listener):
            def end(self, setup: object, error: str | None) -> None:
                if alive(one.pid):
                    one.kill()

        report = sweep.run(setups, tmp_path / "out", Cluster(address, "made_up:play_slowly"), Killer())
    assert (report.total, report.failed) == (12, [])
    assert not alive(one.pid)


@pytest.fixture(autouse=True)
def time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler answers soon on a machine that does nothing else."""
    monkeypatch.setattr("flashfs.replay.workers.CONNECT_S", 60)


@pytest.mark.slow
def test_a_scheduler_that_dies_is_told_and_nothing_is_lost(tmp_path: Path, calls: Path) -> None:
    setups = grid.expand(GRID)
    done = 0
    with scheduler(tmp_path) as (address, process), worker(tmp_path, "a", address):
        wait_until("the worker is there", lambda: registered(tmp_path) == 1)

        class Killer(sweep.Listener):
            def end(self, setup: object, error: str | None) -> None:
                nonlocal done
                done += 1
                if done == 2:
                    process.kill()

        with pytest.raises(FlashfsError, match="it went away; run the same command again, and it continues"):
            sweep.run(setups, tmp_path / "out", Cluster(address, "made_up:play_slowly"), Killer())
    assert len(list((tmp_path / "out" / "points").glob("*.json"))) == done
    report = sweep.run(setups, tmp_path / "out", Processes(2, "made_up:play"))
    assert (report.before, report.failed, len(report.rows)) == (done, [], 12)


def test_nobody_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setups = grid.expand({"source": "uniform:ops=10", "preset": "small-64m"})
    with monkeypatch.context() as patch:
        patch.setattr("flashfs.replay.workers.CONNECT_S", 1)
        with pytest.raises(FlashfsError, match=r"--scheduler tcp://127\.0\.0\.1:9: no scheduler answers") as caught:
            sweep.run(setups, tmp_path / "out", Cluster("tcp://127.0.0.1:9"))
        assert "\n" not in str(caught.value)
        with pytest.raises(FlashfsError, match="--scheduler nonsense:x: no scheduler answers"):
            sweep.run(setups, tmp_path / "out", Cluster("nonsense:x"))
    with scheduler(tmp_path) as (address, _), pytest.raises(FlashfsError, match="it has no workers"):
        sweep.run(setups, tmp_path / "out", Cluster(address))


def test_a_worker_with_another_flashfs_is_refused(tmp_path: Path) -> None:
    """Its results would be filed as ours."""
    other = tmp_path / "site"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import flashfs\nflashfs.__version__ = '9.9'\n")
    setups = grid.expand({"source": "uniform:ops=10", "preset": "small-64m"})
    path = os.pathsep.join([str(other), str(ROOT)])
    with scheduler(tmp_path) as (address, _), worker(tmp_path, "a", address, PYTHONPATH=path):
        wait_until("the worker is there", lambda: registered(tmp_path) == 1)
        with pytest.raises(FlashfsError, match=r"worker tcp://\S+ has flashfs 9\.9\S*: use \S+"):
            sweep.run(setups, tmp_path / "out", Cluster(address))
