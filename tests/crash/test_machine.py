"""A state machine that looks for a program, a chip and cuts that lose something; what it finds is one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from schemes import KINDS

from flashfs.crash import Case
from flashfs.crash.bench import Bench, Wrong
from flashfs.crash.cases import Failure
from flashfs.crash.grammar import parse_program
from flashfs.crash.programs import CROWDED, TINY, fits, presets_for
from flashfs.ftl import SCHEMES, scheme
from nandimg import Cut
from nandimg._faults import SHAPES

CUTS = st.builds(Cut, st.integers(1, 60), st.sampled_from(SHAPES))
FILL = 300  #: pages that are written to the crowded chip before anything is cut


def choices(ftl: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the options, the scheme's own among them, each with a few values."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "wear_spread": st.just(2),
        "checkpoint_every": st.sampled_from((4, 9)),
        "gc_reserve": st.integers(1, 3),
    }
    for option in scheme(ftl).options:
        if option.choices:
            values[option.name] = st.sampled_from(option.choices)
        elif not option.fixed or option.high <= 16:
            values[option.name] = st.integers(option.low, min(option.high, option.low + 8))
    return st.fixed_dictionaries({"buffer": st.integers(0, 4)}, optional=values)


class Power(RuleBasedStateMachine):
    """One device under one judge. Cuts are laid out at the start, one a life (and a recovery may well be a life);
    the rules are the host."""

    ftl = ""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.case = Case(self.ftl, "")
        self.bench: Bench | None = None

    @initialize(data=st.data())
    def power_on(self, data: st.DataObject) -> None:
        preset = data.draw(st.sampled_from(presets_for(self.ftl, (*TINY, CROWDED))), "preset")
        fill = FILL if preset == CROWDED else 0
        cuts = data.draw(st.lists(CUTS, max_size=5), "cuts")
        if fill and cuts:  # after the fill, which takes some 900 operations
            cuts[0] = Cut(cuts[0].at + 900, cuts[0].shape)
        fail = data.draw(st.lists(st.integers(3, 60), max_size=1), "fail") if preset != "tiny-8" else []
        plp = data.draw(st.booleans(), "plp")
        options = data.draw(choices(self.ftl), "options")
        options["buffer"] = options["buffer"] or int(plp)
        self.case = Case(self.ftl, "", preset, tuple(cuts), tuple(options.items()), tuple(fail), plp)
        if not fits(self.case):
            options.pop("gc_reserve", None)
            for name in (*SCHEMES[self.ftl].tight, "rival"):  # a log in flash takes more blocks than a tiny chip has
                options.pop(name, None)
            self.case = replace(self.case, options=tuple(options.items()))
        self.bench = Bench(self.case)
        self.do("", self.bench.format)
        if fill:
            self.step("w", 0, fill, most=fill)

    def teardown(self) -> None:
        if self.bench is not None:
            self.bench.release()

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
        case = replace(self.case, program=" ".join(self.words))
        raise AssertionError(str(Failure(case, why))) from error

    def step(self, operation: str, lpa: int = 0, n: int = 1, most: int = 8) -> None:
        assert self.bench is not None
        bench, pages = self.bench, self.bench.geometry.lpas
        lpa %= pages
        n = min(n, pages - lpa, most)
        where = f"{lpa}+{n}" if operation in "wt" else ""
        self.do(operation + where, lambda: bench.step(operation, lpa, n))

    @rule(lpa=st.integers(0, 299), n=st.integers(1, 6))
    def write(self, lpa: int, n: int) -> None:
        self.step("w", lpa, n)

    @rule(lpa=st.integers(0, 2))
    def overwrite(self, lpa: int) -> None:
        self.step("w", lpa)

    @rule(lpa=st.integers(0, 299), n=st.integers(1, 8))
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
        """Where the map is in flash a read may write, so the power may go here too."""
        bench = self.bench
        assert bench is not None
        self.do("R", lambda: bench.must_be_newest("between requests"))


class Remapping(Power):
    """One that remaps, too."""

    @rule(source=st.integers(0, 299), to=st.integers(0, 299), n=st.integers(1, 12), move=st.booleans())
    def remap(self, source: int, to: int, n: int, move: bool) -> None:
        assert self.bench is not None
        bench, pages = self.bench, self.bench.geometry.lpas
        source, to = source % pages, to % pages
        word = f"{'m' if move else 'p'}{source}-{to}+{min(n, pages - max(source, to))}"
        (step,) = parse_program(word)
        self.do(word, lambda: bench.step_in_parts(step))

    @rule(source=st.integers(0, 5), to=st.integers(0, 5))
    def share(self, source: int, to: int) -> None:
        """A few pages again and again: many LPAs come to one."""
        self.remap(source, to, 1, False)


@pytest.mark.parametrize("ftl", KINDS)
def test_machine(ftl: str) -> None:
    machine = type(f"Power_{ftl}", (Remapping if scheme(ftl).remaps else Power,), {"ftl": ftl})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            derandomize=True,  # the random tier has new cases each time; this one is to take the same time each time
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
