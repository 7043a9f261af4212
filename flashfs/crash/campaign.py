"""Campaigns: the units of a tier over all cores, in order, each failure with the line that replays it.

The result of a campaign depends on its seed alone, not on the number of processes. It can be interrupted and resumed:
results are added in the order of the units, so the number of the next unit is its whole position.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import multiprocessing
import os
import re
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import flashfs
from flashfs.crash.events import names as event_names
from flashfs.crash.forks import Tally
from flashfs.crash.tiers import TIERS, TINY, Unit, random_program, random_setting, units, units_count
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import BROKEN, SCHEMES, scheme

__all__ = ["TIERS", "TINY", "Loss", "Result", "State", "random_program", "random_setting", "run", "units_count"]

AHEAD = 4  #: units given out ahead of each worker
KEPT = 200  #: failures that a result keeps; a broken device has thousands, and the first ones are enough
SAVE_S = 2.0  #: seconds between saves of a state file
LONG = r'"""(?:[^\\]|\\.)*?"""'
STRING = rf'{LONG}|"(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)*\x27'
#: of Python and Cython: strings and comments; ``prose`` are comments, and long strings that are a statement
PROSE = re.compile(rf"(?P<prose>^[ \t]*[rR]?(?:{LONG})[ \t]*(?=\n|\Z|\#)|\#[^\n]*)|{STRING}", re.M | re.S)
PROSE_OF_C = re.compile(rf"(?P<prose>//[^\n]*|/\*.*?\*/)|{STRING}", re.M | re.S)


class Loss(Protocol):
    """A failure of any tier: what was wrong, and the command that replays it."""

    @property
    def why(self) -> str: ...

    @property
    def replay(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Noted:
    """A failure, and the number of the unit that found it."""

    why: str
    replay: str
    unit: int

    def __str__(self) -> str:
        return f"unit {self.unit}: {self.why}\n    {self.replay}"


@dataclass(slots=True)
class Result:
    """One tier on one scheme so far. ``failed`` counts all failures, ``failures`` holds the first KEPT; ``next`` is the
    first unit that is not included."""

    ftl: str
    tier: str
    seed: int
    cuts: int = 0
    cases: int = 0
    seconds: float = 0.0
    failures: list[Loss] = field(default_factory=list)
    failed: int = 0
    next: int = 0
    events: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)  #: cases that had an option's value and met an event
    in_memory: ClassVar[bool] = True  #: whether the devices' own counts were seen

    def never_met(self) -> list[str]:
        """The rare events of the engine and of the scheme that none of its runs met."""
        return [name for name in event_names(scheme(self.ftl)) if not self.events[name]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ftl": self.ftl,
            "tier": self.tier,
            "cuts": self.cuts,
            "cases": self.cases,
            "failures": [_failure(failure) for failure in self.failures],
            "failed": max(self.failed, len(self.failures)),
            "seconds": round(self.seconds, 2),
            "seed": self.seed,
            "next": self.next,
            "events": {name: self.events[name] for name in event_names(scheme(self.ftl)) if self.events[name]},
            "never_met": self.never_met(),
            "pairs": dict(sorted(self.pairs.items())),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Result:
        failures: list[Loss] = [Noted(**failure) for failure in saved["failures"]]
        fields = {name: value for name, value in saved.items() if name != "never_met"}
        counts = {name: Counter(saved.get(name, {})) for name in ("events", "pairs")}
        return cls(**{**fields, "failures": failures, **counts})

    def add(self, unit: int, tally: Tally) -> None:
        self.cuts += tally.cuts
        self.cases += tally.cases
        self.failed += tally.failed
        self.failures += [Noted(one.why, one.replay, unit) for one in tally.failures[: KEPT - len(self.failures)]]
        self.events.update(tally.met)
        self.pairs.update(tally.pairs)
        self.next = unit + 1


def _failure(failure: Loss) -> dict[str, Any]:
    out: dict[str, Any] = {"why": failure.why, "replay": failure.replay}
    return {**out, "unit": failure.unit} if isinstance(failure, Noted) else out


def note_failures(path: Path, results: Sequence[Result]) -> None:
    """Add a line of JSON to a file for each failure that a result keeps: ``ftl``, ``tier``, ``seed``, ``why``, the
    command as ``replay``, the day as ``on``. UsageError if the file cannot be written."""
    _note(path, "--found", [
        {"ftl": one.ftl, "tier": one.tier, "seed": one.seed, "why": loss.why, "replay": loss.replay}
        for one in results for loss in one.failures
    ])  # fmt: skip


def note_survivors(path: Path, results: Sequence[Result]) -> None:
    """Add a line of JSON to a file for each result without a failure: ``ftl``, ``tier`` (``fs`` and ``writer`` of tier
    kill), ``seed``, ``cuts``, ``sources`` and the day as ``on``. UsageError if the file cannot be written."""
    said = [one.as_dict() for one in results if not one.failures]
    kept = ("ftl", "tier", "fs", "writer", "seed", "cuts")
    lines = [
        {name: one[name] for name in kept if name in one} | {"sources": sources(one["ftl"])} for one in said
    ]  # fmt: skip
    _note(path, "--survived", lines)


def sources(ftl: str) -> str:
    """Eight hex digits: a hash of the sources that ran with that FTL, without comments and docstrings. They are those
    of the chip, the engine, the parts, what schemes have in common, and the scheme's own folder, as far as they are
    installed."""
    sha = hashlib.sha256()
    root = Path(flashfs.__file__).parent.parent
    schemes = root / "flashfs" / "ftl"
    others = {schemes / name for name in {*SCHEMES, *BROKEN} if name != ftl}
    parts = [root / "nandimg", root / "flashfs" / "engine", root / "flashfs" / "parts", schemes]
    for path in sorted(path for part in parts for path in part.rglob("*")):
        if path.suffix in (".py", ".pyx", ".pxd", ".h") and not others & set(path.parents):
            code = code_of(path.read_text(), PROSE_OF_C if path.suffix == ".h" else PROSE)
            sha.update(f"{path.relative_to(root)}\0{code}".encode())
    return sha.hexdigest()[:8]


@lru_cache(maxsize=1024)
def code_of(text: str, prose: re.Pattern[str] = PROSE) -> str:
    """A source without its comments, its strings that are statements (docstrings), and empty lines."""
    bare = prose.sub(lambda found: "" if found["prose"] else found[0], text)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def _note(path: Path, option: str, lines: Sequence[dict[str, Any]]) -> None:
    today = time.strftime("%Y-%m-%d")
    try:
        with path.open("a") as file:
            file.writelines(json.dumps({**line, "on": today}) + "\n" for line in lines)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; use another name") from None


class State:
    """The results of campaigns in a file, by FTL, tier, seed and depth, so that the same command can resume them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        self.seed: int | None = None
        if path.exists():
            try:
                saved = json.loads(path.read_text())
                self.seed, self.results = saved["seed"], saved["results"]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UsageError(f"--state {path}: no state of a campaign ({error}); use another name") from None

    def find(self, ftl: str, tier: str, seed: int, depth: int) -> Result:
        """The result so far of that campaign; an empty one if the file does not have it."""
        saved = self.results.get(f"{ftl} {tier} {seed} {depth}")
        return Result.from_dict(saved) if saved else Result(ftl, tier, seed)

    def save(self, result: Result, depth: int) -> None:
        """Write the file atomically."""
        self.seed = result.seed
        self.results[f"{result.ftl} {result.tier} {result.seed} {depth}"] = result.as_dict()
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps({"seed": self.seed, "results": self.results}, indent=1))
            draft.replace(self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise FlashfsError(f"--state {self.path}: {error.strerror}") from None


def run(
    ftl: str, tier: str, seed: int, bound: int, *, depth: int = 1, jobs: int = 1, start: Result | None = None,
    until: float = math.inf,
    progress: Callable[[Result], None] = lambda result: None,
    save: Callable[[Result], None] = lambda result: None,
) -> Result:  # fmt: skip
    """Run one tier on one scheme until it has ``bound`` cuts; in tier `every`, all programs of up to ``bound`` words.
    ``start`` is a result to resume; the run ends once ``time.perf_counter()`` is past ``until``. ``progress`` is called
    after each unit, ``save`` every SAVE_S seconds and at the end, also after an error. Cuts that really happened are
    counted, not planned ones."""
    result = start or Result(ftl, tier, seed)
    row = units(tier, ftl, seed, bound, depth, result.next)
    before, started, saved = result.seconds, time.perf_counter(), time.perf_counter()
    try:
        if tier == "every" or result.cuts < bound:
            with closing(_run_here(row) if jobs == 1 else _run_pool(row, jobs)) as ran:
                for number, tally in ran:
                    result.add(number, tally)
                    result.seconds = before + time.perf_counter() - started
                    progress(result)
                    if time.perf_counter() - saved > SAVE_S:
                        save(result)
                        saved = time.perf_counter()
                    if (tier != "every" and result.cuts >= bound) or time.perf_counter() > until:
                        break
    finally:
        result.seconds = before + time.perf_counter() - started  # includes waiting for the pool
        save(result)
    return result


def _run_here(row: Iterator[Unit]) -> Generator[tuple[int, Tally], None, None]:
    for unit in row:
        yield unit.number, unit.run()


def _run_pool(row: Iterator[Unit], jobs: int) -> Generator[tuple[int, Tally], None, None]:
    """Yield the results in the order of the units, whichever ends first. FlashfsError if a worker dies, so that no unit
    is lost in silence."""
    waiting: deque[Any] = deque()
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _begin_worker)
    oldest = 0
    try:
        for unit in row:
            waiting.append((unit.number, pool.submit(unit.run)))
            if len(waiting) >= jobs * AHEAD:
                oldest, future = waiting.popleft()
                yield oldest, future.result()
        while waiting:
            oldest, future = waiting.popleft()
            yield oldest, future.result()
    except BrokenProcessPool:
        raise FlashfsError(
            f"a worker process died after unit {oldest}: `--jobs 1 --from {oldest}` shows where"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent. Objects from before the fork are not garbage: the collector need not scan them."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
