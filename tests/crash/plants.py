"""Bugs that are planted while the process runs, in what Python can reach; bugs.py has the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flashfs.crash.bench import Bench
from flashfs.engine.recovery import log_reader, recovery

Plant = Callable[[pytest.MonkeyPatch], None]


def skip_step(name: str) -> Plant:
    """A recovery that leaves one of its steps out."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        steps = tuple(step for step in recovery.Recovery.STEPS if step[0] != name)
        assert len(steps) == len(recovery.Recovery.STEPS) - 1
        patch.setattr(recovery.Recovery, "STEPS", steps)

    return plant


def after_recovery(change: Callable[[Any, Any], None]) -> Plant:
    """A recovery that spoils one thing once it is done: ``change(ssd, report)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        class Planted(recovery.Recovery):  # type: ignore[misc, name-defined]
            def __init__(self, ssd: Any, readonly: bool = False, repairs: bool = False) -> None:
                super().__init__(ssd, readonly, repairs)
                self.ssd = ssd

            def run(self) -> Any:
                report = super().run()
                change(self.ssd, report)
                return report

        patch.setattr(recovery, "Recovery", Planted)

    return plant


def forget_mount_mark(ssd: Any, report: Any) -> None:
    """After a clean mount, nothing is programmed after the checkpoint to mark that it is no longer clean."""
    if report.clean:
        ssd.resume(ssd.seq, ssd.mounts, False)


def restart_sequence(ssd: Any, report: Any) -> None:
    """Sequence numbers begin again after a recovery, so new pages look older than old ones."""
    ssd.resume(0, ssd.mounts, report.clean)


def empty_flush(patch: pytest.MonkeyPatch) -> None:
    """A flush that is acknowledged and does nothing."""
    patch.setattr(Bench, "flush", lambda bench: bench.judge.flushed())


def lost_newest_trim(patch: pytest.MonkeyPatch) -> None:
    """The last record of each trim page is overlooked."""
    records = log_reader.trim_records
    patch.setattr(log_reader, "trim_records", lambda raw: records(raw)[:-1])


def trimmed_pages_come_back(patch: pytest.MonkeyPatch) -> None:
    """A trim that reaches the mapping, but for its last page."""
    step = Bench.step

    def planted(bench: Bench, operation: str, lpa: int, n: int) -> None:
        if operation == "t":
            bench.judge.will_trim(lpa, n)
            if n > 1:
                bench.ssd.trim_pages(lpa, n - 1)
        else:
            step(bench, operation, lpa, n)

    patch.setattr(Bench, "step", planted)
