"""Bugs planted on purpose: a campaign of some hundred cuts must catch each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from flashfs import _recovery
from flashfs.crash import campaign
from flashfs.crash.cases import Bench, Case, run_case
from flashfs.ftl import SCHEMES

CUTS = 1_500  #: at most; most bugs show within the first hundred

Plant = Callable[[pytest.MonkeyPatch], None]


def skip_step(name: str) -> Plant:
    """A recovery that leaves one of its steps out."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        steps = tuple(step for step in _recovery.Recovery.STEPS if step[0] != name)
        assert len(steps) == len(_recovery.Recovery.STEPS) - 1
        patch.setattr(_recovery.Recovery, "STEPS", steps)

    return plant


def after_recovery(change: Callable[[Any, Any], None]) -> Plant:
    """A recovery that spoils one thing once it is done: ``change(ssd, report)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        class Planted(_recovery.Recovery):  # type: ignore[misc, name-defined]
            def __init__(self, ssd: Any, readonly: bool = False) -> None:
                super().__init__(ssd, readonly)
                self.ssd = ssd

            def run(self) -> Any:
                report = super().run()
                change(self.ssd, report)
                return report

        patch.setattr(_recovery, "Recovery", Planted)

    return plant


def forget_mount_mark(ssd: Any, report: Any) -> None:
    """After a clean mount, nothing is programmed behind the checkpoint to say that it is clean no more."""
    if report.clean:
        ssd.resume(ssd.seq, ssd.mounts, False)


def restart_sequence(ssd: Any, report: Any) -> None:
    """Sequence numbers begin again after a recovery, so new pages look older than old ones."""
    ssd.resume(0, ssd.mounts, report.clean)


def empty_flush(patch: pytest.MonkeyPatch) -> None:
    """A flush that is acknowledged and does nothing."""
    step = Bench.step
    patch.setattr(Bench, "step", lambda b, op, lpa, n: b.judge.flushed() if op == "f" else step(b, op, lpa, n))


def lost_newest_trim(patch: pytest.MonkeyPatch) -> None:
    """The last record of each trim page is overlooked."""
    records = _recovery.trim_records
    patch.setattr(_recovery, "trim_records", lambda raw: records(raw)[:-1])


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


BUGS: dict[str, tuple[str, Plant]] = {
    "a flush that does nothing": ("sweep", empty_flush),
    "a trim that forgets its last page": ("sweep", trimmed_pages_come_back),
    "a recovery that reads no trims": ("sweep", skip_step("trims")),
    "a recovery that overlooks the newest trim": ("sweep", lost_newest_trim),
    "a recovery that scans no pages": ("sweep", skip_step("scan")),
    "a recovery that takes no winners": ("sweep", skip_step("resolve")),
    "a recovery that takes no checkpoint": ("sweep", skip_step("checkpoint")),
    "a recovery that leaves the NVRAM alone": ("protected", skip_step("nvram")),
    "a recovery that does not commit": ("random", skip_step("commit")),
    "a clean mount that leaves no mark": ("sweep", after_recovery(forget_mount_mark)),
    "sequence numbers that begin again": ("random", after_recovery(restart_sequence)),
}


def protected(ftl: str) -> Iterator[Case]:
    """A sweep in which each device has its write buffer in NVRAM."""
    for case in campaign.sweep(ftl, 11, CUTS):
        yield replace(case, options=(("buffer", 2),), plp=True)


@pytest.mark.parametrize("ftl", list(SCHEMES))
@pytest.mark.parametrize("bug", BUGS)
def test_is_caught(monkeypatch: pytest.MonkeyPatch, ftl: str, bug: str) -> None:
    tier, plant = BUGS[bug]
    cases = list(protected(ftl) if tier == "protected" else campaign.TIERS[tier](ftl, 11, CUTS))
    plant(monkeypatch)
    caught = next((n for n, case in enumerate(cases) if run_case(case).failure), None)
    assert caught is not None, f"{bug}: {len(cases)} cases did not notice"


@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_without_a_bug_the_same_cases_pass(ftl: str) -> None:
    assert not [case for case in campaign.sweep(ftl, 11, 200) if run_case(case).failure]


def test_an_exception_of_the_device_is_a_failure_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("what nobody expected")

    monkeypatch.setattr(Bench, "step", broken)
    failure = run_case(Case("pagemap", "w0")).failure
    assert failure is not None
    assert failure.why == "ValueError: what nobody expected"
