"""Power cuts and deaths of the host while mounts with the battery and without it take turns."""

from __future__ import annotations

from typing import Any

import pytest
from schemes import bounded

from flashfs.crash import tiers
from flashfs.crash.bench import Bench

FEW = {"sweep": 100, "random": 80, "host": 50}
MANY = {"sweep": 1_500, "random": 600, "host": 600, "faults": 400}


@pytest.mark.parametrize(("tier", "cuts"), bounded(FEW, MANY))
def test_what_a_mount_without_it_leaves_is_not_believed(monkeypatch: pytest.MonkeyPatch, tier: str, cuts: int) -> None:
    tiers.presets_for("dftl")
    build = Bench.build
    mounts = [0, 0]

    def in_turn(self: Bench, options: dict[str, Any]) -> Any:
        """By the number of operations so far, so that a line that is printed does the same again."""
        if "dftl" in self.regions and self.case.ftl == "dftl":
            options = {**options, "battery": (self.nand.operations + self.phase) % 2}
            mounts[options["battery"]] += 1
        return build(self, options)

    monkeypatch.setattr(Bench, "build", in_turn)
    done = 0
    for unit in tiers.units(tier, "dftl", 23, cuts):
        tally = unit.run()
        assert tally.failures == []
        done += tally.cuts
        if done >= cuts:
            break
    assert min(mounts) > 50
