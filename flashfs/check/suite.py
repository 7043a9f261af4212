"""The list of checks, and how they run: each in a process of its own, with results in the order of the list."""

from __future__ import annotations

import multiprocessing
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from flashfs.check import host_side, maps, power, remaps, upkeep
from flashfs.check.setting import SCALES, Broken, Counts, Setting, Skipped
from flashfs.errors import MISTAKES, UsageError
from flashfs.ftl import scheme
from flashfs.text import meant

__all__ = ["CHECKS", "SCALES", "Broken", "Check", "Outcome", "Setting", "Skipped", "run"]

LIMIT_S = {"quick": 900, "full": 14_400}  #: a check that takes longer counts as hanging


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that an FTL must keep. ``run`` returns counts of what it did; it raises Broken, Skipped, or an error of
    the FTL. ``weight``: roughly how long it takes, relative to the others."""

    id: str
    title: str
    promise: str
    run: Callable[[Setting], Counts]
    weight: int = 1


CHECKS = (
    Check("names", "names and options", "it says what it is; its defaults are valid, and what is not valid is refused",
          host_side.names),
    Check("rules", "the rules of NAND", "the chip never has to refuse anything; contents are right after every request",
          host_side.rules, 4),
    Check("content", "contents", "any offset and length, holes and trims, the whole device over and over",
          host_side.content),
    Check("remaps", "remaps", "a range reads what another does, whatever becomes of that; FTLs that remap copy less",
          remaps.remaps),
    Check("durability", "power cuts", "what was flushed survives a cut at any operation, and the host's death",
          power.durability, 20),
    Check("failing", "failing blocks", "a block whose program or erase fails is retired, and nothing is lost",
          power.failing, 2),
    Check("gc", "cleaning", "a full tiny chip takes overwrites without end; trimmed space is given back", upkeep.gc, 4),
    Check("wear", "wear levelling", "no block is ahead of another by more than wear_spread", upkeep.wear, 3),
    Check("accounting", "the accounts", "causes sum to totals, the figures are the chip's, WAF is what it says",
          upkeep.accounting, 2),
    Check("dram", "memory", "the structures sum to the total, and what is allocated is what they say", upkeep.dram, 2),
    Check("clean", "clean mounts", "after a clean unmount a mount reads a checkpoint and scans nothing",
          host_side.clean),
    Check("maps", "large maps", "a clean mount finds each of some thousand LPAs where it was",
          maps.maps),
    Check("idempotent", "recovery again", "a recovery comes out the same when it is done again, or cut and done again",
          power.idempotent, 4),
    Check("readonly", "read-only mounts", "not one byte of the image changes", host_side.readonly),
    Check("determinism", "the same twice", "the same requests: the same figures, virtual times and image",
          host_side.determinism),
)  # fmt: skip

_BY_ID = {check.id: check for check in CHECKS}


def chosen(only: Iterable[str] | None) -> tuple[Check, ...]:
    """The checks with these ids, in the list's order; all checks if there are none. UsageError for an unknown id."""
    ids = list(only or _BY_ID)
    for name in ids:
        if name not in _BY_ID:
            raise UsageError(f"no check is called {name!r}{meant(name, _BY_ID)}: there is {', '.join(_BY_ID)}")
    return tuple(check for check in CHECKS if check.id in ids)


@dataclass(slots=True)
class Outcome:
    """How one check of one FTL ended. ``result`` is pass, fail or skip; ``why`` gives the reason in one line,
    ``replay`` is the command that reproduces a failure."""

    ftl: str
    id: str
    title: str
    result: str = "pass"
    counts: Counts = field(default_factory=dict)
    why: str = ""
    replay: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 2)}


def again(check: Check, setting: Setting) -> str:
    """The command that runs this check alone, as it was run."""
    scale = f" --scale {setting.scale}" if setting.scale != SCALES[0] else ""
    seed = f" --seed {setting.seed}" if setting.seed else ""
    return f"flashfs check {shlex.quote(setting.spec)} --only {check.id}{scale}{seed}"


def judge(check: Check, setting: Setting) -> Outcome:
    """Run it in this process. An exception of the FTL is a failure, in one line with the exception's name."""
    outcome = Outcome(setting.spec, check.id, check.title)
    started = time.perf_counter()
    try:
        outcome.counts = check.run(setting)
    except Skipped as skipped:
        outcome.result, outcome.why = "skip", str(skipped)
    except Broken as broken:
        outcome.result, outcome.why = "fail", str(broken)
        outcome.replay = broken.replay or again(check, setting)
    except MISTAKES as error:
        outcome.result, outcome.why = "fail", f"{type(error).__name__}: {error}"
        outcome.replay = again(check, setting)
    outcome.why = " ".join(outcome.why.split())
    outcome.seconds = time.perf_counter() - started
    return outcome


# --- in processes


@dataclass(slots=True)
class _Job:
    """A check under way in another process."""

    check: Check
    setting: Setting
    process: Any
    answer: Connection
    started: float

    def left_s(self) -> float:
        return self.started + LIMIT_S[self.setting.scale] - time.perf_counter()

    def outcome(self) -> Outcome:
        """Its answer; a process that ended without one, or does not end, failed."""
        try:
            found: Outcome = self.answer.recv() if self.answer.poll() else self._silent()
        except EOFError:
            found = self._silent()
        self.end()
        return found

    def _silent(self) -> Outcome:
        self.process.join(1)
        code = self.process.exitcode
        if code is None:
            why = f"it did not end within {LIMIT_S[self.setting.scale]} s"
        elif code < 0:
            why = f"its process died of {signal.Signals(-code).name}"
        else:
            why = f"its process ended with {code}"
        outcome = Outcome(self.setting.spec, self.check.id, self.check.title, "fail", why=why)
        outcome.replay = again(self.check, self.setting)
        outcome.seconds = time.perf_counter() - self.started
        return outcome

    def end(self) -> None:
        """End the process, by a kill if need be, and release what belongs to it."""
        if self.process.is_alive():
            self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()
        self.answer.close()


def _begin(check: Check, setting: Setting) -> _Job:
    context = multiprocessing.get_context("fork")  # an FTL that was registered in this process is there too
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(check, setting, there), name=f"{setting.spec} {check.id}")
    process.start()
    there.close()
    return _Job(check, setting, process, here, time.perf_counter())


def _answer(check: Check, setting: Setting, there: Connection) -> None:
    """What the process runs. The parent handles Ctrl-C; if the parent is gone, the answer is dropped."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        there.send(judge(check, setting))


def run(
    specs: Iterable[str], *, only: Iterable[str] | None = None, scale: str = "quick", seed: int = 0, jobs: int = 1,
    heard: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Every check of every FTL, ``jobs`` at a time; ``heard`` gets each outcome as it ends. Returns the outcomes in the
    order of the lists.

    UsageError for an FTL, a check or a scale that does not exist; an FTL that fails is an Outcome."""
    if scale not in SCALES:
        raise UsageError(f"scale {scale!r}: use {' or '.join(SCALES)}")
    settings = [Setting(spec, scale, seed) for spec in dict.fromkeys(specs)]
    for setting in settings:
        scheme(setting.spec)
    pairs = [(check, setting) for setting in settings for check in chosen(only)]
    done: dict[tuple[str, str], Outcome] = {}
    for outcome in _side_by_side(sorted(pairs, key=lambda pair: -pair[0].weight), max(1, jobs)):
        done[outcome.ftl, outcome.id] = outcome
        heard(outcome)
    return [done[setting.spec, check.id] for check, setting in pairs]


def _side_by_side(pairs: list[tuple[Check, Setting]], jobs: int) -> Iterator[Outcome]:
    """The outcomes, in the order in which they end."""
    running: list[_Job] = []
    try:
        while pairs or running:
            while pairs and len(running) < jobs:
                running.append(_begin(*pairs.pop(0)))
            wait([job.answer for job in running], max(0.0, min(job.left_s() for job in running)))
            for job in [job for job in running if job.answer.poll() or job.left_s() <= 0]:
                running.remove(job)
                yield job.outcome()
    finally:
        for job in running:
            job.process.kill()
            job.end()
