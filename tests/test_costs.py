"""The guard over what the tests cost: each of its verdicts can be the other one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import costs
import pytest

HERE = Path(__file__).parent


def report(name: str, seconds: float, yardstick: float | None = None) -> Any:
    properties = [("processor_s", seconds)] + ([("yardstick_s", yardstick)] if yardstick else [])
    return SimpleNamespace(nodeid=name, user_properties=properties)


OLD = {str(i): 2.0 for i in range(50)}


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that says 100 s in all, made on a machine that needed half as much again."""
    monkeypatch.setattr(costs, "YARDSTICK_S", 0.02)
    path = tmp_path / "durations.json"
    tests = {**OLD, "b": 50.0, "c": 20.0}
    path.write_text(json.dumps({"sum_s": 100.0, "raw_s": 150.0, "folders": {}, "tests": tests}))
    monkeypatch.setattr(costs, "FILE", path)
    return path


def heard(*reports: Any) -> costs.Guard:
    one = costs.Guard(enforce=True, write=False)
    for each in reports:
        one.pytest_runtest_logreport(each)
    return one


def test_ten_tests_of_ten_seconds_pass(committed: Path) -> None:
    assert heard(*(report(str(i), 15.0, 0.03) for i in range(10))).broken() == []


def test_one_that_takes_too_long(committed: Path) -> None:
    (line,) = heard(report("slow one", 21.0, 0.02), report("other", 19.0, 0.02)).broken()
    assert line == "slow one took 21.0 s of processor time; the limit is 20 s"


@pytest.mark.parametrize("machine", [0.5, 1.0, 1.8])
@pytest.mark.parametrize(("new_s", "passes"), [(9.0, True), (11.0, False)])
def test_new_tests_show_on_any_machine(committed: Path, machine: float, new_s: float, passes: bool) -> None:
    """Whatever its yardstick says: one of 0.03 s is of a machine that should need half as much again."""
    lines = heard(*(report(name, machine * seconds, 0.03) for name, seconds in (*OLD.items(), ("new", new_s)))).broken()
    assert (lines == []) is passes
    assert passes or "100 s before; for this machine that is 1.11 times as much" in lines[0]


def test_some_that_have_become_dearer_show(committed: Path) -> None:
    took = {name: seconds * (1.4 if int(name) % 3 == 0 else 1.0) for name, seconds in OLD.items()}
    (line,) = heard(*(report(name, seconds, 0.02) for name, seconds in took.items())).broken()
    assert "that is 1.14 times as much" in line


@pytest.mark.parametrize(
    ("slower", "yardstick", "passes"),
    [
        pytest.param(2.4, 0.04, True, id="a slower machine, as its yardstick says"),
        pytest.param(1.6, 0.02, True, id="the machine as before, another yardstick"),
        pytest.param(2.4, 0.02, False, id="dearer by both"),
    ],
)
def test_all_alike_are_dearer_if_both_clocks_say_so(
    committed: Path, slower: float, yardstick: float, passes: bool
) -> None:
    lines = heard(*(report(name, slower * seconds, yardstick) for name, seconds in OLD.items())).broken()
    assert (lines == []) is passes


def test_other_tests_than_those_of_the_file(committed: Path) -> None:
    lines = heard(*(report(f"other {i}", 11.0, 0.02) for i in range(10))).broken()
    assert lines == []  # only the clocks say something, and 1.1 times as much is within what they say


def test_a_test_is_too_long_if_both_clocks_say_so(committed: Path) -> None:
    assert heard(report("a", 30.0, 0.04)).broken() == []
    assert heard(report("a", 15.0, 0.01)).broken() == []
    assert len(heard(report("a", 45.0, 0.04)).broken()) == 1


def test_without_a_file_only_single_tests_have_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(costs, "FILE", tmp_path / "none")
    monkeypatch.setattr(costs, "YARDSTICK_S", 0.02)
    assert heard(*(report(str(i), 19.0, 0.02) for i in range(100))).broken() == []
    assert len(heard(report("a", 21.0, 0.02)).broken()) == 1


def test_parts_are_all_of_it_once() -> None:
    items: list[Any] = list(range(10))
    parts = [costs.part_of(items, f"{k}/3") for k in (1, 2, 3)]
    assert parts[0] == [0, 3, 6, 9] and sorted(item for part in parts for item in part) == items
    for wrong in ("0/3", "4/3", "1", "x/2", "1/-2"):
        with pytest.raises(pytest.UsageError, match="K/N is needed"):
            costs.part_of(items, wrong)


def test_longest_first_and_the_others_in_their_order(committed: Path) -> None:
    items: Any = [SimpleNamespace(nodeid=name) for name in ("a", "c", "d", "b", "e")]
    costs.longest_first(items)
    assert [item.nodeid for item in items] == ["b", "c", "a", "d", "e"]


def test_a_yardstick_takes_time() -> None:
    assert 0.001 < costs.yardstick_s() < 1


BUSY = """
import time
def test_busy():
    end = time.process_time() + {seconds}
    while time.process_time() < end: pass
"""


@pytest.mark.parametrize(("seconds", "code"), [(0.01, 0), (4, 1)])
def test_a_run_fails_of_it(tmp_path: Path, seconds: float, code: int) -> None:
    """In a process of its own, whose limit is a second: doing nothing takes a third of that on a busy machine."""
    (tmp_path / "test_busy.py").write_text(BUSY.format(seconds=seconds))
    lines = (
        "import sys, costs, pytest; costs.TEST_S_MOST = 1; costs.FILE = costs.Path('none');"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', 'none.ini', '--rootdir', '.', '--guard', "
        "'-p', 'guarded', 'test_busy.py']))"
    )
    (tmp_path / "none.ini").write_text("[pytest]\n")
    (tmp_path / "guarded.py").write_text((HERE / "conftest.py").read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parent, HERE, tmp_path)))}
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("over the limit: test_busy.py::test_busy took" in done.stdout) == bool(code)
    assert "test_busy.py::test_busy" in done.stdout
