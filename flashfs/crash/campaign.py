"""Campaigns: cases by the thousand, over all cores, each failure with the line that replays it.

*Sweep*: small random programs, a cut at every operation in every shape. *Random*: longer programs, one to three cuts
(so that a recovery is cut too) and failing operations. Both are a function of the seed alone. *Every*: no chance at
all, but each program up to a length, each cut at every operation in every shape.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flashfs.crash.cases import Case, Failure, run_case
from flashfs.ftl import scheme
from nandimg import PRESETS, Cut
from nandimg._faults import SHAPES

TINY = ("tiny-8", "tiny-16", "tiny-24d")
CROWDED = "tiny-96"  #: filled first, so that neighbours crowd what few places a hash gives them
BATCH = 200  #: cases that a worker takes at once
AHEAD = 4  #: batches made ahead of each worker: cases are made faster than they run
EVERY_LENGTH = 3  #: words of the exhaustive tier's programs, unless told otherwise
EVERY_WORDS = ("w0", "w1", "w2", "t0", "t1", "t2", "f", "i", "r")
#: what goes before: nothing; or cold pages among hot ones, until the next write has to clean and to move
EVERY_PROLOGUES = ("", "w3 w0 w1 w2 w4 w0 w1 w2 w5 w0 w1 w2 w6 w0 w1 w2 w7 w0 w1 w2 f")


class Loss(Protocol):
    """A failure of any tier: what was wrong, and the command that does it again."""

    @property
    def why(self) -> str: ...

    @property
    def replay(self) -> str: ...


@dataclass(slots=True)
class Result:
    """One scheme's campaign."""

    ftl: str
    tier: str
    seed: int
    cuts: int = 0
    cases: int = 0
    seconds: float = 0.0
    failures: list[Loss] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "ftl": self.ftl,
            "tier": self.tier,
            "cuts": self.cuts,
            "cases": self.cases,
            "failures": [{"why": failure.why, "replay": failure.replay} for failure in self.failures],
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
            rnd.choices((f"w{lpa}", f"w{lpa}+{span}", f"t{lpa}+{span}", "f", "i", "r"), weights=(55, 10, 10, 13, 6, 6))[
                0
            ]
        )
    return " ".join(words)


def random_setting(rnd: random.Random, ftl: str, preset: str) -> Case:
    """A program on that chip with some choice of options, the scheme's own included; no cut yet."""
    program = random_program(rnd, PRESETS[preset].geometry.lpas, rnd.choice((12, 24, 40, 90)))
    if preset == CROWDED:
        program = f"w0+{rnd.choice((256, 300))} {program}"
    plp = rnd.random() < 0.15
    options: list[tuple[str, Any]] = [("buffer", rnd.choice((0, 1, 2, 4)) or int(plp))]
    if rnd.random() < 0.2:
        options.append(("wear_spread", 2))
    if rnd.random() < 0.2:
        options.append(("checkpoint_every", rnd.choice((4, 9))))
    for option in scheme(ftl).options:
        if rnd.random() < 0.3 and (option.choices or option.high <= 16):
            options.append((option.name, rnd.choice(option.choices or range(option.low, option.high + 1))))
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
        base = random_setting(rnd, ftl, CROWDED if rnd.random() < 0.1 else rnd.choice(TINY))
        filled = 900 if base.preset == CROWDED else 0  # operations that the fill takes, or nearly
        lives = tuple(
            Cut(at + int(rnd.expovariate(1 / mean)) + 1, rnd.choice(SHAPES))
            for at, mean in ((filled, 30), (0, 6), (0, 6))[: rnd.randint(1, 3)]
        )
        fail = (filled + rnd.randrange(3, 60),) if rnd.random() < 0.15 and base.preset != "tiny-8" else ()
        made += len(lives)
        yield Case(base.ftl, base.program, base.preset, lives, base.options, fail, base.plp)


def programs(length: int) -> Iterator[list[str]]:
    """All programs of 1 to ``length`` words, up to the names of the pages: page 1 comes only after page 0."""
    for n in range(1, length + 1):
        for words in itertools.product(EVERY_WORDS, repeat=n):
            named = list(dict.fromkeys(word[1] for word in words if len(word) == 2))
            if named == sorted(named) and (not named or int(named[-1]) == len(named) - 1):
                yield list(words)


def every(ftl: str, length: int) -> Iterator[Case]:
    """Each program up to ``length`` words behind each prologue on tiny-8, with and without a write buffer, cut at each
    of its own operations in every shape. The prologue's operations are cut once, behind an empty program."""
    for prologue, buffer in itertools.product(EVERY_PROLOGUES, (0, 2)):
        base = Case(ftl, prologue, "tiny-8", options=(("buffer", buffer),))
        before = run_case(base).operations[-1]
        yield from _cut_everywhere(base, 1, before)
        for words in programs(length):
            case = replace(base, program=" ".join([*prologue.split(), *words]))
            operations = run_case(case).operations
            yield case
            yield from _cut_everywhere(case, before + 1, operations[-1] if operations else 0)


def _cut_everywhere(case: Case, first: int, last: int) -> Iterator[Case]:
    for at, shape in itertools.product(range(first, last + 1), SHAPES):
        yield replace(case, cuts=(Cut(at, shape),))


#: name -> (FTL, seed, cuts or, for `every`, the programs' length) -> cases
TIERS: dict[str, Callable[[str, int, int], Iterator[Case]]] = {
    "sweep": sweep,
    "random": scattered,
    "every": lambda ftl, seed, length: every(ftl, length),
}


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
    """Run one tier on one scheme; ``cuts`` is the length of the programs in tier `every`. ``progress`` hears how many
    cuts were survived so far. The count is of cuts that really happened, not of those that were planned."""
    result = Result(ftl, tier, seed)
    started = time.perf_counter()
    batches = _batches(TIERS[tier](ftl, seed, cuts))
    if jobs > 1:
        room = threading.Semaphore(jobs * AHEAD)  # imap alone would make the whole campaign first
        with multiprocessing.get_context("fork").Pool(jobs, _leave_interrupts) as pool:
            parts = pool.imap_unordered(_run_batch, (batch for batch in batches if room.acquire()))
            _collect(result, _releasing(room, parts), progress)
    else:
        _collect(result, map(_run_batch, batches), progress)
    result.seconds = time.perf_counter() - started
    return result


def _releasing(room: threading.Semaphore, parts: Iterator[Any]) -> Iterator[Any]:
    for part in parts:
        room.release()
        yield part


def _leave_interrupts() -> None:
    """Ctrl-C is the parent's business: it ends the workers, who then need not say where they were."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _collect(result: Result, parts: Any, progress: Callable[[int], None]) -> None:
    for cases, cuts, failures in parts:
        result.cases += cases
        result.cuts += cuts
        result.failures += failures
        progress(result.cuts)
