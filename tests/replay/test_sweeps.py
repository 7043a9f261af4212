"""Sweeps: each combination once, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import made_up
import polars
import pytest

import flashfs
from flashfs import cli
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import grid, results, sweep
from flashfs.replay.play import Setup
from flashfs.replay.workers import Here, Processes, Workers

DRAM = ["4M", "8M", "16M"]
SOURCES = ["uniform:ops=100", "zipf:ops=100"]
GRID = {"ftl": ["pagemap", "slimftl"], "source": SOURCES, "dram": DRAM, "preset": "small-64m"}
FAILS = {"ftl": ["pagemap", "slimftl"], "source": "uniform:ops=100", "size": "64M"}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A line for each time that a point was played."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("MADE_UP_CALLS", str(path))
    return path


def lines(calls: Path) -> list[str]:
    return calls.read_text().splitlines()


def workers(kind: str, player: str = "made_up:play") -> Workers:
    return Here(player) if kind == "here" else Processes(2, player)


@pytest.mark.parametrize("kind", ["here", "processes"])
def test_each_point_once_and_in_order(tmp_path: Path, calls: Path, kind: str) -> None:
    setups = grid.expand(GRID)
    report = sweep.run(setups, tmp_path / "out", workers(kind))
    assert (report.total, report.before, report.failed) == (12, 0, [])
    assert Counter(lines(calls)) == Counter(f"{s.ftl} {s.source} {s.dram}" for s in setups)
    table = results.read([tmp_path / "out" / "results.parquet"])
    wanted = [(s.ftl, s.source, s.dram) for s in setups]
    assert table.select("ftl", "source", "config.dram").rows() == wanted
    assert table["key"].to_list() == grid.keys(setups)
    saved = json.loads((tmp_path / "out" / "points" / f"{grid.keys(setups)[0]}.json").read_text())
    assert saved["result"] == made_up.result(
        "pagemap", "uniform:ops=100", dram=4 << 20, options=setups[0].options
    )

    again = sweep.run(setups, tmp_path / "out", workers(kind))
    assert (again.total, again.before) == (12, 12)
    assert len(lines(calls)) == 12
    assert results.frame(again.rows).equals(table)


def test_a_sweep_that_grew_replays_what_is_new(tmp_path: Path, calls: Path) -> None:
    sweep.run(grid.expand(GRID), tmp_path / "out", Here("made_up:play"))
    wider = grid.expand({**GRID, "dram": [*DRAM, "32M"]})
    report = sweep.run(wider, tmp_path / "out", Here("made_up:play"))
    assert (report.total, report.before, len(report.rows)) == (16, 12, 16)
    assert len(lines(calls)) == 16
    narrower = sweep.run(grid.expand({**GRID, "ftl": "pagemap"}), tmp_path / "out", Here("made_up:play"))
    assert {row["ftl"] for row in narrower.rows} == {"pagemap"}
    assert len(results.read([tmp_path / "out"])) == 6


@pytest.mark.parametrize("kind", ["here", "processes"])
@pytest.mark.parametrize(
    ("dram", "said"),
    [("1k", "--dram 1024: pagemap needs more"), ("3k", "internal error: TypeError: Object of type set is not JSON")],
)
def test_a_point_that_fails_stops_no_other(tmp_path: Path, calls: Path, kind: str, dram: str, said: str) -> None:
    setups = grid.expand({**FAILS, "dram": [dram, "4M"]})
    report = sweep.run(setups, tmp_path / "out", workers(kind))
    assert [row["config.dram"] for row in report.rows] == [setup.dram for setup in setups]
    assert [row["error"] is None for row in report.rows] == [False, False, True, True]
    assert [name for name, _ in report.failed] == [
        f"{ftl}, uniform:ops=100, dram={dram[0]} KiB" for ftl in ("pagemap", "slimftl")
    ]
    assert report.failed[0][1].startswith(said)
    assert "\n" not in report.failed[0][1]
    table = results.read([tmp_path / "out"])
    assert table.filter(polars.col("error").is_null())["waf"].to_list() == [2.0, 2.0]
    assert table.filter(polars.col("error").is_not_null())["waf"].to_list() == [None, None]
    again = sweep.run(setups, tmp_path / "out", workers(kind))  # what failed is tried again
    assert (again.before, len(again.failed), len(lines(calls))) == (2, 2, 6)


def test_a_process_that_dies_takes_its_point_only(tmp_path: Path, calls: Path) -> None:
    setups = grid.expand({**FAILS, "dram": ["2k", "4M", "8M", "16M"]})
    report = sweep.run(setups, tmp_path / "out", Processes(2, "made_up:play"))
    assert len(lines(calls)) == 8
    assert {error for _, error in report.failed} == {"its process ended before it did: signal 9 (out of memory?)"}
    assert len(report.failed) == 2
    assert sum("waf" in row for row in report.rows) == 6


def test_progress_is_heard(tmp_path: Path) -> None:
    heard = []

    class Listener(sweep.Listener):
        def begin(self, total: int, before: int) -> None:
            heard.append(("begin", total, before))

        def playing(self, setup: Setup, done: int, total: int | None) -> None:
            heard.append((setup.ftl, done, total))

        def end(self, setup: Setup, error: str | None) -> None:
            heard.append(("end", setup.ftl, error))

    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    sweep.run(setups, tmp_path / "out", Processes(1, "made_up:play"), Listener())
    assert heard == [("begin", 1, 0), ("pagemap", 500, 1000), ("end", "pagemap", None)]


def test_a_second_sweep_in_one_place_is_refused(tmp_path: Path) -> None:
    place = sweep.Place.at(tmp_path / "out")
    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    with place.open(), pytest.raises(FlashfsError, match="another sweep is at work there"):
        sweep.run(setups, tmp_path / "out", Here("made_up:play"))
    sweep.run(setups, tmp_path / "out", Here("made_up:play"))


def test_somebody_elses_file_is_not_replaced(tmp_path: Path) -> None:
    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    mine = tmp_path / "r.parquet"
    results.write(mine, [results.row(made_up.result())])
    before = mine.read_bytes()
    with pytest.raises(UsageError, match=r"r\.parquet: it is there, and of no sweep; use another name"):
        sweep.run(setups, mine, Here("made_up:play"))
    assert mine.read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: use a folder, or a name for one"):
        sweep.run(setups, tmp_path / "file", Here("made_up:play"))


def test_a_file_as_the_place(tmp_path: Path) -> None:
    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    sweep.run(setups, tmp_path / "r.csv", Here("made_up:play"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.csv.points"]
    assert results.read([tmp_path / "r.csv"])["waf"].to_list() == [2.0]


def test_a_result_that_was_tampered_with_is_told(tmp_path: Path) -> None:
    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    sweep.run(setups, tmp_path / "out", Here("made_up:play"))
    [file] = (tmp_path / "out" / "points").iterdir()
    for content in ("{", "[]", '{"key": "another", "result": {}}', f'{{"key": "{file.stem}"}}'):
        file.write_text(content)
        with pytest.raises(FlashfsError, match="no result of a sweep; without that file it is made anew"):
            sweep.run(setups, tmp_path / "out", Here("made_up:play"))


# --- interrupted


def children(pid: int) -> list[int]:
    """Processes that ``pid`` started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(what: str, is_so: object, seconds: float = 60.0) -> None:
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


SPEC = """
ftl = ["pagemap", "slimftl"]
source = ["uniform:ops={ops}", "zipf:ops={ops},theta=0.9", "hotcold:ops={ops}"]
dram = ["4M", "8M", "16M"]
preset = "small-64m"
"""


def started(spec: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flashfs.cli", "sweep", str(spec), *more]
    env = {**os.environ, "PYTHONPATH": str(Path(flashfs.__file__).parents[1])}
    return subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job inherits "ignore"
    )  # fmt: skip


def struck(process: subprocess.Popen[str], how: signal.Signals) -> tuple[str, str]:
    """What it said to that signal. An interrupt that meets a finalizer of Python's is lost, so it gets another."""
    for _ in range(3):
        process.send_signal(how)
        try:
            return process.communicate(timeout=30 if how == signal.SIGINT else 60)
        except subprocess.TimeoutExpired:
            assert how == signal.SIGINT
    return process.communicate(timeout=60)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGTERM))]
)
def test_killed_in_the_middle_and_gone_on_with(tmp_path: Path, how: signal.Signals) -> None:
    """Two FTLs, three workloads, three DRAM sizes: nothing is lost, nothing is replayed twice, no process stays."""
    spec, folder = tmp_path / "s.toml", tmp_path / "s" / "points"
    for ops in ("200k" if how == signal.SIGINT else "60k", "500k", "2m"):  # of fewer, a busy machine may see the end
        spec.write_text(SPEC.format(ops=ops))
        broken = started(spec, "--jobs", "2")
        try:
            wait_until("four results", lambda: folder.exists() and len(list(folder.glob("*.json"))) >= 4)
            others = children(broken.pid)
            out, err = struck(broken, how)
        finally:
            broken.kill()
            broken.wait()
        if len(others) == 2 and len(list(folder.glob("*.json"))) < 18:
            break
        shutil.rmtree(tmp_path / "s")
    assert broken.returncode == (130 if how == signal.SIGINT else -how)
    assert out == ""
    assert err.endswith("flashfs: interrupted\n") if how == signal.SIGINT else err == ""
    wait_until("its processes have ended", lambda: not any(map(alive, others)))
    there = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("*.json")}
    assert 4 <= len(there) < 18
    assert len(results.read([tmp_path / "s"])) == len(there)  # what there is can be looked at

    again = started(spec, "--json")
    out, err = again.communicate(timeout=300)
    assert (again.returncode, err) == (0, "")
    counts = {"points": 18, "before": len(there), "replayed": 18 - len(there)}
    assert json.loads(out) == {"out": str(tmp_path / "s" / "results.parquet"), **counts, "failed": []}
    assert len(list(folder.iterdir())) == 18
    assert there == {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in there}
    table = results.read([tmp_path / "s"])
    wanted = [(s.ftl, s.source, s.dram) for s in sweep.load(spec)]
    assert table.select("ftl", "source", "config.dram").rows() == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.toml"]


def test_a_worker_does_not_outlive_a_sweep_in_the_middle_of_a_point(tmp_path: Path, calls: Path) -> None:
    """Its point may have hours to go."""
    script = (
        "import sys; from pathlib import Path; from flashfs.replay import grid, sweep, workers\n"
        "setups = grid.expand({'source': 'uniform:ops=10', 'size': '64M'})\n"
        "sweep.run(setups, Path(sys.argv[1]), workers.Processes(1, 'made_up:play_for_ever'))\n"
    )
    roots = [str(Path(flashfs.__file__).parents[1]), str(Path(__file__).parent)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    broken = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "out")], env=env)
    try:
        wait_until("it plays", lambda: lines(calls))
        [worker] = children(broken.pid)
    finally:
        broken.kill()
        broken.wait()
    wait_until("its process has ended", lambda: not alive(worker), 10)


def test_what_a_killed_sweep_had_not_finished_to_write_is_cleared_away(tmp_path: Path) -> None:
    setups = grid.expand({"source": "uniform:ops=10", "size": "64M"})
    sweep.run(setups, tmp_path / "out", Here("made_up:play"))
    draft = tmp_path / "out" / "points" / ".0123.json.99.draft"
    draft.write_text("{")
    sweep.run(setups, tmp_path / "out", Here("made_up:play"))
    assert not draft.exists()


# --- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "internal error" not in err
    return code, out, err


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text('source = ["uniform:ops=100", "zipf:ops=100"]\npreset = "small-64m"\n[opt]\nbuffer = [0, 8]\n')
    code, out, err = run(capsys, "sweep", spec, "--jobs", 1)
    assert (code, out, err) == (0, f"{tmp_path}/s/results.parquet: 4 of 4 results\n", "")
    code, out, err = run(capsys, "sweep", spec)
    assert (code, out, err) == (0, f"{tmp_path}/s/results.parquet: 4 of 4 results, 4 of them from before\n", "")
    code, out, _ = run(capsys, "sweep", spec, "--out", tmp_path / "other.csv", "--json")
    assert (code, json.loads(out)["out"], json.loads(out)["replayed"]) == (0, str(tmp_path / "other.csv"), 4)


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text('source = "uniform:ops=100"\n', encoding="utf-8-sig")
    assert [setup.source for setup in sweep.load(spec)] == ["uniform:ops=100"]


def test_the_command_tells_what_failed_and_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text('source = "uniform:ops=100"\npreset = "small-64m"\ndram = ["1k", "8M"]\n')
    code, out, err = run(capsys, "sweep", spec, "--jobs", 1)
    assert (code, out) == (1, f"{tmp_path}/s/results.parquet: 1 of 2 results, 1 failed\n")
    assert err.startswith("flashfs: pagemap, uniform:ops=100, dram=1 KiB: --dram 1024 is 1 KiB: pagemap needs ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ftl = [", "s.toml: no TOML: "),
        ('source = "uniform"\ndies = "many"', "s.toml: dies = 'many': use a whole number from 1 on"),
        ('source = "gone.csv"', "gone.csv: no such file"),
    ],
)
def test_bad_specs_are_one_line_and_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "s.toml").write_text(content)
    code, out, err = run(capsys, "sweep", tmp_path / "s.toml")
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "spec").write_text('source = "uniform"')
    for arguments, said, wanted in (
        (["gone.toml"], "gone.toml: no such file", 2),
        ([tmp_path / "spec"], "use --out DIR", 2),
        ([tmp_path / "spec", "--jobs", 1, "--scheduler", "tcp://x:1"], "--jobs and --scheduler: use one of them", 2),
    ):
        code, out, err = run(capsys, "sweep", *arguments)
        assert (code, out, err.count("\n")) == (wanted, "", 1)
        assert said in err
