"""Cuts by forking: a program runs once, and at each operation copies of the chip lose their power in it.

Each copy then recovers under its own judge, goes on with the program, and ends as any case does; no state of the engine
is shared or saved. So a cut costs only what follows it, and its run is still the one that ``run_case`` makes of its
line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flashfs.crash._watched import WatchedNand
from flashfs.crash.bench import Bench, Outcome
from flashfs.crash.cases import Case, Failure
from nandimg._faults import BASIC_SHAPES, SHAPES

RARE = SHAPES[len(BASIC_SHAPES) :]  #: variations: after most operations they leave the same state as a basic shape
KEPT = 20  #: failures of one unit that are kept; a broken device has thousands
STRIDE = 7919  #: a prime: spreads the prefixes of the NVRAM stores that are tried over the operations
SPAN = 4  #: operations after a recovery at which a second cut is tried too


@dataclass(slots=True)
class Tally:
    """The result of one unit of a campaign: distinct cuts, runs (with and without a cut), failures."""

    cuts: int = 0
    cases: int = 0
    failed: int = 0
    first: int = 0  # the number of the cut that the first failure had
    failures: list[Failure] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)  # rare events
    pairs: Counter[str] = field(default_factory=Counter)  # cases that had an option's value and met an event

    def pair(self, case: Case, met: Mapping[str, int]) -> None:
        """Count a case with these settings that met those events."""
        events = [event for event, count in met.items() if count]
        self.pairs.update(f"{setting} x {event}" for setting in case.settings() for event in events)

    def add(self, outcome: Outcome, cuts: int) -> None:
        self.cuts += cuts
        self.cases += 1
        self.met.update(outcome.met)
        if outcome.failure:
            self.failed += 1
            self.first = self.first or max(1, self.cuts)
            if len(self.failures) < KEPT:
                self.failures.append(outcome.failure)


#: called with each run that ended, in that order: the forks, then the run that they forked from
Hear = Callable[[Bench, Outcome], None]


@dataclass(slots=True)
class Forks:
    """Cuts every operation of ``case`` in every basic shape. If ``rare``, also in one of the other shapes, in turn, and
    once with only a prefix of the NVRAM words stored before it.

    At most ``tail`` words of the program follow a cut, except for one cut of each operation, which the whole program
    follows (None: it follows every cut). ``first`` is the first phase that is cut. With ``depth`` 2 each recovery is
    cut as well, at each of its operations and ``SPAN`` more. ``apart`` above 1, for large chips: one operation in so
    many is cut, in one shape.
    """

    case: Case
    tail: int | None = None
    first: int = 0
    depth: int = 1
    rare: bool = False
    apart: int = 1
    tally: Tally = field(default_factory=Tally)
    hear: Hear | None = None

    def run(self) -> Tally:
        bench = Bench(self.case)
        bench.nand.watcher = Stem(self, bench)
        bench.nand.log_stores()
        try:
            self.tally.add(bench.play(), 0)
        finally:
            bench.release()
        if self.hear:
            self.hear(bench, bench.outcome)
        self.tally.pair(self.case, self.tally.met)
        return self.tally

    def cut(self, bench: Bench, depth: int) -> None:
        """Cut the operation that is about to happen on ``bench``."""
        at = bench.nand.operations + 1
        if self.apart > 1:
            self.sample(bench, at)
            return
        for turn, shape in enumerate((*BASIC_SHAPES, RARE[at % len(RARE)]) if self.rare else BASIC_SHAPES):
            whole = self.tail is None or turn == at % len(BASIC_SHAPES)
            self.follow(bench.fork(shape, None if whole else self.tail), depth)
        stored = bench.nand.stored_words + bench.nand.pending_words
        if self.rare and stored:  # battery-backed RAM is stored word by word, between the operations
            self.follow(bench.fork("before", self.tail, at * STRIDE % stored), depth)

    def sample(self, bench: Bench, at: int) -> None:
        """Cut one operation in ``apart``, each time in the next shape."""
        turn, rest = divmod(at, self.apart)
        if rest == 0:
            self.follow(bench.fork(SHAPES[turn % len(SHAPES)], self.tail), self.depth)

    def follow(self, fork: Bench, depth: int) -> None:
        """Run a fork to its end."""
        if depth < self.depth:
            fork.nand.watcher = Stem(self, fork, depth + 1)
        outcome = fork.play(forked=True)
        fork.release()
        self.tally.add(outcome, 1)
        if self.hear:
            self.hear(fork, outcome)


class Stem:
    """Watches a run from which others fork: one whose power has not gone yet or, in depth 2, has gone once."""

    def __init__(self, forks: Forks, bench: Bench, depth: int = 1) -> None:
        self.forks = forks
        self.bench = bench
        self.depth = depth
        self.left = SPAN

    def before_operation(self, nand: WatchedNand) -> None:
        bench = self.bench
        if bench.closing or bench.phase < self.forks.first:
            return
        if self.depth > 1 and not bench.recovering:
            if self.left == 0:
                nand.watcher = None
                return
            self.left -= 1
        self.forks.cut(bench, self.depth)

    def before_sync(self, nand: WatchedNand) -> None:
        """No cut at a sync: it would lose nothing that a cut at an operation does not lose."""
