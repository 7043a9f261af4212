#!/usr/bin/env python3
"""Feeds the project hostile input: damaged images, impossible requests, senseless command lines.

    tools/fuzz.py --images 150000 --requests 840000 --cli 10000 --jobs 2 --seed 1
    tools/fuzz.py --replay image:1:4711          one input again, in this process, with its traceback

Each input is a function of the seed and its number. Workers are processes with a limit on their memory; one that dies
or takes too long for an input is a finding like an exception, and the next worker goes on after that input.
docs/fuzzing.md has the criteria.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import multiprocessing.connection
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "fuzz")]

from fuzz_bases import Base, bases  # noqa: E402
from fuzz_cli import CommandLines  # noqa: E402
from fuzz_images import Finding, Judge  # noqa: E402
from fuzz_requests import SESSION, session  # noqa: E402

from flashfs import cli  # noqa: E402

KINDS = ("image", "request", "cli")
UNIT = {"image": 1, "request": SESSION, "cli": 1}  #: inputs for each number: a number is a session of requests
MEMORY_BYTES = 2 << 30  #: beyond what a worker has when it begins
FILE_BYTES = 256 << 20  #: `create` may be asked for any size
TIME_LIMIT_S = 20
CHUNK = {"image": 250, "request": 25, "cli": 100}
NOBODY = 65534


@dataclass
class Result:
    """What a run found: inputs and outcomes by kind, findings with the line that replays each."""

    seed: int
    inputs: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    findings: list[dict[str, Any]] = field(default_factory=list)

    def note(self, kind: str, number: int, what: str) -> None:
        line = f"tools/fuzz.py --replay {kind}:{self.seed}:{number}"
        self.findings.append({"kind": kind, "number": number, "what": what, "replay": line})
        print(f"{kind} {number}: {what}\n    {line}", flush=True)


def runner(kind: str, seed: int, made: list[Base], folder: Path) -> tuple[Callable[[int], None], Counter[str]]:
    """(function that runs input ``number``, the counter of outcomes that it fills)."""
    if kind == "image":
        judge = Judge(folder / "image")

        def image(number: int) -> None:
            rnd = Random(f"{seed}/image/{number}")
            judge.image(rnd.choice(made), rnd)

        return image, judge.tally.outcomes
    if kind == "request":
        outcomes: Counter[str] = Counter()

        def request(number: int) -> None:
            outcomes.update(session(f"{seed}/request/{number}"))

        return request, outcomes
    lines = CommandLines(folder / "lines", made)
    if os.geteuid() == 0:
        become_nobody(folder)
    return lambda number: lines.run(Random(f"{seed}/cli/{number}")), lines.outcomes


def limit() -> None:
    """Bound memory and file sizes: an input may ask for any. No bound on addresses under AddressSanitizer, which
    reserves terabytes of them."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def become_nobody(folder: Path) -> None:
    """Run command lines as the user `nobody`, so that permissions apply. The modules are imported first: that user may
    be unable to read Python's files."""
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        for line in ("--help", "presets", "ftls", "nonesuch", "crash replay x", "crash --tier x", "fsck /nowhere"):
            cli.run(line.split())
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def work(kind: str, seed: int, made: list[Base], span: tuple[int, int], folder: Path, at: Any, pipe: Any) -> None:
    """A worker: the inputs of ``span`` in order. ``at`` is (current number, its start in monotonic seconds)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit()
    run, outcomes = runner(kind, seed, made, folder)
    for number in range(*span):
        at[1] = time.monotonic()
        at[0] = number
        try:
            run(number)
        except Finding as finding:
            pipe.send(("finding", number, str(finding)[:1000]))
        except BaseException as error:
            pipe.send(("finding", number, f"the judge itself: {type(error).__name__}: {error}"[:1000]))
    pipe.send(("done", span[1] - span[0], dict(outcomes)))


class Worker:
    """One process that runs one span of numbers."""

    def __init__(self, kind: str, seed: int, made: list[Base], span: tuple[int, int], shelf: Path) -> None:
        self.kind, self.span = kind, span
        self.folder = Path(tempfile.mkdtemp(dir=shelf))
        self.folder.chmod(0o777)
        self.at = multiprocessing.RawArray("d", [span[0], time.monotonic() + 60])  # the process needs time to start
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.Process(
            target=work, args=(kind, seed, made, span, self.folder, self.at, theirs), daemon=True
        )
        self.process.start()
        theirs.close()

    def clear(self) -> None:
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def spans(wanted: dict[str, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Chunks of numbers, with the kinds in turn, so that an interrupted run has tried each kind."""
    left = {kind: -(-wanted[kind] // UNIT[kind]) for kind in KINDS}
    total = dict(left)
    while any(left.values()):
        kind = max(KINDS, key=lambda one: left[one] / max(1, total[one]))
        n = min(CHUNK[kind], left[kind])
        first = total[kind] - left[kind]
        left[kind] -= n
        yield kind, (first, first + n)


def campaign(wanted: dict[str, int], seed: int, jobs: int, shelf: Path, findings_most: int) -> Result:
    """Run the wanted inputs of each kind, in ``jobs`` processes at a time."""
    result = Result(seed)
    made = list(bases())
    waiting = spans(wanted)
    again: list[tuple[str, tuple[int, int]]] = []
    workers: list[Worker] = []
    while True:
        while len(workers) < jobs and len(result.findings) < findings_most:
            following = again.pop() if again else next(waiting, None)
            if following is None:
                break
            workers.append(Worker(following[0], seed, made, following[1], shelf))
        if not workers:
            return result
        multiprocessing.connection.wait([worker.pipe for worker in workers], timeout=1)
        for worker in list(workers):
            rest = attend(worker, result)
            if rest is not None:
                workers.remove(worker)
                again += [(worker.kind, rest)] if rest[0] < rest[1] else []


def attend(worker: Worker, result: Result) -> tuple[int, int] | None:
    """Read a worker's messages. Returns the span of numbers it left undone once it has ended, None while it works."""
    kind, number = worker.kind, int(worker.at[0])
    try:
        while worker.pipe.poll():
            what, *rest = worker.pipe.recv()
            if what == "finding":
                result.note(kind, *rest)
            else:
                result.inputs[kind] += rest[0] * UNIT[kind]
                result.outcomes[kind].update(rest[1])
                worker.clear()
                return 0, 0
        if time.monotonic() - worker.at[1] < TIME_LIMIT_S:
            return None
        worker.process.kill()
        why = f"not done after {TIME_LIMIT_S} s"
    except EOFError:
        worker.process.join()
        code = worker.process.exitcode or 0
        why = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    number = int(worker.at[0])
    result.note(kind, number, why)
    result.inputs[kind] += (number + 1 - worker.span[0]) * UNIT[kind]
    worker.clear()
    return number + 1, worker.span[1]


def replay(text: str) -> int:
    """Run one input in this process, and print its traceback."""
    kind, seed, number = text.split(":")
    with tempfile.TemporaryDirectory(dir=shelf_of()) as folder:
        Path(folder).chmod(0o777)
        made = list(bases())
        limit()
        run, outcomes = runner(kind, int(seed), made, Path(folder))
        try:
            run(int(number))
        except Finding as finding:
            if finding.__cause__ is not None:
                traceback.print_exception(finding.__cause__)
            print(f"finding: {finding}")
            return 1
        print(f"nothing wrong: {dict(outcomes)}")
    return 0


def shelf_of() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--cli", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--findings", type=int, default=50, help="stop after so many")
    parser.add_argument("--out", type=Path, help="write the result there, as JSON")
    parser.add_argument("--replay", metavar="KIND:SEED:NUMBER")
    asked = parser.parse_args()
    if asked.replay:
        return replay(asked.replay)
    multiprocessing.set_start_method("fork")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=shelf_of()) as shelf:
        Path(shelf).chmod(0o755)
        wanted = {"image": asked.images, "request": asked.requests, "cli": asked.cli}
        result = campaign(wanted, asked.seed, asked.jobs, Path(shelf), asked.findings)
    seconds = round(time.monotonic() - began, 1)
    said = {
        "seed": asked.seed, "seconds": seconds, "jobs": asked.jobs, "inputs": dict(result.inputs),
        "total": sum(result.inputs.values()), "outcomes": {kind: dict(n) for kind, n in result.outcomes.items()},
        "findings": result.findings,
    }  # fmt: skip
    if asked.out:
        asked.out.write_text(json.dumps(said, indent=1) + "\n")
    print(json.dumps({key: value for key, value in said.items() if key not in ("findings", "outcomes")}))
    for kind in ("image", "cli"):
        print(kind, dict(result.outcomes[kind].most_common(12)))
    print(f"{len(result.findings)} findings")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
