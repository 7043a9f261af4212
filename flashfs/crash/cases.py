"""One case: a chip, a scheme, a program of host requests, cuts. It runs in this process, in memory, in milliseconds.

A program is a text such as ``w3 w4 f t3 w3+4 i r w5``:

    wL    write page L          wL+N  write N pages from L on in one request
    tL    trim page L           tL+N  trim N pages
    f     flush                 i     idle: nothing, but housekeeping may run
    r     clean unmount and mount again
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flashfs import _recovery
from flashfs._fsck import cross_check
from flashfs.crash.judge import Judge
from flashfs.device import ENGINE_OOB, build_ssd
from flashfs.errors import UsageError
from flashfs.ftl import scheme
from nandimg import PRESETS, Cut, FaultyNand, PowerCut, memory_image


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that one run needs. ``cuts`` are for one life each: power goes at the first cut's operation, then,
    counted from the next power-up, at the second's, and so on. ``fail`` are operations that the chip reports failed."""

    ftl: str
    program: str
    preset: str = "tiny-8"
    cuts: tuple[Cut, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    fail: tuple[int, ...] = ()
    plp: bool = False

    def line(self) -> str:
        """The one line that replays it."""
        parts = [f"ftl={self.ftl}", f"preset={self.preset}"]
        parts += [f"opt.{name}={value}" for name, value in self.options]
        parts += ["plp"] if self.plp else []
        parts += [f"fail={','.join(map(str, self.fail))}"] if self.fail else []
        parts += [f"cut={cut.at}:{cut.shape}" for cut in self.cuts]
        return " ".join([*parts, f"program={shlex.quote(self.program)}"])

    @classmethod
    def parse(cls, line: str) -> Case:
        """The inverse of ``line``; UsageError names the word that does not fit."""
        case = cls(ftl="pagemap", program="")
        for word in shlex.split(line):
            key, _, value = word.partition("=")
            try:
                case = _with(case, key, value)
            except (ValueError, KeyError):
                raise UsageError(f"replay line: {word!r} is not understood; see docs/crash.md") from None
        if case.preset not in PRESETS:
            raise UsageError(f"replay line: no preset is called {case.preset!r}")
        scheme(case.ftl)
        pages = PRESETS[case.preset].geometry.lpas
        for _, lpa, n in parse_program(case.program):
            if lpa + n > pages:
                raise UsageError(f"replay line: LPA {lpa + n - 1}: {case.preset} has {pages} pages")
        return case


def _with(case: Case, key: str, value: str) -> Case:
    if key == "cut":
        at, _, shape = value.partition(":")
        return replace(case, cuts=(*case.cuts, Cut(int(at), shape or "before")))
    if key == "fail":
        return replace(case, fail=tuple(int(part) for part in value.split(",")))
    if key == "plp":
        return replace(case, plp=True)
    if key.startswith("opt."):
        return replace(case, options=(*case.options, (key[4:], value)))
    if key == "ftl":
        return replace(case, ftl=value)
    if key == "preset":
        return replace(case, preset=value)
    if key == "program":
        return replace(case, program=value)
    raise KeyError(key)


def parse_program(text: str) -> Iterator[tuple[str, int, int]]:
    """(operation, LPA, pages) of each word; UsageError names a bad one."""
    for word in text.split():
        operation, where = word[0], word[1:]
        first, plus, count = where.partition("+")
        valid = (operation in "wt" and first.isdigit() and (not plus or count.isdigit())) or word in ("f", "i", "r")
        if not valid:
            raise UsageError(f"program word {word!r}: wL, wL+N, tL, tL+N, f, i or r would do")
        yield operation, int(first or 0), int(count or 1)


@dataclass(slots=True)
class Failure:
    """What went wrong, and the line that replays it."""

    case: Case
    why: str

    @property
    def replay(self) -> str:
        """The command that does it again."""
        return f"flashfs crash replay {shlex.quote(self.case.line())}"

    def __str__(self) -> str:
        return f"{self.why}\n    {self.replay}"


@dataclass(slots=True)
class Outcome:
    """How a case ended: operations per life (the last life's last), what recovery cost, and the failure if any."""

    operations: list[int] = field(default_factory=list)
    cuts_hit: int = 0
    failure: Failure | None = None


#: hears (what happened, operations in this life so far) for whoever wants to watch a replay
Tell = Callable[[str, int], None]


def _nobody(what: str, operations: int) -> None:
    """Nobody watches."""


class Wrong(Exception):
    """The judge or a check says no."""


class Bench:
    """A chip on a bench, whose power somebody keeps cutting."""

    def __init__(self, case: Case, tell: Tell = _nobody) -> None:
        self.case = case
        self.tell = tell
        self.scheme = scheme(case.ftl)
        self.geometry = PRESETS[case.preset].geometry
        self.options = self.scheme.resolve({"buffer": 2, **dict(case.options)})
        image = memory_image(self.geometry)
        build_ssd(self.scheme, self.options, image.chip, plp=case.plp)  # derives what is fixed at binding
        image.bind(case.ftl, {}, ENGINE_OOB + self.scheme.scheme_oob)
        self.nand = FaultyNand(image.chip, case.cuts, case.fail)
        self.judge = Judge(self.geometry.lpas, self.geometry.page_bytes)
        self.outcome = Outcome()
        self.ssd = self.build()

    def build(self) -> Any:
        return build_ssd(self.scheme, dict(self.options), self.nand, plp=self.case.plp)

    def format(self) -> None:
        self.ssd.format()

    def mount(self) -> None:
        """Power is there: recover, and check everything."""
        self.ssd = self.build()
        report = _recovery.Recovery(self.ssd).run()
        self.tell(f"mounted {report.summary()}", self.nand.operations)

    def survive(self) -> None:
        """The power went. Switch it on until a recovery gets through, then judge what it found."""
        while True:
            self.outcome.operations.append(self.nand.operations)
            self.outcome.cuts_hit += 1
            self.tell("power cut", self.nand.operations)
            self.nand.power_on()
            try:
                self.mount()
            except PowerCut:
                continue
            break
        self.examine()

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it; if the power goes, recover and go on (what was cut may have happened or not)."""
        try:
            action()
        except PowerCut:
            self.survive()

    def read(self, lpa: int) -> bytes:
        into = bytearray(self.geometry.page_bytes)
        self.ssd.read_range(lpa * self.geometry.page_bytes, into)
        return bytes(into)

    def examine(self) -> None:
        for lpa in range(self.geometry.lpas):
            wrong = self.judge.crashed(lpa, self.read(lpa))
            if wrong:
                raise Wrong(f"after recovery: {wrong}")
        self.sound("after recovery")

    def sound(self, when: str) -> None:
        problems = self.ssd.check() + cross_check(self.ssd)
        if problems:
            raise Wrong(f"{when}: {problems[0]}")

    def step(self, operation: str, lpa: int, n: int) -> None:
        judge, page = self.judge, self.geometry.page_bytes
        if operation == "w":
            data = b"".join(judge.will_write(x) for x in range(lpa, lpa + n))
            self.ssd.write_range(lpa * page, data)
            if self.case.plp:
                for x in range(lpa, lpa + n):
                    judge.settle(x)
        elif operation == "t":
            judge.will_trim(lpa, n)
            self.ssd.trim_pages(lpa, n)
        elif operation == "f":
            self.ssd.sync_now()
            judge.flushed()
        elif operation == "i":
            self.ssd.idle()
        elif operation == "r":
            self.ssd.sync_now()
            judge.flushed()
            self.ssd.checkpoint(True)
            self.mount()

    def finish(self) -> None:
        """What is there now must be the newest; and after one more crash, still."""
        for lpa in range(self.geometry.lpas):
            if self.read(lpa) != self.judge.newest(lpa):
                raise Wrong(f"at the end: LPA {lpa} does not read what was written last")
        self.sound("at the end")
        self.ssd.sync_now()
        self.judge.flushed()
        self.nand.power_on()
        self.mount()
        self.examine()


def run_case(case: Case, tell: Tell = _nobody) -> Outcome:
    """Run it to its end; every cut is survived, judged, and the program goes on. Never raises for a device's fault."""
    bench = Bench(case, tell)
    steps = list(parse_program(case.program))
    try:
        bench.attempt(bench.format)
        tell("formatted", bench.nand.operations)
        for word, (operation, lpa, n) in zip(case.program.split(), steps, strict=True):
            bench.attempt(partial(bench.step, operation, lpa, n))
            tell(word, bench.nand.operations)
        bench.outcome.operations.append(bench.nand.operations)
        while True:
            try:
                bench.finish()
                break
            except PowerCut:
                bench.survive()
    except Wrong as wrong:
        bench.outcome.failure = Failure(case, str(wrong))
    except Exception as error:
        bench.outcome.failure = Failure(case, f"{type(error).__name__}: {error}")
    return bench.outcome
