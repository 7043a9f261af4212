"""What metadata take of a controller's DRAM, and what a recovery costs, on devices that no machine here holds. And what
greedy cleaning costs (``cleaning``).

The other formulas are those of N. Dayan, P. Bonnet, S. Idreos, *GeckoFTL*, SIGMOD 2016: section 2, appendices B and C,
and what section 5.3 says of the schemes that it compares with. ``chip`` is a device as the paper sees one, ``dram`` and
``recovery`` have a function per scheme. docs/recovery-model.md has them for people.

These are the paper's schemes, not ours: ours have checkpoints, and take what they take (``flashfs replay`` measures
that). ``recovery.beside`` puts a recovery that was measured next to its formula.
"""

from __future__ import annotations

from typing import Any

from flashfs.formulas import recovery
from flashfs.formulas.chip import Chip
from flashfs.formulas.dram import OF as STRUCTURES
from flashfs.formulas.dram import dram

__all__ = ["FTLS", "Chip", "dram", "recovery", "row"]

FTLS = tuple(STRUCTURES)  #: schemes that there are formulas of


def row(ftl: str, chip: Chip) -> dict[str, Any]:
    """All of a scheme on a device, with the names of a result (docs/replay.md): ``dram.STRUCTURE`` and ``dram.total``,
    ``recovery.STEP.seconds``, ``.spare_reads``, ``.reads``, ``.programs``, ``recovery.seconds``; ``chip.*``; and
    ``brute_force.seconds``, ``synchronised.seconds`` of section 2. What a scheme does not have is 0."""
    structures = {name: 0 for one in FTLS for name in dram(one, chip)} | dram(ftl, chip)
    out: dict[str, Any] = {"ftl": ftl, "source": "formulas"}
    out |= {f"chip.{name}": value for name, value in chip.plain().items()}
    out |= {f"dram.{name}": value for name, value in structures.items()}
    out["dram.total"] = sum(structures.values())
    every = {step.name: recovery.Step(step.name, "") for one in FTLS for step in recovery.steps(one, chip)}
    every |= {step.name: step for step in recovery.steps(ftl, chip)}
    for name, step in every.items():
        out |= {f"recovery.{name}.{what}": getattr(step, what) for what in ("spare_reads", "reads", "programs")}
        out[f"recovery.{name}.seconds"] = step.seconds(chip)
    out["recovery.seconds"] = recovery.seconds(ftl, chip)
    out["brute_force.seconds"] = recovery.brute_force(chip).seconds(chip)
    out["synchronised.seconds"] = recovery.synchronised(chip).seconds(chip)
    return out
