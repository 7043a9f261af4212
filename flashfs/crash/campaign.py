"""Campaigns: cases by the thousand, over all cores, each failure with the line that replays it.

*Sweep*: small random programs, a cut at every operation in every shape. *Random*: longer programs, one to three cuts
(so that a recovery is cut too) and failing operations. Both are a function of the seed alone.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flashfs.crash.cases import Case, Failure, run_case
from nandimg import PRESETS, Cut
from nandimg._faults import SHAPES

TINY = ("tiny-8", "tiny-16", "tiny-24d")
BATCH = 200  #: cases that a worker takes at once


@dataclass(slots=True)
class Result:
    """One scheme's campaign."""

    ftl: str
    tier: str
    seed: int
    cuts: int = 0
    cases: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "ftl": self.ftl,
            "tier": self.tier,
            "cuts": self.cuts,
            "cases": self.cases,
            "failures": [{"why": failure.why, "replay": failure.case.line()} for failure in self.failures],
            "seconds": round(self.seconds, 2),
            "seed": self.seed,
        }


def random_program(rnd: random.Random, pages: int, length: int) -> str:
    """Mostly writes, of few pages and often the same ones; trims, flushes, idle moments, remounts."""
    words = []
    hot = [rnd.randrange(pages) for _ in range(3)]
    for _ in range(length):
        lpa = rnd.choice(hot) if rnd.random() < 0.3 else rnd.randrange(pages)
        span = rnd.randint(1, min(4, pages - lpa))
        words.append(
            rnd.choices(
                (f"w{lpa}", f"w{lpa}+{span}", f"t{lpa}+{span}", "f", "i", "r"), weights=(55, 10, 10, 13, 6, 6)
            )[0]
        )
    return " ".join(words)


def random_setting(rnd: random.Random, ftl: str, preset: str) -> Case:
    """A program on that chip with some choice of options; no cut yet."""
    program = random_program(rnd, PRESETS[preset].geometry.lpas, rnd.randint(10, 40))
    plp = rnd.random() < 0.15
    options: list[tuple[str, Any]] = [("buffer", rnd.choice((0, 1, 2, 4)) or int(plp))]
    if rnd.random() < 0.2:
        options.append(("wear_spread", 2))
    if rnd.random() < 0.2:
        options.append(("checkpoint_every", rnd.choice((4, 9))))
    return Case(ftl, program, preset, options=tuple(options), plp=plp)


def sweep(ftl: str, seed: int, cuts: int) -> Iterator[Case]:
    """``cuts`` distinct cases or a few more: programs in turn, each cut at every one of its operations and shapes."""
    rnd = random.Random(f"sweep {ftl} {seed}")
    made = 0
    seen: set[Case] = set()
    while made < cuts:
        base = random_setting(rnd, ftl, TINY[len(seen) % len(TINY)])
        if base in seen:
            continue
        seen.add(base)
        operations = run_case(base).operations
        yield base
        for at in range(1, (operations[-1] if operations else 0) + 1):
            for shape in SHAPES:
                yield Case(base.ftl, base.program, base.preset, (Cut(at, shape),), base.options, (), base.plp)
                made += 1


def scattered(ftl: str, seed: int, cuts: int) -> Iterator[Case]:
    """Random cases until they plan ``cuts`` cuts: up to three lives, and operations that fail."""
    rnd = random.Random(f"random {ftl} {seed}")
    made = 0
    while made < cuts:
        base = random_setting(rnd, ftl, rnd.choice(TINY))
        lives = tuple(
            Cut(int(rnd.expovariate(1 / (30 if life == 0 else 6))) + 1, rnd.choice(SHAPES))
            for life in range(rnd.randint(1, 3))
        )
        fail = tuple(sorted(rnd.sample(range(3, 60), 1))) if rnd.random() < 0.15 and base.preset != "tiny-8" else ()
        made += len(lives)
        yield Case(base.ftl, base.program, base.preset, lives, base.options, fail, base.plp)


TIERS: dict[str, Callable[[str, int, int], Iterator[Case]]] = {"sweep": sweep, "random": scattered}


def _run_batch(batch: list[Case]) -> tuple[int, int, list[Failure]]:
    outcomes = [run_case(case) for case in batch]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    return len(batch), sum(outcome.cuts_hit for outcome in outcomes), failures


def _batches(cases: Iterator[Case]) -> Iterator[list[Case]]:
    batch: list[Case] = []
    for case in cases:
        batch.append(case)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def run(
    ftl: str, tier: str, seed: int, cuts: int, *, jobs: int = 1, progress: Callable[[int], None] = lambda done: None
) -> Result:
    """Run one tier on one scheme. ``progress`` hears how many cuts were survived so far. The count is of cuts that
    really happened, not of those that were planned."""
    result = Result(ftl, tier, seed)
    started = time.perf_counter()
    batches = _batches(TIERS[tier](ftl, seed, cuts))
    if jobs > 1:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            _collect(result, pool.imap_unordered(_run_batch, batches), progress)
    else:
        _collect(result, map(_run_batch, batches), progress)
    result.seconds = time.perf_counter() - started
    return result


def _collect(result: Result, parts: Any, progress: Callable[[int], None]) -> None:
    for cases, cuts, failures in parts:
        result.cases += cases
        result.cuts += cuts
        result.failures += failures
        progress(result.cuts)
