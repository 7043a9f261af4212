"""What ``make test`` costs: the processor time of each test, the order in which they run, and a limit to both.

Wall time says nothing on a shared machine. Processor time does, but machines differ, and one machine is twice as fast
at one hour as at another. So each process measures a yardstick, the same small piece of work, again and again between
the tests. All seconds that are printed are those of a core on which it takes YARDSTICK_S.

No yardstick has all that tests do: two machines on which it takes the same time may differ in what a page fault or a
new process costs, and the same tests came to 780 and to 1,030 s by it. The best yardstick is the tests themselves: by
how much those are slower of which the file knows what they took (the median, by what they took) says how fast the
machine is at what they do. Against that, new tests and tests that have become dearer show to a tenth. What makes all
tests dearer alike shows only by the clocks, and has a wider limit.
"""

from __future__ import annotations

import gc
import json
import os
import time
import zlib
from bisect import bisect
from collections import defaultdict
from collections.abc import Generator, Iterable
from itertools import accumulate
from mmap import mmap
from pathlib import Path
from statistics import median
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
TEST_S_MOST = 20.0  #: of processor time, of one test
GROWTH_MOST = 1.10  #: of the sum over all tests, against the one in FILE, where most tests cost what they did
CLOCKS_MOST = 1.5  #: of the sum by the processor's clock, and of that by the yardstick
YARDSTICK_S = 0.022  #: what it takes on a quiet core
LONG_S = 0.8  #: tests that take so long run first, the longest before the others
EVERY_S = 5.0  #: of wall time between two looks at the yardstick
SHOWN = 10


def processor_s() -> float:
    """Of this process and of those that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


#: more bytes than the caches of one core hold. Made once
BLOCK = bytearray(1 << 22)
ROUNDS = 4
FOLDER = Path(__file__).parent


class Little:
    __slots__ = ("number", "pair", "text")

    def __init__(self, number: int) -> None:
        self.number, self.pair, self.text = number, (number, number + 1), bytes(16)


def yardstick_s() -> float:
    """Processor seconds of a fixed piece of work that is like what tests do: objects, a table, new memory, a checksum,
    calls of the kernel. It takes so long that others come between where others wait, and it finds caches as cold as
    tests do then."""
    gc.disable()  # what it would go through is what the tests before have left
    before = time.process_time()
    for _ in range(ROUNDS):
        all_of_them = [Little(i) for i in range(6000)]
        table = {one.number * 7919 % 65_537: one for one in all_of_them}
        for i in range(6000):
            table.get(i)
        with mmap(-1, 1 << 20) as memory:
            for at in range(0, 1 << 20, 4096):
                memory[at] = 1
        zlib.crc32(BLOCK)
        for _ in range(150):
            FOLDER.stat()
    took_s = time.process_time() - before
    gc.enable()
    return took_s


def known() -> dict[str, Any]:
    """What was committed: ``sum_s`` by the yardstick, ``raw_s`` as the processor counted, ``folders`` {name: seconds},
    ``tests`` {id: seconds}, those of 0.3 s and more."""
    if not FILE.is_file():
        return {"sum_s": 0.0, "raw_s": 0.0, "folders": {}, "tests": {}}
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def longest_first(items: list[pytest.Item]) -> None:
    """The order in which tests run: what takes long does not begin when all else is done. The others stay together
    by file, for what they share is made once a file."""
    took = known()["tests"]
    items.sort(key=lambda item: -one if (one := took.get(item.nodeid, 0.0)) >= LONG_S else 0.0)


def part_of(items: list[pytest.Item], part: str) -> list[pytest.Item]:
    """Part K of N of the tests, in their order: "2/4" are each fourth from the second on."""
    k, _, n = part.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise pytest.UsageError(f"--part {part}: K/N is needed, as 2/4: the second of four parts")
    return items[int(k) - 1 :: int(n)]


class Meter:
    """In each process that runs tests: what each took goes into its report, and with it what the yardstick said."""

    def __init__(self) -> None:
        self.begun = processor_s()
        self.looked = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.begun = processor_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("processor_s", processor_s() - self.begun))
            if time.monotonic() - self.looked > EVERY_S:
                report.user_properties.append(("yardstick_s", yardstick_s()))
                self.looked = time.monotonic()
        return report


class Guard:
    """In the process that prints: the dearest tests, and whether a limit was exceeded."""

    def __init__(self, enforce: bool, write: bool) -> None:
        self.enforce, self.write = enforce, write
        self.took: dict[str, float] = defaultdict(float)
        self.yardsticks: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "processor_s":
                self.took[report.nodeid] += float(str(value))
            elif name == "yardstick_s":
                self.yardsticks.append(float(str(value)))

    @property
    def scale(self) -> float:
        """What a second of this machine comes to on the core that the limits are meant for."""
        return YARDSTICK_S / median(self.yardsticks) if self.yardsticks else 1.0

    def scaled(self) -> dict[str, float]:
        return {name: seconds * self.scale for name, seconds in self.took.items()}

    def broken(self) -> list[str]:
        """A line for each limit that was exceeded."""
        scaled, before = self.scaled(), known()
        lines = [
            f"{name} took {seconds:.1f} s of processor time; the limit is {TEST_S_MOST:g} s"
            for name, seconds in dearest(scaled.items())
            if min(seconds, self.took[name]) > TEST_S_MOST
        ]
        by_clocks = min(over(scaled, before["sum_s"]), over(self.took, before["raw_s"]))
        by_tests = self.by_tests(before)
        if by_clocks > CLOCKS_MOST or by_tests > GROWTH_MOST:
            grown = by_tests if by_tests > GROWTH_MOST else by_clocks
            lines.append(
                f"all tests took {sum(scaled.values()):.0f} s of processor time, {before['sum_s']:.0f} s before; for "
                f"this machine that is {grown:.2f} times as much: make them cheaper, or mark the dear ones slow "
                "(tests/README.md); `make durations` accepts the new sum"
            )
        return lines

    def by_tests(self, before: dict[str, Any]) -> float:
        """How many times as dear all tests are as in the file, on a machine on which half of what the file knows, by
        seconds, took as long as it does; 0 where hardly any of it ran."""
        slower = sorted((self.took[name] / s, s) for name, s in before["tests"].items() if name in self.took)
        weight = list(accumulate(seconds for _, seconds in slower))
        if not weight or weight[-1] < before["sum_s"] / 4:
            return 0.0
        ratio, _ = slower[bisect(weight, weight[-1] / 2)]
        return sum(self.took.values()) / (ratio * before["sum_s"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.enforce and session.exitstatus == 0 and self.broken():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.write and session.exitstatus in (0, pytest.ExitCode.TESTS_FAILED):
            self.save()

    def save(self) -> None:
        scaled = self.scaled()
        folders: dict[str, float] = defaultdict(float)
        for name, seconds in scaled.items():
            folders[name.split("::")[0].split("/")[1]] += seconds
        found = {
            "sum_s": round(sum(scaled.values()), 1),
            "raw_s": round(sum(self.took.values()), 1),
            "folders": {name: round(seconds, 1) for name, seconds in sorted(folders.items())},
            "tests": {name: round(seconds, 1) for name, seconds in sorted(scaled.items()) if seconds >= 0.3},
        }
        FILE.write_text(json.dumps(found, indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.took or not (self.enforce or self.write):
            return
        scaled = self.scaled()
        terminalreporter.section("processor time")
        for name, seconds in dearest(scaled.items())[:SHOWN]:
            terminalreporter.line(f"{seconds:8.1f} s  {name}")
        total = sum(scaled.values())
        terminalreporter.line(f"{total:8.1f} s  all {len(scaled)} tests; committed: {known()['sum_s']:.1f} s")
        terminalreporter.line(f"{self.scale:8.2f}    of these seconds are one of this machine's")
        for line in self.broken() if self.enforce else ():
            terminalreporter.line(f"over the limit: {line}", red=True)


def over(took: dict[str, float], before: float) -> float:
    """How many times ``before`` all tests took; 0 where nothing was committed."""
    return sum(took.values()) / before if before else 0.0


def dearest(took: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(took, key=lambda one: -one[1])
