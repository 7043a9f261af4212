"""The kill tier: the real daemon under a file system on a loop device, killed again and again.

In each round a writer works on the file system, the daemon under it ends by SIGKILL, and everything that was
acknowledged to the writer as durable must be there after the image is mounted again. All rounds use one small image,
which ages that way: cleaning is always under way. The seed fixes what is written and, as far as a clock can, when the
daemon dies. If something was lost, the image is kept as the kill left it.

`filesystems` has the file systems and their chips; a `workload` is a writer with its judge (`files`, `sqlite`,
`remapped`, `fio`); `daemon_lives` ends the daemon; the `bench` holds the image and the mounts.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from flashfs.crash.campaign import Result
from flashfs.crash.kill.bench import Bench
from flashfs.crash.kill.daemon_lives import Lost, Moments, adopting
from flashfs.crash.kill.files import Files
from flashfs.crash.kill.filesystems import FILE_SYSTEMS, NONE, FileSystem
from flashfs.crash.kill.fio import Fio
from flashfs.crash.kill.remapped import SqliteRemap, needs
from flashfs.crash.kill.sqlite import Sqlite, SqliteWal
from flashfs.crash.kill.workload import Workload
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import scheme
from flashfs.fuse import daemon, loop, mounts

__all__ = [
    "FILE_SYSTEMS",
    "WRITERS",
    "Bench",
    "KillFailure",
    "KillResult",
    "Lost",
    "Moments",
    "benches",
    "check_machine",
    "run",
]

WRITERS: dict[str, type[Workload]] = {
    "files": Files,
    "sqlite-delete": Sqlite,
    "sqlite-wal": SqliteWal,
    "sqlite-remap": SqliteRemap,
    "fio": Fio,
}
EXPECTED = (FlashfsError, OSError, subprocess.SubprocessError)  #: errors that end a run and are reported as its failure
FAMILIES = {"sqlite": ("sqlite-delete", "sqlite-wal")}  #: names that stand for several writers


@dataclass(frozen=True, slots=True)
class KillFailure:
    """What a round lost, and the command that replays it."""

    why: str
    replay: str

    def __str__(self) -> str:
        return f"{self.why}\n    {self.replay}"


@dataclass(slots=True)
class KillResult(Result):
    """One scheme under one writer on one file system. ``cuts`` are the rounds survived; ``chosen`` of them ended at a
    chosen operation. ``recoveries_killed`` counts the deaths before a writer began: in a recovery, in the replay of the
    journal or in the checks after it. ``aimed`` counts the rounds whose kill came where the writer wanted it, None for
    a writer without such a place; ``options`` were the same in all lives."""

    fs: str = ""
    writer: str = ""
    chosen: int = 0
    recoveries_killed: int = 0
    aimed: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    in_memory: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "ftl": self.ftl,
            "tier": self.tier,
            "fs": self.fs,
            "writer": self.writer,
            **({"options": dict(self.options)} if self.options else {}),
            "cuts": self.cuts,
            "chosen": self.chosen,
            "recoveries_killed": self.recoveries_killed,
            **({"aimed": self.aimed} if self.aimed is not None else {}),
            "failures": [{"why": failure.why, "replay": failure.replay} for failure in self.failures],
            "seconds": round(self.seconds, 2),
            "seed": self.seed,
        }


def writers(names: Iterable[str]) -> list[str]:
    """The writers that these names stand for; UsageError for an unknown name."""
    out: list[str] = []
    for name in names:
        if name not in WRITERS and name not in FAMILIES:
            raise UsageError(f"--writer {name}: there is {', '.join((*WRITERS, *FAMILIES))}")
        out += [one for one in FAMILIES.get(name, (name,)) if one not in out]
    return out


def benches(systems: Iterable[str], names: Iterable[str]) -> list[tuple[str, str]]:
    """(file system, writer) of each campaign. A writer that needs no file system has a single one, on ``none``."""
    of = writers(names)
    over = [(system, one) for system in systems for one in of if not WRITERS[one].bare]
    return [*over, *((NONE.name, one) for one in of if WRITERS[one].bare)]


def system_of(fs: str) -> FileSystem:
    return NONE if fs == NONE.name else FILE_SYSTEMS[fs]


def check_options(ftl: str, options: Mapping[str, str]) -> None:
    """UsageError or BindError unless a chip can be bound to that FTL with these options."""
    if options:
        from flashfs.device import Device

        Device.memory(NONE.geometry, ftl, options=dict(options), backend="meta").close(clean=False)


def check_machine(fs: str, writer: str = "files") -> None:
    """Raise unless this machine has all that the tier needs; the error names what is missing."""
    if writer not in WRITERS:
        raise UsageError(f"--writer {writer}: there is {', '.join(WRITERS)}")
    if fs not in (FILE_SYSTEMS if not WRITERS[writer].bare else (NONE.name,)):
        raise UsageError(f"--fs {fs}: the kill tier knows {', '.join(FILE_SYSTEMS)}")
    loop.need_root("crash kill", "`flashfs crash run`, which cuts a chip in memory")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            raise FlashfsError(f"crash kill needs {device}, which this machine does not let us open")
    system = system_of(fs)
    if writer == "sqlite-remap":
        needs()
    needed = [("fusermount3", "fuse3"), ("losetup", "mount"), *WRITERS[writer].packages]
    needed += [(command[0], system.package) for command in (system.make, system.check) if command]
    for program, package in needed:
        if shutil.which(program, path=mounts.environment()["PATH"]) is None:
            raise FlashfsError(f"crash kill needs {program}: install {package}")


def warm_up(ftl: str) -> None:
    """Import what each daemon would import: daemons are forked, so they start in a tenth of the time."""
    import trio  # noqa: F401

    import flashfs.device  # noqa: F401
    from flashfs.fuse import native_server, pyfuse3_server  # noqa: F401

    scheme(ftl)


def run(
    ftl: str, seed: int, rounds: int, *, fs: str = "ext4", writer: str = "files",
    options: Mapping[str, str] | None = None, progress: Callable[[int], None] = lambda done: None,
) -> KillResult:  # fmt: skip
    """Kill ``rounds`` daemons in a row on one image; ends at the first loss. The ``options`` of the FTL are the same in
    all lives. ``progress`` gets the number of rounds survived."""
    check_machine(fs, writer)
    check_options(ftl, options or {})
    result = KillResult(ftl, "kill", seed, fs=fs, writer=writer, options=options or {})
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="flashfs-kill-"))

    def work(bench: Bench) -> Workload:
        return WRITERS[writer](
            bench.device if WRITERS[writer].bare else bench.root, folder, str(seed), bench.writes
        )

    def failed(error: Exception) -> None:
        where = "" if WRITERS[writer].bare else f" --fs {fs}"
        chosen = "".join(f" --opt {name}={value}" for name, value in (options or {}).items())
        replay = f"flashfs crash kill{where} --writer {writer} --ftl {ftl} --seed {seed} --rounds {rounds}{chosen}"
        why = f"round {bench.rounds}: {daemon.one_line(error)[0]} (the image as it was found: {bench.crashed})"
        result.failures.append(KillFailure(why, replay))

    warm_up(ftl)
    rnd = random.Random(f"kill {ftl} {fs} {writer} {seed}")
    with adopting():
        bench = Bench(folder, ftl, system_of(fs), rnd, work, options or {})
        try:
            bench.begin()
            for n in range(rounds):
                bench.round()
                progress(n + 1)
            bench.end()
        except EXPECTED as error:
            failed(error)
        finally:
            try:
                bench.clean_up()
            except EXPECTED as error:
                failed(error)
    result.cases = result.cuts = bench.rounds
    result.chosen, result.recoveries_killed = bench.chosen, bench.recoveries_killed
    result.aimed = bench.work.aimed if WRITERS[writer].bare else None
    if not result.failures:
        shutil.rmtree(folder)
    result.seconds = time.perf_counter() - started
    return result
