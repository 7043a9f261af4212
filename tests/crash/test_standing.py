"""Recoveries from a battery, one after another, each of them cut: pages in the NVRAM to put back, trims that no flush
made durable, and hardly a free block."""

from __future__ import annotations

import random

import pytest

from flashfs.crash import Case, run_case
from flashfs.ftl import SCHEMES

POWER = ("before", "prefix", "oob-only", "data-only", "after", "unstable")
HOST = ("before:all", "after:all", "before:but.0-1", "before:last.2", "after:none", "before:coin.7", "before:first.9")
CHIPS = (("tiny-112", 700), ("tiny-112", 760), ("tiny-48", 303))  #: of validity in flash only the first

KEPT = [name for name, one in SCHEMES.items() if any(option.name == "battery" for option in one.options)]


def span(rnd: random.Random, word: str, lpas: int, most: int) -> str:
    """A word over every first, second, third or fifth of some LPAs."""
    first, step = rnd.randrange(lpas), rnd.choice((1, 1, 2, 3, 5))
    return f"{word}{first}+{min(rnd.randint(1, most), -(-(lpas - first) // step))}/{step}"


def cases(ftl: str, seed: int, programs: int) -> list[Case]:
    """Each program with eight places for the first cut, at its end, and others in the recoveries after it."""
    rnd, out = random.Random(seed), []
    for _ in range(programs):
        preset, lpas = rnd.choice(CHIPS[:1] if SCHEMES[ftl].validity_in_flash else CHIPS)
        buffer, cuts = rnd.choice((8, 16, 24, 32)), rnd.choice((POWER, HOST))
        words = [f"w0+{lpas}", *(span(rnd, "w", lpas, lpas // 3) for _ in range(rnd.randint(3, 12))), "f"]
        trims = [span(rnd, "t", lpas, rnd.choice((2, 6, 12))) for _ in range(rnd.randint(1, 5))]
        program = " ".join([*words, *trims, span(rnd, "w", lpas, 3 * buffer)])
        chip = f"preset={preset} chip.lpas={lpas} opt.buffer={buffer} opt.cmt_bytes={rnd.choice((500, 1500, 3000))}"
        line = f"ftl={ftl} {chip} plp program='{program}'"
        end = run_case(Case.parse(line)).operations[0]
        for _ in range(8):
            places = (end - rnd.randint(1, 40), rnd.randint(10, 90), rnd.randint(1, 90))
            at = " ".join(f"cut={place}:{rnd.choice(cuts)}" for place in places)
            out.append(Case.parse(line.replace("program=", f"{at} program=")))
    return out


@pytest.mark.parametrize(
    ("seed", "programs"), [(1, 4), pytest.param(2, 60, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("ftl", KEPT)
def test_recoveries_that_stand_on_a_battery_are_cut(ftl: str, seed: int, programs: int) -> None:
    failures = [outcome.failure for case in cases(ftl, seed, programs) if (outcome := run_case(case)).failure]
    assert not failures, "\n".join(map(str, failures[:3]))
