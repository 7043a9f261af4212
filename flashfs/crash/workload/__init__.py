"""Crash states of a user's workload: recorded once, cut at any place, mounted again, and judged by the user's checker.

`record` runs the workload on a device whose requests are written to a tape, with contents; `states` gives a prefix of
the tape to a device that starts like the recorded one, and cuts its power; `mounted_image` recovers and mounts the
result, and the user's checker reads the files. See docs/crash-workload.md.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from flashfs.bound import check_trust
from flashfs.crash.campaign import KEPT, Result
from flashfs.crash.kill import warm_up
from flashfs.crash.kill.daemon_lives import adopting
from flashfs.crash.workload import commands, interrupts, mounted_image
from flashfs.crash.workload.commands import must_do
from flashfs.crash.workload.record import UNCUT, places, record, variables
from flashfs.crash.workload.settings import Folder, Settings, check_machine, default_size
from flashfs.crash.workload.states import DEFAULT_PLACES, PLACES, Place, Replay, Tape, choose
from flashfs.errors import UsageError
from flashfs.sizing.defaults import DEFAULT_FTL
from nandimg import Geometry, image

__all__ = [
    "DEFAULT_PLACES",
    "Job",
    "Settings",
    "WorkloadFailure",
    "WorkloadResult",
    "default_size",
    "run",
]


@dataclass(frozen=True, slots=True)
class Job:
    """What to do. The command ``check`` checks the files after a cut, ``fsck`` the device once they are unmounted; at
    least one is given. ``workload`` None: use the recording in ``folder``. ``folder`` None: a temporary one, removed if
    nothing fails. ``places`` are the words of --at, ``cuts`` is the most cuts to make."""

    check: str | None
    fsck: str | None = None
    workload: str | None = None
    setup: str | None = None
    folder: Path | None = None
    places: tuple[str, ...] = DEFAULT_PLACES
    cuts: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class WorkloadFailure:
    """A cut whose state the checker rejects or that cannot be mounted, and the command that replays it."""

    cut: str
    mark: str
    why: str
    output: list[str]
    replay: str

    def __str__(self) -> str:
        passed = f"last mark {self.mark!r}" if self.mark else "no mark passed"
        return "\n".join([f"{self.cut} ({passed}): {self.why}", *(f"  | {line}" for line in self.output),
                          f"    {self.replay}"])  # fmt: skip


@dataclass(slots=True)
class WorkloadResult(Result):
    """``flushes``, ``marks`` and ``operations`` (of the flash) count the workload's; ``recording`` is the folder that
    keeps the recording, None if it was removed."""

    fs: str = ""
    flushes: int = 0
    marks: int = 0
    operations: int = 0
    recording: str | None = None
    in_memory: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "ftl": self.ftl,
            "tier": self.tier,
            "fs": self.fs,
            "cuts": self.cuts,
            "flushes": self.flushes,
            "marks": self.marks,
            "operations": self.operations,
            "failures": [asdict(loss) for loss in self.failures if isinstance(loss, WorkloadFailure)],
            "failed": self.failed,
            "recording": self.recording,
            "seconds": round(self.seconds, 2),
            "seed": self.seed,
        }


def run(
    job: Job, settings: Settings, geometry: Geometry | None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    broken_off: Callable[[WorkloadResult], None] = lambda result: None,
) -> WorkloadResult:  # fmt: skip
    """Record, unless there is a recording, and cut. ``settings`` and ``geometry`` are those of a new recording; for an
    old one, ``settings.ftl`` names the FTL that may be imported. ``progress`` gets the number of cuts done and of all
    cuts. If an error or a signal ends the run after a failure, ``broken_off`` gets what was found, and the recording is
    kept. FlashfsError if the workload or a check fails without a cut, or if nothing can be cut. SIGTERM and SIGHUP
    raise SystemExit, after everything is unmounted."""
    started = time.perf_counter()
    for word in job.places:
        if word not in PLACES:
            Place.parse(word)  # before the workload runs, which may take long
    if job.workload is None:
        assert job.folder is not None
        settings = recorded(Folder(job.folder), settings)
    check_machine(settings)
    warm_up(settings.ftl or DEFAULT_FTL)
    result = WorkloadResult(settings.ftl or DEFAULT_FTL, "workload", job.seed, fs=settings.fs)
    ended = False
    with interrupts.handled():
        folder = Folder((job.folder or Path(tempfile.mkdtemp(prefix="flashfs-workload-"))).resolve())
        if job.workload is not None:
            folder.make()
        with folder.held(), adopting():
            try:
                if job.workload is not None:
                    assert geometry is not None
                    record(folder, geometry, settings, job.workload, job.setup)
                cut(job, folder, settings, result, progress)
                ended = True
            finally:
                with interrupts.held():
                    if not ended:
                        mounted_image.clear(folder)
                    result.recording = put_away(job, folder, result)
                    result.seconds = time.perf_counter() - started
                    if not ended and result.failed:
                        broken_off(result)
    return result


def put_away(job: Job, folder: Folder, result: WorkloadResult) -> str | None:
    """Keep the recording if it was asked for, if a failure needs it for a replay, or if something is still mounted.
    Returns its path, or None if it was removed."""
    folder.tidy()
    if job.folder is None and not result.failed and not folder.has_mounts():
        shutil.rmtree(folder.path)
        return None
    return str(folder.path)


def recorded(folder: Folder, given: Settings) -> Settings:
    """The settings of the recording. UntrustedError unless its FTL is registered or the one that the user names: a
    recording from elsewhere could otherwise import any module."""
    found, _ = folder.load()
    if found.ftl is not None and given.ftl is None:
        check_trust(folder.about, found.ftl)
    if given.ftl not in (None, found.ftl or DEFAULT_FTL):
        raise UsageError(f"--ftl {given.ftl}: the recording is of {found.ftl or DEFAULT_FTL}")
    return found


def cut(
    job: Job, folder: Folder, settings: Settings, result: WorkloadResult, progress: Callable[[int, int], None]
) -> None:
    """Cut at each place in turn. ``result`` is updated after each cut, so it is complete if an error ends this."""
    replay = Replay(folder, settings, Tape(folder, folder.load()[1]))
    if job.places == DEFAULT_PLACES:
        replay.tape.require_any()
    look(job, folder, settings, UNCUT, replay.make_uncut(), must_do)
    replay.measure()
    places = choose(replay, list(job.places), job.cuts, job.seed)
    first, last = replay.operations
    result.ftl = image.inspect(folder.base).ftl
    result.flushes, result.marks = len(replay.tape.flushes), len(replay.tape.marked)
    result.operations = last - first + 1
    for place in places:
        marks = replay.make(place)
        if len(places) == 1:
            mounted_image.copy(folder.state, folder.crashed)
        why, output = judge(job, folder, settings, place, marks)
        if why is not None:
            named = ["--ftl", settings.ftl] if settings.ftl and ":" in settings.ftl else []
            checks = [word for name, command in (("--check", job.check), ("--fsck", job.fsck)) if command is not None
                      for word in (name, command)]  # fmt: skip
            where = ["--recording", str(folder.path), *named, *checks, "--at", str(place)]
            words = ["flashfs", "crash", "workload", *where]
            loss = WorkloadFailure(str(place), marks[-1] if marks else "", why, output, shlex.join(words))
            result.failed += 1
            if len(result.failures) < KEPT:
                result.failures.append(loss)
        result.cases = result.cuts = result.cuts + 1
        progress(result.cuts, len(places))


def judge(
    job: Job, folder: Folder, settings: Settings, place: Place, marks: list[str]
) -> tuple[str | None, list[str]]:
    """(what is wrong, or None; the last lines of the command that says so). A device that does not recover and a file
    system that cannot be mounted are wrong too."""
    said: list[tuple[str, list[str]]] = []

    def note(what: str, ended: commands.Ended) -> None:
        if ended.code != 0:
            said.append((f"{what} {ended}", ended.lines))

    try:
        look(job, folder, settings, str(place), marks, note)
    except mounted_image.Unusable as error:
        return str(error), []
    return said[0] if said else (None, [])


def look(
    job: Job, folder: Folder, settings: Settings, cut: str, marks: list[str],
    tell: Callable[[str, commands.Ended], None],
) -> None:  # fmt: skip
    """Mount the state and run the user's checks: ``check`` on its files, then, when they are unmounted and the journal
    is empty, ``fsck`` on the device. ``tell`` is called with how each ended."""
    before = "" if cut != UNCUT else ", before any cut,"
    with mounted_image.attached(folder, settings) as device:
        with mounted_image.files(device, folder, settings) as root:
            known = {**places(root, device), **variables(folder, cut, marks)}
            if job.check is not None:
                tell(f"--check{before}", commands.run(job.check, root, known))
        if job.fsck is not None:
            tell(f"--fsck{before}", commands.run(job.fsck, device, known))
