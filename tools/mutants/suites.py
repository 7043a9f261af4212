"""The items that mutants run: units of the crash tiers, the checks of `flashfs check`, fast tests. Each runs in this
process, and passes or reports why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

SEED = 1
#: how many units of each tier on each FTL
UNITS = {"sweep": 8, "every": 60, "random": 60, "host": 60, "faults": 40}
UNITS_ELSE = 8  #: of a tier that is not named above
BOUND = 1
TESTS = ("tests/engine", "tests/ftl", "tests/nandimg", "tests/crash", "tests/spec", "tests/fuzz/test_images.py")
#: these are campaigns themselves, plant bugs, or compile
LEFT_OUT = ("tests/crash/test_sweep.py", "tests/crash/test_planted.py", "tests/crash/test_conformance.py",
            "tests/crash/test_kill.py", "tests/crash/test_kill_databases.py",
            "tests/crash/test_kill_files.py")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One item. ``run`` returns what is wrong, or ''; it may also raise, die or never end. ``source`` is the file of
    its code, if it has one of its own."""

    suite: str
    name: str
    run: Callable[[], str]
    source: str = ""

    @property
    def id(self) -> str:
        return f"{self.suite} {self.name}"

    @property
    def family(self) -> str:
        """The test without its parameters, or the tier and FTL without the number."""
        if self.suite == "crash":
            return self.id.rpartition(" ")[0]
        return self.id.partition("[")[0]


def crash_items() -> Iterator[Item]:
    from flashfs.crash import tiers
    from flashfs.ftl import SCHEMES

    for ftl in SCHEMES:
        tiers.presets_for(ftl)  # before a mutant is chosen
        tiers.presets_for(ftl, (*tiers.TINY, tiers.CROWDED))
        for tier in tiers.TIERS:
            row = tiers.units(tier, ftl, SEED, BOUND)
            for unit in islice(row, UNITS.get(tier, UNITS_ELSE)):
                yield Item("crash", f"{tier} {ftl} {unit.number}", lambda unit=unit: _unit(unit))  # type: ignore[misc]


def _unit(unit: Any) -> str:
    tally = unit.run()
    return str(tally.failures[0]) if tally.failures else ""


def check_items() -> Iterator[Item]:
    from flashfs.check import suite
    from flashfs.check.setting import Setting
    from flashfs.ftl import SCHEMES

    for check in suite.CHECKS:
        for ftl in SCHEMES:
            setting = Setting(ftl, seed=SEED)
            yield Item("check", f"{check.id} {ftl}", lambda check=check, setting=setting: _check(check, setting))  # type: ignore[misc]


def _check(check: Any, setting: Any) -> str:
    from flashfs.check import suite

    outcome = suite.judge(check, setting)
    return f"{outcome.result}: {outcome.why}" if outcome.result == "fail" else ""


def test_items(session: Any) -> Iterator[Item]:
    """The tests that pytest collected."""
    for item in session.items:
        yield Item("tests", item.nodeid, lambda item=item: _test(item), str(item.path))  # type: ignore[misc]


test_items.__test__ = False  # type: ignore[attr-defined]


def _test(item: Any) -> str:
    from _pytest.runner import runtestprotocol

    for report in runtestprotocol(item, nextitem=None, log=False):
        if report.failed:
            return str(report.longrepr).strip().splitlines()[-1] if report.longrepr else report.when
        if report.skipped:
            return f"skipped: {report.longrepr}"
    return ""
