"""Which values of options a campaign brought together with which rare events: what never met was never tried."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from schemes import limited

from flashfs.crash import Case, campaign
from flashfs.crash.events import names
from flashfs.crash.forks import Tally
from flashfs.crash.programs import edges, fits
from flashfs.crash.tiers import presets_for
from flashfs.ftl import scheme

CUTS = {"sweep": 3_000, "random": 3_000, "host": 3_000, "faults": 3_000, "wide": 600}
MET = 0.5  #: of the pairs of a value that was drawn and an event that was met, at least so many met


def values(ftl: str) -> list[str]:
    """name=value of each edge of each option that some chip has room for, alone."""
    presets = presets_for(ftl)
    return [
        f"{option.name}={value}"
        for option in scheme(ftl).all_options()
        for value in dict.fromkeys(edges(ftl, option))
        if any(fits(Case(ftl, "", preset, options=((option.name, value),))) for preset in presets)
    ]


def test_a_case_counts_for_all_that_it_has() -> None:
    case = Case.parse("ftl=dftl preset=tiny-24d chip.lpas=60 opt.battery=0 opt@1.buffer=4 plp dram=60000 program='w0'")
    tally = Tally()
    tally.pair(case, {"pages of trims": 2, "nodes that left": 0})
    assert set(tally.pairs.values()) == {1}
    said = {pair.removesuffix(" x pages of trims") for pair in tally.pairs}
    assert {"battery=0", "buffer=-1", "chip.lpas", "later.buffer", "plp", "dram"} <= said
    assert not any("nodes that left" in pair for pair in said)


@pytest.mark.parametrize("ftl", limited(()))
def test_values_of_options_meet_events(ftl: str) -> None:
    """Each value of each option is drawn, each event is met; of the pairs most are, and the others are printed."""
    pairs: Counter[str] = Counter()
    for tier, cuts in CUTS.items():
        result = campaign.run(ftl, tier, 21, cuts)
        assert not result.failures, str(result.failures[0])
        pairs.update(result.pairs)
    drawn = {pair.split(" x ")[0] for pair in pairs}
    met = {pair.split(" x ")[1] for pair in pairs}
    assert set(values(ftl)) <= drawn
    assert met == set(names(scheme(ftl))), f"never met: {set(names(scheme(ftl))) - met}"
    every = [f"{value} x {event}" for value, event in product(values(ftl), sorted(met))]
    never = [pair for pair in every if not pairs[pair]]
    print(f"{ftl}: {len(never)} pairs that no tier met:", *never, sep="\n  ")
    assert len(never) <= (1 - MET) * len(every)
