"""The bench: runs one case, a scheme on a chip in memory whose power is cut, and has the judge check the result.

A run has phases: 0 formats, 1 to n are the words of the program, n + 1 is the end: everything is read and checked, and
the device crashes once more. A run that a cut interrupted goes on in the next phase, once a recovery has finished.
"""

from __future__ import annotations

import atexit
import errno
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from flashfs.budget import fit
from flashfs.crash._watched import WatchedNand
from flashfs.crash.cases import Case, Failure
from flashfs.crash.events import Met, never_without_damage
from flashfs.crash.grammar import Step, parse_program
from flashfs.crash.oracle import Judge
from flashfs.device import ENGINE_OOB, build_ssd
from flashfs.engine.device import byte_requests
from flashfs.engine.recovery import recovery
from flashfs.engine.views.cross_check import cross_check
from flashfs.ftl import ENGINE_OPTIONS, scheme
from flashfs.ftl.common import require_pairs
from nandimg import Cut, Geometry, PowerCut, memory_image
from nandimg._chip import Chip


@dataclass(slots=True)
class Outcome:
    """How a case ended: operations per life (the last life's last), what recovery cost, and the failure if any."""

    operations: list[int] = field(default_factory=list)
    cuts_hit: int = 0
    failure: Failure | None = None
    met: dict[str, int] = field(default_factory=dict)  # rare events, and how often


#: called with (what happened, operations in this life so far), to watch a replay
Tell = Callable[[str, int], None]


class Wrong(Exception):
    """The judge or a check found a fault."""


MOLDS = 24  #: molds of which chips are kept
#: what a chip is made from: its geometry, bytes of OOB that are kept, regions of NVRAM that its scheme asks for
Mold = tuple[Geometry, int, tuple[tuple[str, int], ...]]


class Rack:
    """Chips in memory, reused, because making one costs as much as running a case on it. Each mold has a blank chip,
    made the first time a used one must become blank; only the MOLDS molds used last keep their chips."""

    def __init__(self) -> None:
        self.blank: dict[Mold, Chip] = {}
        self.free: OrderedDict[Mold, list[Chip]] = OrderedDict()  # the mold that was asked for last is the last

    def take(self, mold: Mold, like: Chip | None = None) -> Chip:
        """A chip with the contents of ``like``; blank if that is None."""
        free = self.free.setdefault(mold, [])
        self.free.move_to_end(mold)
        if not free:
            chip = self._make(mold)
            if like is not None:
                chip.copy_from(like)
            return chip
        chip = free.pop()
        if like is None and mold not in self.blank:
            self.blank[mold] = self._make(mold)
        chip.copy_from(like or self.blank[mold])
        return chip

    def give(self, mold: Mold, chip: Chip, *, unused: bool = False) -> None:
        """Return a chip that was taken; ``unused``: nothing was programmed on it since."""
        if unused and mold not in self.blank:
            self.blank[mold] = chip
        else:
            self.free.setdefault(mold, []).append(chip)
        self.free.setdefault(mold, [])
        while len(self.free) > MOLDS:
            oldest, _ = self.free.popitem(last=False)
            self.blank.pop(oldest, None)

    def clear(self) -> None:
        """Drop all chips: a forked process must not write to the chips of its parent."""
        self.blank.clear()
        self.free.clear()

    @staticmethod
    def _make(mold: Mold) -> Chip:
        geometry, oob_bytes, nvram = mold
        image = memory_image(geometry)
        image.bind("crash", {}, oob_bytes, nvram=dict(nvram))  # the layout does not depend on the name
        return image.chip


RACK = Rack()
os.register_at_fork(after_in_child=RACK.clear)
atexit.register(RACK.clear)  # while there still is an interpreter to close their files


def geometry_of(case: Case, oob_bytes: int = 0) -> Geometry:
    """The case's geometry, with as much OOB as the options need. Without power-loss protection it has no NVRAM:
    searching an empty one for pages is a quarter of the cost of a recovery of so small a chip."""
    geometry = case.geometry
    if oob_bytes > geometry.oob_bytes:
        geometry = replace(geometry, oob_bytes=oob_bytes)
    protected = case.plp or any(one.name == "plp" and one.value == "1" for one in case.later)
    return geometry if protected else replace(geometry, nvram_bytes=0)


class Bench:
    """One case being run. ``cuts`` are the case's, or those of a fork: the cuts with which ``as_case`` replays it."""

    def __init__(self, case: Case, tell: Tell | None = None, watcher: Any = None) -> None:
        self.case = case
        self.tell = tell
        self.scheme = scheme(case.ftl)
        self.options = self.scheme.resolve({"buffer": 2, **dict(case.options)})
        self.oob_bytes = ENGINE_OOB + self.scheme.oob_with(self.options)
        self.geometry = geometry_of(case, self.oob_bytes)
        self.regions = self.scheme.nvram(self.geometry, self.options, None)
        self.words = case.program.split()
        self.steps = list(parse_program(case.program))
        self.cuts = case.cuts
        self.phase = self.mounts = 0
        self.recovering = self.closing = False
        self.judge = Judge(self.geometry.lpas, self.geometry.page_bytes)
        self.outcome = Outcome()
        self.met = Met(self.scheme)
        self.nand = self.power_up(watcher)
        self.ssd = self.build(self.options)  # derives what is fixed at binding
        require_pairs(self.ssd, case.ftl)
        self.scheme.check_new(self.ssd, self.options)

    @property
    def mold(self) -> Mold:
        """The mold of its chip."""
        return self.geometry, self.oob_bytes, tuple(sorted(self.regions.items()))

    def power_up(self, watcher: Any) -> WatchedNand:
        """The chip, and the first life's power."""
        chip = RACK.take(self.mold)
        return WatchedNand(chip, self.case.cuts, self.case.fail, watcher=watcher)

    def now(self, name: str, otherwise: Any) -> Any:
        """The value that ``name`` has at this mount, by the case's ``later``; ``otherwise`` if it does not change."""
        said = [one.value for one in self.case.later if one.name == name and one.mount <= self.mounts]
        return said[-1] if said else otherwise

    @property
    def plp(self) -> bool:
        return bool(int(self.now("plp", self.case.plp)))

    @property
    def dram(self) -> int:
        return int(self.now("dram", self.case.dram))

    def settings(self) -> dict[str, Any]:
        """The options of this mount."""
        every = (*ENGINE_OPTIONS, *self.scheme.options)
        changed = {one.name: self.now(one.name, None) for one in every}
        return {**self.options, **{one.name: one.parse(changed[one.name]) for one in every
                                   if changed[one.name] is not None}}  # fmt: skip

    def build(self, options: dict[str, Any]) -> Any:
        """The engine with its tables; BindError if the tables do not fit the DRAM budget."""
        durable = self.now("sync", "flush") != "none"
        ssd = build_ssd(self.scheme, options, self.nand, plp=self.plp, durable=durable)
        if self.case.fills:
            ssd.meta.fill_least = self.case.fills
        fit(ssd, self.dram or None, self.case.ftl, buffer_given=options["buffer"] >= 0)
        return ssd

    def spend(self) -> None:
        """Give the data cache what the tables leave of the DRAM budget."""
        if self.dram:
            self.ssd.set_budget(self.dram)

    def release(self, *, unused: bool = False) -> None:
        """Give the chip back; the bench cannot be used after this. ``unused``: it did not run."""
        RACK.give(self.mold, self.nand.chip, unused=unused)

    def fork(self, shape: str, tail: int | None, words: int | None = None) -> Bench:
        """A copy of this bench on which the power goes in the operation that is about to happen here. At most ``tail``
        words of the program follow (None: all). Call it from the watcher of this bench."""
        other = object.__new__(type(self))
        other.case, other.tell, other.scheme = self.case, None, self.scheme
        other.geometry, other.options, other.oob_bytes = self.geometry, self.options, self.oob_bytes
        end = len(self.steps) if tail is None else self.phase + tail
        other.words, other.steps = self.words[:end], self.steps[:end]
        other.cuts = (*self.cuts, Cut(self.nand.operations + 1, shape, words))
        other.phase, other.mounts = self.phase, self.mounts
        other.regions = self.regions
        other.recovering = other.closing = False
        other.judge = self.judge.fork()
        other.outcome = Outcome()
        other.met = Met(self.scheme)
        other.ssd = None
        chip = RACK.take(self.mold, like=self.nand.chip)
        other.nand = WatchedNand(chip, (Cut(1, shape, words),), self.nand.still_failing)
        other.nand.inherit(self.nand)
        try:
            self.nand.perform_on(other.nand)
        except PowerCut:
            return other
        raise AssertionError("a chip survived a cut")

    def as_case(self) -> Case:
        """The case that runs as this bench did."""
        return replace(self.case, program=" ".join(self.words), cuts=self.cuts)

    # --- running

    def play(self, *, forked: bool = False) -> Outcome:
        """Run to the end, from the start or, ``forked``, from the power cut that has just happened. Never raises for
        a device's fault."""
        try:
            if forked:
                self.survive()
                self.phase += self.phase <= len(self.steps)
            while self.phase <= len(self.steps):
                done = self.words[self.phase - 1] if self.phase else "formatted"
                self.attempt(self.format if self.phase == 0 else self.next_step)  # may end the program: worn out
                self.say(done)
                self.phase += 1
            self.outcome.operations.append(self.nand.operations)
            while not self.attempt(self.finish):
                pass
        except Wrong as wrong:
            self.fail(str(wrong))
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")
        self.met.take(self.ssd)
        self.outcome.met = self.met.counts
        return self.outcome

    def fail(self, why: str) -> None:
        self.outcome.failure = Failure(self.as_case(), why)

    def say(self, what: str) -> None:
        if self.tell is not None:
            self.tell(what, self.nand.operations)

    def attempt(self, action: Callable[[], None]) -> bool:
        """Do it; if the power goes, recover and go on (what was cut may have happened or not)."""
        try:
            action()
        except PowerCut:
            self.survive()
            return False
        return True

    def survive(self) -> None:
        """The power went. Power on until a recovery finishes, then judge what it found."""
        while True:
            self.recovering = True
            self.outcome.operations.append(self.nand.operations)
            self.outcome.cuts_hit += 1
            self.say("power cut")
            self.power_on()
            try:
                self.mount()
                self.recovering = False
                self.examine()  # if the map is in flash, a read may write, so the power may go here too
            except PowerCut:
                continue
            break

    def power_on(self) -> None:
        self.nand.power_on()

    def format(self) -> None:
        self.ssd.format()
        self.spend()

    def mount(self) -> None:
        """The power is on: build the engine with this mount's settings, and recover."""
        self.met.take(self.ssd)
        self.mounts += 1
        self.ssd = self.build(self.settings())
        worker = recovery.Recovery(self.ssd)
        try:
            report = worker.run()
        finally:  # a recovery that was cut may have raised alarms too
            self.heard(worker.found.alarms)
        self.spend()
        if self.tell is not None:
            self.say(f"mounted {report.summary()}")

    def heard(self, alarms: list[str]) -> None:
        """Recovery from a power cut alone must raise no alarm."""
        if alarms:
            raise Wrong(f"after recovery: an alarm, and nothing but the power had failed: {alarms[0]}")

    def next_step(self) -> None:
        step = self.steps[self.phase - 1]
        if step.whole:
            self.step(step.operation, step.lpa, step.n)
        else:
            self.step_in_parts(step)

    def step(self, operation: str, lpa: int, n: int) -> None:
        judge, page = self.judge, self.geometry.page_bytes
        if operation == "w":
            data = b"".join([judge.will_write(x) for x in range(lpa, lpa + n)])
            byte_requests.write_range(self.ssd, lpa * page, data)
            if self.plp:
                self.protected(range(lpa, lpa + n))
        elif operation == "t":
            judge.will_trim(lpa, n)
            self.ssd.trim_pages(lpa, n)
            self.met.trimmed(self.ssd)
        elif operation == "f":
            self.flush()
        elif operation == "i":
            self.ssd.idle()
        elif operation == "R":
            self.must_be_newest("while nothing happened")
        elif operation == "r":
            self.flush()
            self.ssd.checkpoint(True)
            self.mount()

    def step_in_parts(self, step: Step) -> None:
        """Requests for parts of pages, a copy or remap, or many requests in one word."""
        judge, page = self.judge, self.geometry.page_bytes
        for offset, size in step.spans(page):
            if step.operation == "w":
                byte_requests.write_range(self.ssd, offset, judge.will_write_bytes(offset, size))
                if self.plp:
                    self.protected(range(offset // page, -(-(offset + size) // page)))
            elif step.operation == "t":
                judge.will_trim_bytes(offset, size)
                byte_requests.trim_range(self.ssd, offset, size)
                self.met.trimmed(self.ssd)
            elif step.operation == "c":
                target = step.target(page)
                judge.will_copy(offset, target, size)
                byte_requests.copy_range(self.ssd, offset, target, size)
            elif step.operation == "e":
                target = step.target(page)
                judge.will_copy(offset, target, size)
                byte_requests.write_range(self.ssd, target, bytes(judge.image[target : target + size]))
            else:
                self.remap(offset, step.target(page), size, step.operation == "m")
                self.met.trimmed(self.ssd)

    def remap(self, source: int, target: int, size: int, move: bool) -> None:
        """An atomic remap may be refused with EOPNOTSUPP: then nothing has changed."""
        whole = self.ssd.mapping.remapping is not None and self.ssd.mapping.remapping.atomic
        before = self.judge.fork() if whole else self.judge
        self.judge.will_remap(source, target, size, move, whole=whole)
        try:
            byte_requests.remap_range(self.ssd, source, target, size, move)
        except OSError as error:
            if not whole or error.errno != errno.EOPNOTSUPP:
                raise
            self.judge = before

    def flush(self) -> None:
        self.ssd.sync_now()
        self.judge.flushed()

    def protected(self, lpas: range) -> None:
        """An acknowledged write with power-loss protection is safe."""
        self.nand.forget_stores()
        for lpa in lpas:
            self.judge.settle(lpa)

    # --- judging

    def read_all(self) -> bytearray:
        into = bytearray(self.geometry.logical_bytes)
        byte_requests.read_range(self.ssd, 0, into)
        return into

    def examine(self) -> None:
        wrong = self.judge.all_crashed(self.read_all())
        if wrong:
            raise Wrong(f"after recovery: {wrong}")
        self.sound("after recovery")

    def must_be_newest(self, when: str) -> None:
        lpa = self.judge.not_newest(self.read_all())
        if lpa is not None:
            raise Wrong(f"{when}: LPA {lpa} does not read what was written last")
        self.sound(when)

    def sound(self, when: str) -> None:
        problems = self.ssd.check() + cross_check(self.ssd) + never_without_damage(self.scheme, self.ssd)
        if problems:
            raise Wrong(f"{when}: {problems[0]}")

    def finish(self) -> None:
        """Every page must be the newest now, and again after a flush and one more crash."""
        self.closing = False
        self.must_be_newest("at the end")
        self.flush()
        self.closing = True
        self.power_on()
        self.mount()
        self.examine()
