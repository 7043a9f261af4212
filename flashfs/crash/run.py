"""Run a case on the bench that it needs."""

from __future__ import annotations

from flashfs.crash.bench import Bench, Outcome, Tell
from flashfs.crash.cases import Case, shown
from flashfs.crash.fault_bench import HurtBench
from flashfs.crash.host import HostBench

__all__ = ["never_fell", "run_case"]


def run_case(case: Case, tell: Tell | None = None) -> Outcome:
    """Run it to its end: after each cut the device recovers, is judged, and the program goes on. Never raises for a
    device's fault."""
    bench = (HostBench if case.on_disk else HurtBench if case.hurts else Bench)(case, tell)
    try:
        return bench.play()
    finally:
        bench.release()


def never_fell(case: Case, outcome: Outcome) -> list[str]:
    """The words of a case, as its line has them, that name an operation to which the run did not come. Such a run says
    nothing about what the line is for. Operations of the last unmount are not in ``outcome``: a word is named only if
    they cannot have come to it either."""
    words = [f"cut={shown(cut)}" for cut in case.cuts[outcome.cuts_hit :]]
    unmount = case.geometry.pages
    words += [f"fail={at}" for at in case.fail if max(outcome.operations, default=0) + unmount < at]
    most = sum(outcome.operations) + unmount
    return [*words, *(f"fault={one}" for one in case.faults if one.kind != "wear" and most < one.at)]
