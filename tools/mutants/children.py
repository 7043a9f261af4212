"""Items run in forked children: a mutant may spin, crash or use up memory without affecting the next one."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from ctypes import CDLL, RTLD_GLOBAL, c_int
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mutants.suites import Item

PR_SET_PDEATHSIG = 1  #: <sys/prctl.h>
MEMORY = 6 << 30  #: bytes that a child may map besides what it begins with


@dataclass(frozen=True, slots=True)
class Job:
    """Items to run in this order with one mutant chosen; the first that fails ends it. ``due_s``: seconds that each
    may take; ``most_s``: all of them."""

    number: int
    items: list[Item]
    due_s: list[float]
    most_s: float


@dataclass(slots=True)
class Ended:
    """How a job ended: `passed`, `failed` or `time-out`, at which item, and why. ``each_s``: the seconds of each item
    that passed."""

    job: Job
    result: str
    item: Item | None
    why: str
    seconds: float
    each_s: list[float] = field(default_factory=list)


class Switch:
    """Sets the number that chooses a mutant in this process, its children, and programs that they start."""

    def __init__(self, library: Path) -> None:
        self.chosen = c_int.in_dll(CDLL(str(library), mode=RTLD_GLOBAL), "flashfs_mutant_chosen")

    def choose(self, number: int) -> None:
        self.chosen.value = number
        os.environ["FLASHFS_MUTANT"] = str(number)


class Child:
    """A running job, in a process group of its own."""

    def __init__(self, job: Job, switch: Switch, config: Any) -> None:
        self.job = job
        self.answer, there = Pipe(duplex=False)
        self.folder = Path(tempfile.mkdtemp(prefix="flashfs-mutant-"))
        self.started = self.began = time.monotonic()
        self.at = 0
        self.each_s: list[float] = []
        self.pid = os.fork()
        if self.pid == 0:
            _live(job, switch, config, self.folder, there)
        there.close()

    def left_s(self) -> float:
        return min(self.began + self.job.due_s[self.at], self.started + self.job.most_s) - time.monotonic()

    def hear(self) -> Ended | None:
        """Read one message of the child; None if the job goes on."""
        try:
            kind, why = self.answer.recv()
        except (EOFError, OSError):
            return self.end("failed", self.last_words())
        if kind == "done":
            now = time.monotonic()
            self.each_s.append(now - self.began)
            self.began, self.at = now, self.at + 1
            return self.end("passed", "") if self.at == len(self.job.items) else None
        return self.end("failed", why)

    def last_words(self) -> str:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if os.WIFSIGNALED(status):
            return f"its process died of {signal.Signals(os.WTERMSIG(status)).name}"
        return f"its process ended with {os.WEXITSTATUS(status)}"

    def end(self, result: str, why: str) -> Ended:
        item = self.job.items[self.at] if self.at < len(self.job.items) else None
        ended = Ended(self.job, result, item, why, time.monotonic() - self.started, self.each_s)
        self.stop()
        return ended

    def stop(self) -> None:
        """Kill its process group and remove its folder."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        self.answer.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _live(job: Job, switch: Switch, config: Any, folder: Path, answer: Connection) -> None:
    """The child's code; it does not return."""
    try:
        os.setsid()
        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        if config is not None:
            config._tmp_path_factory._basetemp = folder
        switch.choose(job.number)
        for item in job.items:
            why = _meet(item)
            answer.send(("failed", why) if why else ("done", ""))
            if why:
                break
    finally:
        os._exit(0)


def _meet(item: Item) -> str:
    try:
        return item.run()
    except BaseException as error:  # any exception counts as caught
        return f"{type(error).__name__}: {error}"


def run(jobs: Iterator[Job], at_once: int, switch: Switch, config: Any = None) -> Iterator[Ended]:
    """Run the jobs, ``at_once`` at a time; yields in the order in which they end."""
    gc.collect()
    gc.freeze()
    children: list[Child] = []
    try:
        more = True
        while more or children:
            while more and len(children) < at_once:
                job = next(jobs, None)
                more = job is not None
                if job is not None:
                    children.append(Child(job, switch, config))
            if not children:
                continue
            wait([child.answer for child in children], max(0.0, min(child.left_s() for child in children)))
            for child in list(children):
                ended = child.hear() if child.answer.poll() else None
                if ended is None and child.left_s() <= 0:
                    ended = child.end("time-out", f"it did not end within {time.monotonic() - child.began:.0f} s")
                if ended is not None:
                    children.remove(child)
                    yield ended
    finally:
        for child in children:
            child.stop()
