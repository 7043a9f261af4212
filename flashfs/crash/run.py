"""Run a case on the bench that it needs."""

from __future__ import annotations

from flashfs.crash.bench import Bench, Outcome, Tell
from flashfs.crash.cases import Case
from flashfs.crash.fault_bench import HurtBench
from flashfs.crash.host import HostBench


def run_case(case: Case, tell: Tell | None = None) -> Outcome:
    """Run it to its end: after each cut the device recovers, is judged, and the program goes on. Never raises for a
    device's fault."""
    bench = (HostBench if case.on_disk else HurtBench if case.hurts else Bench)(case, tell)
    try:
        return bench.play()
    finally:
        bench.release()
