"""SlimFTL where neighbours are more than their candidates have pages, so that pages lie in blocks of other candidates.

Of the tiny presets only tiny-96 does that; the others' few virtual blocks are all candidates of every page.
"""

from __future__ import annotations

import random

import pytest

from flashfs.crash import Case, run_case
from flashfs.crash.campaign import random_program
from nandimg import PRESETS, Cut
from nandimg._faults import SHAPES

LOSSES = {
    "a program failed, then a recovery was cut": (
        "ftl=slimftl preset=tiny-96 opt.buffer=4 plp fail=934 cut=938:after cut=12:oob-only "
        "program='w0+300 r w147+1 w121 w31 w94 w111+1'"
    ),
    "one cut, what was flushed is gone": (
        "ftl=slimftl preset=tiny-96 cut=290:oob-only program='w0+256 w240 r w154+2 f t67+3 w75 w79 w274 w249'"
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss: str) -> None:
    failure = run_case(Case.parse(LOSSES[loss])).failure
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_cuts(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(60):
        words = random_program(rnd, PRESETS["tiny-96"].geometry.lpas, rnd.choice((20, 60, 120)))
        program = f"w0+{rnd.choice((256, 300))} {words}"
        base = Case("slimftl", program, "tiny-96", options=(("buffer", rnd.choice((0, 1, 4, 9))),))
        operations = run_case(base).operations[-1]
        for _ in range(20):
            cuts = (Cut(rnd.randint(1, operations), rnd.choice(SHAPES)), Cut(rnd.randint(1, 20), rnd.choice(SHAPES)))
            failure = run_case(Case(base.ftl, program, base.preset, cuts, base.options)).failure
            assert failure is None, str(failure)
