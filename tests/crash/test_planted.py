"""Bugs planted on purpose: a campaign of some hundred cuts must catch each of them, or it proves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import bugs
import pytest
from Cython.Compiler.TreeFragment import parse_from_strings
from schemes import FEW, with_one_more

from flashfs.crash import Case, campaign, every, run_case, tiers
from flashfs.crash.bench import Bench
from flashfs.ftl import SCHEMES

SEED = 11
SEEDS = (11, 12, 13)  #: the next one where nothing was noticed
HERE = Path(__file__).parent
#: what is asked, in this order, until a tier catches it: cuts, or the programs' length in tier every, the dearest
BOUNDS = {"random": 2_000, "sweep": 4_000, "host": 6_000, "wide": 1_000, "faults": 3_000, "every": 2}
#: {bug: {FTL: "tier", or "tier:seed:number" of the unit that caught it when this was last written}}: that one is asked
#: first. A compiled bug is asked of the FTLs that are here: a search without a result takes minutes
KNOWN = json.loads((Path(__file__).parent / "caught.json").read_text())
#: {bug: FTLs in which no tier has met it, by three seeds}
MISSED = json.loads((Path(__file__).parent / "missed.json").read_text())
#: a file that gets a line for each catch and each miss; `tools/planted_where.py --caught FILE` writes both of it
CATCHES = os.environ.get("FLASHFS_CATCHES")
ANEW = bool(os.environ.get("FLASHFS_ASK_ALL"))  #: all FTLs that have a compiled bug are asked, whatever is known
SEARCH_S = 500  #: of processor time, for all that is asked of one bug in one FTL
PATCHES = {name: bug for name, bug in bugs.BUGS.items() if isinstance(bug.how, bugs.Patch)}
PLANTS = {name: bug for name, bug in bugs.BUGS.items() if name not in PATCHES}
QUICK = "a protected slot that is written over"  #: its module is the quickest to build
#: what a process does that has the patched modules: it makes sure that it has them
CHILD = """
import json, resource, sys, flashfs, test_planted
resource.setrlimit(resource.RLIMIT_CPU, (test_planted.SEARCH_S, test_planted.SEARCH_S + 10))
assert flashfs.__file__.startswith(sys.argv[2]), flashfs.__file__
print(json.dumps(test_planted.caught_by(sys.argv[1], sys.argv[3])))
"""
TESTED = """
import sys, flashfs, nandimg
if not all(package.__file__.startswith(sys.argv[1]) for package in (flashfs, nandimg)):
    sys.exit("these are not the patched modules")
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


def unit_of(tier: str, ftl: str, seed: int, number: int) -> tiers.Unit:
    return next(tiers.units(tier, ftl, seed, BOUNDS[tier], start=number))


def caught_by(ftl: str, bug: str) -> str | None:
    """"tier:seed:number" of the first unit that notices; None if none does."""
    known = KNOWN.get(bug, {}).get(ftl, "")
    first, *numbers = known.split(":")
    if numbers and unit_of(first, ftl, *map(int, numbers)).run().failures:
        return known
    drawn = [tier for tier in BOUNDS if tier not in (first, "every")]
    asked = [(SEED, first)] if first else []
    asked += [*product(SEEDS, drawn), *product(SEEDS[1:] if first else (), (first,) if first != "every" else ())]
    for seed, tier in [*asked, *([(SEED, "every")] if first != "every" else [])]:  # every draws nothing: one seed
        cuts = 0
        for unit in tiers.units(tier, ftl, seed, BOUNDS[tier]):
            tally = unit.run()
            cuts += tally.cuts
            if tally.failures:
                return f"{tier}:{seed}:{unit.number}"
            if tier != "every" and cuts >= BOUNDS[tier]:
                break
    return None


@pytest.mark.parametrize(
    ("bug", "ftl"),
    [pytest.param(bug, *one.values, marks=one.marks) for i, bug in enumerate(PLANTS) for one in with_one_more(i)],
)
def test_is_caught(monkeypatch: pytest.MonkeyPatch, ftl: str, bug: str) -> None:
    tiers.presets_for(ftl)  # before anything is spoilt
    every.found_scenes(ftl)
    how = PLANTS[bug].how
    assert not isinstance(how, bugs.Patch)
    how(monkeypatch)
    assert caught_by(ftl, bug) is not None, f"{bug}: no tier noticed"


@pytest.mark.parametrize("bug", PATCHES)
def test_a_patch_fits_its_module(bug: str) -> None:
    """Exactly once, and what comes out is Cython: a patch that fits nowhere plants nothing."""
    how = PATCHES[bug].how
    assert isinstance(how, bugs.Patch)
    source = (bugs.ROOT / how.file).read_text()
    assert source.count(how.old) == 1
    assert how.old != how.new
    parse_from_strings("patched", source.replace(how.old, how.new))


def test_every_bug_is_somebodys() -> None:
    """Of a scheme, whose campaigns must catch it, or of a test that is there."""
    for name, bug in bugs.BUGS.items():
        file, _, test = bug.test.partition("::")
        assert bool(bug.of) != bool(file), name
        assert not file or f"def {test.partition('[')[0]}(" in (bugs.ROOT / "tests" / file).read_text(), name


def test_what_is_known_of_catches_is_of_bugs_that_are_there() -> None:
    assert set(KNOWN) <= set(bugs.BUGS)
    assert {tier.partition(":")[0] for catches in KNOWN.values() for tier in catches.values()} <= set(BOUNDS)


def test_what_is_known_of_misses_is_of_bugs_that_are_caught_elsewhere() -> None:
    for bug, missed in MISSED.items():
        assert set(missed) < set(PATCHES[bug].of), bug
        assert set(KNOWN[bug]) & set(PATCHES[bug].of), f"{bug}: no FTL shows it"
        assert not set(KNOWN[bug]) & set(missed), bug


@pytest.mark.parametrize("known", [None, "faults", "every"])
def test_the_tier_that_caught_it_last_is_asked_first(monkeypatch: pytest.MonkeyPatch, known: str | None) -> None:
    """And each of the others after it, once a seed."""
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(tiers, "units", lambda tier, _, seed, __: asked.append((seed, tier)) or iter(()))
    monkeypatch.setitem(KNOWN, "a bug", {"pagemap": known} if known else {})
    assert caught_by("pagemap", "a bug") is None
    assert asked[0] == (SEED, known or "random")
    assert len(asked) == len(set(asked)) == len(SEEDS) * (len(BOUNDS) - 1) + 1


@pytest.mark.parametrize(
    ("noticed", "said", "first"),
    [
        (("host", 3), "host:12:3", [("host", 3)]),
        (("host", 1), "host:11:1", [("host", 3), ("host", 0), ("host", 1)]),
        (("random", 0), "random:11:0", [("host", 3), *(("host", one) for one in range(5)), ("random", 0)]),
    ],
)
def test_the_unit_that_caught_it_last_is_asked_before_all(
    monkeypatch: pytest.MonkeyPatch, noticed: tuple[str, int], said: str, first: list[tuple[str, int]]
) -> None:
    asked: list[tuple[str, int]] = []

    def units(tier: str, _: str, __: int, ___: int, start: int = 0) -> Iterator[SimpleNamespace]:
        for number in range(start, 5):
            asked.append((tier, number))
            tally = SimpleNamespace(cuts=1, failures=[1] * ((tier, number) == noticed))
            yield SimpleNamespace(number=number, run=partial(SimpleNamespace, **vars(tally)))

    monkeypatch.setattr(tiers, "units", units)
    monkeypatch.setitem(KNOWN, "a bug", {"pagemap": "host:12:3"})
    assert caught_by("pagemap", "a bug") == said
    assert asked == first


def must_fail(test: str, path: Path, temp: Path) -> None:
    """The test, with the patched modules."""
    command = [sys.executable, "-c", TESTED, str(path), "-q", "-p", "no:cacheprovider", f"--basetemp={temp}",
               "-o", f"pythonpath={path}", str(bugs.ROOT / "tests" / test)]  # fmt: skip
    done = subprocess.run(command, cwd=path, env=bugs.environment(path), capture_output=True, text=True, timeout=500)
    failed = done.returncode == 1 and "1 failed" in done.stdout
    assert failed or done.returncode < 0, f"{test} did not notice: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.timeout(20 * SEARCH_S)  # the search has a limit of its own
@pytest.mark.parametrize(
    ("bug", "share"), [(QUICK, "pagemap"), *(pytest.param(bug, "all", marks=pytest.mark.slow) for bug in PATCHES)]
)
def test_a_patch_is_caught(bug: str, share: str, tmp_path: Path) -> None:
    """In a copy of the sources, in a process of its own; one that dies of it has noticed, too."""
    how = PATCHES[bug].how
    assert isinstance(how, bugs.Patch)
    path = how.build(tmp_path / "source")
    if PATCHES[bug].test:
        must_fail(PATCHES[bug].test, path, tmp_path / "inner")
    missed = [ftl for ftl in (asked_of(bug) if share == "all" else [share]) if not is_caught_in(ftl, bug, path)]
    assert not missed, f"{bug}: no tier noticed in {', '.join(missed)}"


def asked_of(bug: str) -> list[str]:
    """FTLs in which a tier has caught the bug; all that may have it if it was caught in none yet, or all are asked."""
    of = PATCHES[bug].of
    known = [] if ANEW else [ftl for ftl in of if ftl in KNOWN.get(bug, ())]
    return known or list(of)


def is_caught_in(ftl: str, bug: str, path: Path) -> bool:
    """Whether a tier notices it, with the patched modules."""
    environment = bugs.environment(path)
    environment["PYTHONPATH"] += os.pathsep + os.pathsep.join(map(str, (HERE, HERE.parent)))
    command = [sys.executable, "-c", CHILD, ftl, str(path), bug]
    done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode <= 0, done.stderr
    if done.returncode == -signal.SIGXCPU:
        tier = None
    else:
        tier = json.loads(done.stdout) if done.returncode == 0 else ""
    if CATCHES and tier != "":
        with Path(CATCHES).open("a") as file:
            file.write(json.dumps([bug, ftl, tier]) + "\n")
    return tier is not None


def test_there_are_bugs_in_every_part() -> None:
    assert len(bugs.BUGS) >= 16
    parts = {"recovery", "metadata log", "core", "mover", "pool", "write buffer", "placement"}
    assert {bug.where for bug in bugs.BUGS.values()} >= parts
    for name, scheme in SCHEMES.items():  # bugs.toml in its folder of the tests; pagemap has no modules of its own
        assert not scheme.replaces or any(bug.of == (name,) for bug in bugs.BUGS.values()), name


@pytest.mark.parametrize("ftl", FEW)
def test_without_a_bug_the_same_units_pass(ftl: str) -> None:
    assert not campaign.run(ftl, "random", SEED, 300).failures


def test_an_exception_of_the_device_is_a_failure_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("what nobody expected")

    monkeypatch.setattr(Bench, "step", broken)
    failure = run_case(Case("pagemap", "w0")).failure
    assert failure is not None
    assert failure.why == "ValueError: what nobody expected"
