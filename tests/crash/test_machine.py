"""A state machine that looks for a program, a chip and cuts that lose something; what it finds is one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flashfs.crash import Case
from flashfs.crash.campaign import TINY
from flashfs.crash.cases import Bench, Failure, Wrong
from flashfs.ftl import SCHEMES
from nandimg import Cut
from nandimg._faults import SHAPES

CUTS = st.builds(Cut, st.integers(1, 60), st.sampled_from(SHAPES))


class Power(RuleBasedStateMachine):
    """One device under one judge. Cuts are laid out at the start, one a life (and a recovery may well be a life);
    the rules are the host."""

    ftl = ""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.case = Case(self.ftl, "")
        self.bench: Bench | None = None

    @initialize(
        preset=st.sampled_from(TINY),
        cuts=st.lists(CUTS, max_size=5),
        buffer=st.integers(0, 4),
        spread=st.sampled_from((None, 2)),
        every=st.sampled_from((None, 4, 9)),
        plp=st.booleans(),
    )
    def power_on(self, preset: str, cuts: list[Cut], buffer: int, spread: Any, every: Any, plp: bool) -> None:
        options = [("buffer", buffer or int(plp))]
        options += [("wear_spread", spread)] * (spread is not None)
        options += [("checkpoint_every", every)] * (every is not None)
        self.case = Case(self.ftl, "", preset, tuple(cuts), tuple(options), (), plp)
        self.bench = Bench(self.case)
        self.do("", self.bench.format)

    def do(self, word: str, action: Callable[[], None]) -> None:
        """One step; whatever goes wrong says how to replay it."""
        assert self.bench is not None
        self.words += [word] if word else []
        try:
            self.bench.attempt(action)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        why = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
        case = Case(
            self.ftl, " ".join(self.words), self.case.preset, self.case.cuts, self.case.options, (), self.case.plp
        )
        raise AssertionError(str(Failure(case, why))) from error

    def step(self, operation: str, lpa: int = 0, n: int = 1) -> None:
        assert self.bench is not None
        bench, pages = self.bench, self.bench.geometry.lpas
        lpa %= pages
        n = min(n, pages - lpa)
        where = f"{lpa}+{n}" if operation in "wt" else ""
        self.do(operation + where, lambda: bench.step(operation, lpa, n))

    @rule(lpa=st.integers(0, 79), n=st.integers(1, 6))
    def write(self, lpa: int, n: int) -> None:
        self.step("w", lpa, n)

    @rule(lpa=st.integers(0, 2))
    def overwrite(self, lpa: int) -> None:
        self.step("w", lpa)

    @rule(lpa=st.integers(0, 79), n=st.integers(1, 8))
    def trim(self, lpa: int, n: int) -> None:
        self.step("t", lpa, n)

    @rule()
    def flush(self) -> None:
        self.step("f")

    @rule()
    def idle(self) -> None:
        self.step("i")

    @rule()
    def remount(self) -> None:
        self.step("r")

    @precondition(lambda self: self.bench is not None)
    @invariant()
    def reads_what_was_written_last(self) -> None:
        assert self.bench is not None
        try:
            for lpa in range(self.bench.geometry.lpas):
                if self.bench.read(lpa) != self.bench.judge.newest(lpa):
                    raise Wrong(f"LPA {lpa} does not read what was written last")
            self.bench.sound("between requests")
        except Exception as error:
            self.fail(error)


@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_machine(ftl: str) -> None:
    machine = type(f"Power_{ftl}", (Power,), {"ftl": ftl})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
