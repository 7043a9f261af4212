"""The tool that makes mutants: what it changes, that the number chooses it, that an interrupted run resumes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from mutants import build, report, schemata, sites, state, text
from mutants.children import Job, Switch, run
from mutants.suites import Item

MODULE = "little.pyx"
SOURCE = '''\
"""A docstring is not code."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

cdef enum:
    MOST = 3


cdef uint32_t summed(uint32_t n) noexcept nogil:
    """All below n; stops at MOST."""
    cdef uint32_t i, all = 0
    for i in range(n):
        if i > MOST and n != 9:
            break
        all += i
    return all


def total(uint32_t n):
    cdef uint32_t found
    cdef void* room = malloc(n + 1)
    if room == NULL:
        raise MemoryError(f"{n + 1} bytes")
    with nogil:
        found = summed(n)
    free(room)
    return found


def kept(values):
    values = [value for value in values if value >= 2]
    values.sort()
    return values[0] if values else None


def odd(one, uint32_t other):
    """Objects and numbers in one condition."""
    if one != other or other == 3 or one == 5:
        return one or "nothing"
    return None
'''


def mutants_of(source: str, tmp_path: Path) -> list[sites.Site]:
    path = tmp_path / MODULE
    path.write_text(source)
    return sites.find(MODULE, path)


def test_what_is_changed_and_what_is_left_alone(tmp_path: Path) -> None:
    found = [(site.function, site.kind, site.change) for site in mutants_of(SOURCE, tmp_path)]
    assert found == [
        ("summed", "constant", "0 -> 1"),
        ("summed", "condition", "i > MOST and n != 9 -> not (i > MOST and n != 9)"),
        ("summed", "logic", "and -> or"),
        ("summed", "comparison", "> -> >="),
        ("summed", "constant", "MOST -> (MOST + 1)"),
        ("summed", "comparison", "!= -> =="),
        ("summed", "constant", "9 -> 10"),
        ("summed", "drop", "left out"),
        ("summed", "drop", "left out"),
        ("summed", "arithmetic", "+= -> -="),
        ("total", "condition", "room == NULL -> not (room == NULL)"),
        ("total", "comparison", "== -> !="),
        ("kept", "drop", "left out"),
        ("kept", "condition", "value >= 2 -> not (value >= 2)"),
        ("kept", "comparison", ">= -> >"),
        ("kept", "constant", "2 -> 3"),
        ("kept", "drop", "left out"),
        ("kept", "condition", "values -> not (values)"),
        ("odd", "condition", "one != other or other == 3 or one == 5 -> not (one != other or other == 3 or one == 5)"),
        ("odd", "logic", "or -> and"),
        ("odd", "comparison", "!= -> =="),
        ("odd", "logic", "or -> and (#2)"),
        ("odd", "comparison", "== -> !="),
        ("odd", "constant", "3 -> 4"),
        ("odd", "comparison", "== -> != (#2)"),
        ("odd", "constant", "5 -> 6"),
        ("odd", "drop", "left out"),
        ("odd", "logic", "or -> and"),
    ]


def test_a_mutant_is_known_by_its_words_when_its_line_has_moved(tmp_path: Path) -> None:
    before = mutants_of(SOURCE, tmp_path)
    after = mutants_of(SOURCE.replace("cdef enum", "# one more line\ncdef enum"), tmp_path)
    assert [site.key for site in after] == [site.key for site in before]
    assert after[0].line == before[0].line + 1
    assert len({site.key for site in before}) == len(before)


def test_the_seed_draws(tmp_path: Path) -> None:
    found = mutants_of(SOURCE, tmp_path)
    assert sites.drawn(found, 1) == sites.drawn(found, 1) != sites.drawn(found, 2)
    assert sorted(sites.drawn(found, 1), key=found.index) == found


def test_a_difference_shows_what_a_mutant_changes(tmp_path: Path) -> None:
    shown = []
    for site in mutants_of(SOURCE, tmp_path):
        lines = text.Text(SOURCE).mutated(site.kind, (site.line, site.column), site.before, site.after)
        shown += [line.strip() for line in lines if line not in SOURCE.splitlines()]
    assert "if not (i > MOST and n != 9):" in shown
    assert "if i > MOST and n == 9:" in shown
    assert "all -= i" in shown
    assert "values = [value for value in values if not (value >= 2)]" in shown
    assert "return values[0] if not (values) else None" in shown


# --- compiled


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the little module with all its mutants."""
    folder = tmp_path_factory.mktemp("mutants")
    (folder / MODULE).write_text(SOURCE)
    build.build_library(folder)
    every = sites.find(MODULE, folder / MODULE)
    assert build.compile_with(folder, MODULE, {site: at for at, site in enumerate(every, 1)}) is None
    return folder


def answers(folder: Path, number: int) -> Any:
    """What the module says with that mutant chosen, in a process of its own."""
    code = """import json, little
print(json.dumps([little.total(n) for n in (3, 6, 9)] + [little.kept([3, 2, 1])]
                 + [little.odd(a, b) for a, b in ((1, 1), (3, 3), (5, 5), (2, 1), (0, 1))]))"""
    environment = {"PYTHONPATH": str(folder), "FLASHFS_MUTANT": str(number)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]


def test_the_number_chooses(built: Path) -> None:
    plain = [3, 6, 36, 2, None, 3, 5, 2, "nothing"]
    assert answers(built, 0) == plain
    said = {(site.function, site.change): answers(built, at)
            for at, site in enumerate(sites.find(MODULE, built / MODULE), 1)}  # fmt: skip
    assert said["summed", "0 -> 1"] == [4, 7, 37, *plain[3:]]
    assert said["summed", "and -> or"] == [0, 0, 6, *plain[3:]]
    assert said["summed", "> -> >="] == [3, 3, 36, *plain[3:]]
    assert said["summed", "MOST -> (MOST + 1)"] == [3, 10, 36, *plain[3:]]
    assert said["summed", "9 -> 10"] == [3, 6, 6, *plain[3:]]
    assert said["kept", "2 -> 3"] == [*plain[:3], 3, *plain[4:]]
    assert said["kept", "value >= 2 -> not (value >= 2)"] == [*plain[:3], 1, *plain[4:]]
    assert said["total", "room == NULL -> not (room == NULL)"] == "MemoryError: 4 bytes"
    assert said["odd", "or -> and"] == [*plain[:5], "nothing", "nothing", "nothing", 0]
    assert said["odd", "3 -> 4"] == [*plain[:5], None, *plain[6:]]
    assert plain not in said.values()


def test_what_a_compiler_rejects_is_no_mutant(tmp_path: Path) -> None:
    """Neither an array that would change its type nor what follows from it."""
    source = textwrap.dedent("""\
        from libc.string cimport memcpy
        cdef int copied(const char* data, int n) noexcept nogil:
            cdef char[16] head
            memcpy(head + 4, data, n)
            return n if n > 2 else 0
        def one(int n):
            return copied(b"0123456789", n)
        """)
    (tmp_path / MODULE).write_text(source)
    build.build_library(tmp_path)
    module = build.build_module(tmp_path, MODULE, "", sites.find(MODULE, tmp_path / MODULE), 100)
    assert [site.change for site in module.rejected] == ["+ -> -"]
    assert "> -> >=" in [site.change for site in module.mutants.values()]


def test_a_source_that_has_changed_is_not_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mutants_of(SOURCE, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / MODULE).write_text(SOURCE.replace("i > MOST", "i >= MOST"))
    with pytest.raises(AssertionError, match="not the source"):
        schemata.translate(MODULE, {site: at for at, site in enumerate(found, 1)}, tmp_path / "little.c")


# --- run


def ended(tmp_path: Path, items: list[Item], due_s: float = 60.0) -> tuple[str, str, str]:
    build.build_library(tmp_path)
    due = [60.0] * (len(items) - 1) + [due_s]  # the last one's
    jobs: Iterator[Job] = iter([Job(1, items, due, 60.0)])
    [one] = run(jobs, 1, Switch(tmp_path / build.LIBRARY))
    return one.result, one.item.name if one.item else "", one.why


def sleep() -> str:
    time.sleep(60)
    return ""


def raises() -> str:
    raise ValueError("no such page")


def dies() -> str:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return ""


FINE = Item("tests", "fine", lambda: "")


@pytest.mark.parametrize(
    ("items", "result"),
    [
        ([FINE, FINE], ("passed", "", "")),
        ([FINE, Item("crash", "lost", lambda: "LPA 3 is lost"), FINE], ("failed", "lost", "LPA 3 is lost")),
        ([Item("tests", "raises", raises)], ("failed", "raises", "ValueError: no such page")),
        ([FINE, Item("tests", "dies", dies)], ("failed", "dies", "its process died of SIGKILL")),
    ],
)
def test_a_job_ends_at_the_first_item_that_fails(
    tmp_path: Path, items: list[Item], result: tuple[str, str, str]
) -> None:
    assert ended(tmp_path, items) == result


def test_what_never_ends_is_stopped(tmp_path: Path) -> None:
    result, name, why = ended(tmp_path, [FINE, Item("tests", "sleeps", sleep)], 0.3)
    assert (result, name) == ("time-out", "sleeps")
    assert why.startswith("it did not end within")


# --- what is remembered


def verdict(site: sites.Site, word: str, digest: str = "d", limit_s: float = 60) -> state.Verdict:
    return state.Verdict(*site.key, digest, 1, word, "crash", "sweep pagemap 0", "", 0.1, limit_s)


def test_a_run_broken_off_goes_on(tmp_path: Path) -> None:
    caught, survived, other = mutants_of(SOURCE, tmp_path)[:3]
    kept = state.State(tmp_path / "mutants.jsonl")
    kept.add(verdict(caught, "survived"))
    kept.add(verdict(caught, "caught"))
    kept.add(verdict(survived, "survived"))
    with kept.path.open("a") as out:
        out.write('{"module": "lit')
    again = state.State(kept.path)
    assert again.verdicts == kept.verdicts
    assert again.known(caught, "d", 600, again=True) is not None
    assert again.known(caught, "another source", 60, again=False) is None
    assert again.known(survived, "d", 60, again=False) is not None
    assert again.known(survived, "d", 61, again=False) is None, "it has not met so much"
    assert again.known(survived, "d", 60, again=True) is None
    assert again.known(other, "d", 60, again=False) is None


def test_survivors_are_judged_and_counted(tmp_path: Path) -> None:
    caught, same, gap, endless, new = mutants_of(SOURCE, tmp_path)[:5]
    kept = state.State(tmp_path / "mutants.jsonl")
    for site, word in ((caught, "caught"), (same, "survived"), (gap, "unreached"), (endless, "time-out")):
        kept.add(verdict(site, word))
    path = tmp_path / "judged.toml"
    path.write_text("".join(
        f"[[mutant]]\nmodule = '{site.module}'\nfunction = '{site.function}'\ntext = '{site.text}'\n"
        f"change = '{site.change}'\nverdict = '{word}'\nwhy = 'it is so'\n"
        for site, word in ((same, "equivalent"), (gap, "gap"))
    ))  # fmt: skip
    module = build.Module(MODULE, "d", dict(enumerate((caught, same, gap, endless, new), 1)), [])
    judged = state.judgements(path)
    row = report.of_module(module, kept, judged)
    assert {name: row[name] for name in ("made", "crash", "time-out", "survived", "equivalent", "left", "not run")} == {
        "made": 5, "crash": 1, "time-out": 1, "survived": 2, "equivalent": 1, "left": 1, "not run": 1,
    }  # fmt: skip
    assert [one["change"] for one in report.survivors([module], kept, judged)] == [same.change, gap.change]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[[mutant]]\nmodule = 'little.pyx'\n", "function"),
        ("[[mutant]\n", "Expected"),
        (
            "[[mutant]]\nmodule = 'm'\nfunction = 'f'\ntext = 't'\nchange = 'c'\nverdict = 'fine'\nwhy = 'so'\n",
            "a verdict is equivalent or gap, with why",
        ),
    ],
)
def test_judgements_that_cannot_be(tmp_path: Path, written: str, why: str) -> None:
    path = tmp_path / "judged.toml"
    path.write_text(written)
    with pytest.raises(state.BadJudgement, match=why):
        state.judgements(path)


def test_the_judgements_that_are_there_can_be_read() -> None:
    assert state.judgements(Path(build.HERE) / "judged.toml")


def test_the_modules_are_there() -> None:
    """Each once; one that was renamed or removed ended a run of all of them."""
    assert [name for name in build.MODULES if not (build.ROOT / name).is_file()] == []
    assert [name for name in report.DURABLE if not (build.ROOT / name).is_file()] == []
    assert len(set(build.MODULES)) == len(build.MODULES) < build.MOST // build.EACH


def test_the_command_names_what_it_does_not_know() -> None:
    command = [sys.executable, str(build.HERE), "--module", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("nothing: use one of ssd, mover")
    assert len(done.stderr.splitlines()) == 1
    assert importlib.util.find_spec("mutants") is not None
